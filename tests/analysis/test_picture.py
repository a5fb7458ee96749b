"""What pages are put together from."""

import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pandas as pd
import pytest

from multigpu.analysis.canvas import counts
from multigpu.analysis.picture import RC, Picture, save, svg_text
from multigpu.analysis.plots import dots
from multigpu.analysis.show import Shown, folded


def test_parts_stand_folded_one_below_the_other() -> None:
    html = folded("a < b of `grid`", Shown("<p>1</p>"), Shown("<p>2</p>")).html
    assert html == "<details><summary>a &lt; b of <code>grid</code></summary>\n<p>1</p><p>2</p></details>\n"


@pytest.fixture(scope="module")
def drawn() -> Picture:
    rows = pd.DataFrame({"placement": ["ddp", "exp2"], "rate": [10.0, 4.0], "rate_low": [9.0, 3.0], "rate_high": [11.0, 5.0]})
    return dots(rows, "rate", "placement", "The host costs most", "Words per second; n = 5.", alt="Two dots")


def test_saving_twice_gives_the_same_bytes(drawn: Picture, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        save(drawn, "rates", folder=tmp_path / folder)
    for suffix in ("svg", "csv"):
        assert (tmp_path / f"a/rates.{suffix}").read_bytes() == (tmp_path / f"b/rates.{suffix}").read_bytes()
    svg = (tmp_path / "a/rates.svg").read_text()
    assert "currentColor" in svg and "#1a1b1c" not in svg and "<metadata" not in svg and "prefers-color-scheme:dark" in svg
    assert pd.read_csv(tmp_path / "a/rates.csv")["rate"].max() == 10


def test_what_a_page_shows_is_self_contained(drawn: Picture, tmp_path: Path) -> None:
    html = save(drawn, "rates", folder=tmp_path).html
    assert 'role="img" aria-label="Two dots"' in html and "<figcaption>Words per second" in html and 'download="rates.csv"' in html
    assert [link for link in re.findall(r'(?:href|src)="([^"]*)"', html) if not link.startswith(("#", "data:"))] == []
    assert "\n\n" not in html
    assert all(name.startswith("rates") for name in re.findall(r'\bid="([^"]*)"', html))
    # a style inside an SVG that stands in a page would reach the whole page
    for sheet in re.findall(r"<style[^>]*>(.*?)</style>", html, flags=re.DOTALL):
        for rule in re.findall(r"([^{}]+)\{", re.sub(r"@container [^{]*\{", "", sheet)):
            assert rule.strip().startswith(("#rates-figure_1 ", "#rates-narrow-", "#rates-drawing")) and "," not in rule


@pytest.mark.parametrize(("name", "folder"), [("../escape", ""), ("", ""), ("a b", ""), ("1st", ""), ("bytes", "file")])
def test_a_figure_needs_a_plain_name_and_a_folder(drawn: Picture, tmp_path: Path, name: str, folder: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written" if folder else "is no name for a figure"):
        save(drawn, name, folder=tmp_path / folder)


def test_a_drawing_keeps_its_words_and_what_is_referred_to_and_two_decimals() -> None:
    with mpl.rc_context(RC):
        picture = Picture(4, 3)
        axes = picture.add_subplot()
        axes.plot([0, 1, 2], [0.123456, 1, 0.5], marker="o")
        axes.set_title("A title of 0.123456")
    root = ElementTree.fromstring(svg_text(picture, "drawn"))
    names = {element.get("id") for element in root.iter() if element.get("id")}
    referred = {value[1:] for element in root.iter() for name, value in element.items() if name.endswith("href")}
    assert referred and referred <= names
    assert "A title of 0.123456" in [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    lines = [element.get("d", "") for element in root.iter("{http://www.w3.org/2000/svg}path")]
    assert lines and not any(re.search(r"\.\d{3}", line) for line in lines)


def test_a_count_that_would_touch_the_one_before_has_no_tick() -> None:
    axes = Picture(4, 3).add_subplot()
    counts(axes, [2, 16, 17, 32])
    assert list(axes.get_xticks()) == [2, 16, 32]
