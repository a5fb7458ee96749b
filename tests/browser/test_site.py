"""The built site in a browser: what a reader moves answers, at two widths, and no page complains.

Chromium is driven without a display. SITE names the folder of the site, CHROMIUM the browser.
"""

import html
import os
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from multigpu.analysis.words import named
from multigpu_study.analysis import calculator
from multigpu_study.claims import all_claims
from tests.names import said
from tests.study.test_questions import TODAY

SITE = Path(os.environ.get("SITE", "build/html")).resolve()
WIDTHS = (1400, 390)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    assert found, (
        "no Chromium is here: on Debian and Ubuntu, apt-get install chromium; or CHROMIUM=PATH"
    )
    assert (SITE / "index.html").is_file(), f"no site is in {SITE}: run `make report`"
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(params=WIDTHS)
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page whose console, errors and requests are watched: what is wrong fails the test."""
    context = browser.new_context(viewport={"width": request.param, "height": 1000})
    opened, wrong = context.new_page(), []
    opened.set_default_timeout(20_000)
    opened.on("console", lambda said: said.type == "error" and wrong.append(said.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on(
        "request",
        lambda asked: (
            asked.url.startswith(("file:", "data:", "blob:", "about:")) or wrong.append(asked.url)
        ),
    )
    yield opened
    context.close()
    assert wrong == []


def holds(text: str) -> list[Path]:
    """Pages of the site whose HTML holds a text."""
    return [path for path in sorted(SITE.glob("*.html")) if text in path.read_text(encoding="utf8")]


def opened(page: Page, path: Path, anchor: str = "") -> None:
    page.goto(f"{path.as_uri()}{anchor}", wait_until="load")
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 1, f"{path.name} is {wide} px wider than the window"


def test_a_page_that_complains_is_seen(browser: Browser, tmp_path: Path) -> None:
    """The fixture's own test: an error in the console is noticed."""
    (tmp_path / "bad.html").write_text("<script>console.error('bad'); nothing();</script>")
    tab, heard = browser.new_page(), []
    tab.on("console", lambda said: heard.append(said.type))
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.goto((tmp_path / "bad.html").as_uri())
    tab.close()
    assert "error" in heard and any("nothing" in one for one in heard)


@pytest.mark.parametrize("path", sorted(SITE.glob("*.html")), ids=lambda path: path.stem)
def test_every_page_opens_without_an_error(page: Page, path: Path) -> None:
    page.goto(path.as_uri(), wait_until="load")
    expect(page.locator("h1").first).to_be_attached()
    if page.viewport_size == {"width": WIDTHS[0], "height": 1000}:
        printed = page.locator(".bd-article pre:visible")
        cut = "every => every.filter(one => one.scrollWidth > one.clientWidth + 1).length"
        assert printed.evaluate_all(cut) == 0, (
            "code, or what a command printed, is cut at its right"
        )


def test_the_calculator_says_what_python_says(page: Page) -> None:
    (path,) = holds('id="calculator"')
    opened(page, path)
    box = page.locator("#calculator")
    step = box.locator(".answers tr").nth(0).locator("td").nth(0)
    before = step.inner_text()
    typed = {"parameters": 350.0, "flops": 12.5, "activations": 90.0, "batch": 16, "devices": 8}
    for name, value in typed.items():
        box.locator(f"[name={name}]").fill(str(value))
    box.locator("[name=placement]").select_option("zero1")
    box.locator("[name=form]").select_option("eager")
    box.locator("[name=slots]").select_option("2")
    box.locator("[name=one_ms]").fill("100")
    assert step.inner_text() != before
    data = page.evaluate("JSON.parse(document.getElementById('calculator-data').textContent)")
    first = box.locator("[name=model]").input_value()
    numbers = dict(data["fixed"], batch=16, devices=8, slots=2, known=1, one_s=0.1)
    numbers |= {"parameters": 350e6, "flops": 12.5e9, "activations": 90e6}
    numbers["link"] = float(box.locator("[name=link]").input_value()) * 1e9
    numbers["peak"] = data["peaks"][box.locator("[name=precision]").input_value()]
    numbers["largest"] = calculator.tables()["models"][first]["largest"]
    told = calculator.calculate(calculator.settings("eager", "zero1", **numbers))
    assert float(step.inner_text().split(" ms")[0]) == pytest.approx(1e3 * told["step_s"], rel=6e-3)
    assert "forecast from your step" in box.locator(".answers").inner_text()
    bars = box.locator(".bar")
    assert bars.count() == len(calculator.tables()["placements"])
    assert bars.first.locator(".limit").count() == 2
    assert named("placement", "exp2") in box.locator(".memory").inner_text().splitlines()
    total = box.locator(".memory .bar[aria-label^='zero1:'] + span").inner_text()
    assert float(total.split()[0]) == pytest.approx(told["memory_bytes"] / 1e9, rel=6e-3)
    assert "multigpu measure" in box.locator(".nearest code").inner_text()
    box.locator("[name=devices]").fill("0")
    expect(box.locator(".problem")).to_have_text("GPUs must be a number above 0.")
    box.locator("[name=devices]").fill("1")
    expect(box.locator(".problem")).to_be_hidden()
    expect(box.locator(".answers")).to_contain_text("measured by you")


def test_rows_of_a_printed_table_stand_one_below_the_other(page: Page) -> None:
    opened(page, SITE / "index.html")
    rows = page.locator("pre .printed-row")
    boxes = [one for one in (rows.nth(at).bounding_box() for at in range(rows.count())) if one]
    assert len(boxes) > 4 and len({box["x"] for box in boxes}) == 1
    steps = [b["y"] - a["y"] for a, b in pairwise(boxes)]
    assert max(steps) < 1.5 * min(steps), "an empty line stands between two rows"
    assert max(steps) < 1.5 * boxes[0]["height"]


def test_the_first_screen_says_what_to_take(page: Page) -> None:
    """Placement, form, memory and what to expect of a CNN, GPTs and an LSTM, at both widths."""
    opened(page, SITE / "index.html")
    rows = page.locator("#what-to-take-and-what-to-expect table").first.locator("tr:has(td)")
    for row in (rows.nth(at) for at in range(4)):
        for at in range(5):
            box = row.locator("td").nth(at).bounding_box()
            assert box and box["y"] + box["height"] < 1000, row.inner_text()
            assert box["x"] + box["width"] <= (page.viewport_size or {}).get("width", 0)
    shown = {
        word for word in ("ResNet", "GPT", "LSTM") if word in rows.first.locator("..").inner_text()
    }
    assert len(shown) == 3


def test_a_dot_of_the_banner_leads_to_its_point(page: Page) -> None:
    opened(page, SITE / "index.html")
    dots = page.locator("#front-banner a[aria-label]")
    assert dots.count() > 20
    target = dots.nth(3).evaluate("one => one.href.baseVal ?? one.href")
    page.goto(f"{SITE.as_uri()}/{target}" if "://" not in target else target, wait_until="load")
    expect(page.locator("#explorer p").first).to_have_text(re.compile(r"^1 of [\d,]+ points"))


def test_the_explorer_filters_sorts_and_comes_back(page: Page) -> None:
    opened(page, SITE / "20-explorer.html")
    count = page.locator("#explorer p[aria-live]").first
    every = count.inner_text()
    page.locator("#explorer select[aria-label=placement]").select_option("ddp")
    some = count.inner_text()
    assert some != every and "placement=ddp" in page.url
    page.locator("#explorer input[type=search]").fill("resnet50 captured")
    expect(count).not_to_have_text(some)
    page.locator("#explorer th button", has_text="per second").first.click()
    assert page.locator("#explorer tbody tr").count() > 0
    page.get_by_role("button", name="all points").click()
    expect(count).to_have_text(every)


@pytest.mark.parametrize(
    ("name", "asked"),
    [("05-models", "sspp"), ("04-all-reduce", "pps"), ("09-waiting", "ppr")],
)
def test_what_a_reader_chooses_is_drawn_and_told(page: Page, name: str, asked: str) -> None:
    """By keyboard alone: each control (select, radio buttons, slider) changes picture and words."""
    kinds = {"s": "select", "p": "input[type=radio]:checked", "r": "input[type=range]"}
    opened(page, SITE / f"{name}.html")
    box = page.locator("figure:has(.vega-bind)")
    drawing, rows = box.locator("svg").first, box.locator(".vega-bind")
    expect(drawing).to_have_attribute("role", "img")
    expect(rows).to_have_count(len(asked))
    assert re.search(r"; .+\d", drawing.get_attribute("aria-label") or ""), "values are told"
    bounds = drawing.bounding_box()
    assert bounds and bounds["x"] + bounds["width"] <= (page.viewport_size or {})["width"]
    for row, kind in enumerate(asked):
        words, picture = drawing.get_attribute("aria-label") or "", drawing.inner_html()
        rows.nth(row).locator(kinds[kind]).press("ArrowDown")
        expect(drawing).not_to_have_attribute("aria-label", words)
        assert drawing.inner_html() != picture


def test_a_choice_that_nobody_measured_says_so(page: Page) -> None:
    opened(page, SITE / "05-models.html")
    box = page.locator("figure:has(.vega-bind)")
    expect(box.locator("[aria-live]")).to_have_text(re.compile(r"^\d+ values are drawn\.$"))
    box.locator("select").first.select_option("dense network")
    box.get_by_label("captured").check()
    expect(box.locator("[aria-live]")).to_contain_text("Nothing was measured so")


def test_the_search_finds_pages(page: Page) -> None:
    page.goto(f"{(SITE / 'search.html').as_uri()}?q=bucket", wait_until="load")
    expect(page.locator("#search-results li").first).to_be_visible()
    found = page.locator("#search-results li a")
    assert found.count() > 1 and all(
        ".html" in (one.get_attribute("href") or "") for one in found.all()
    )
    page.goto(f"{(SITE / 'search.html').as_uri()}?q=zzznothing", wait_until="load")
    expect(page.locator("#search-results li")).to_have_count(0)


@TODAY
def test_a_question_opens_at_its_section(page: Page, one: dict[str, Any]) -> None:
    """The words of its thread stand there to be read, and not only in a notebook's source."""
    place, _, anchor = one["section"].partition("#")
    opened(page, SITE / f"{place}.html", f"#{anchor}")
    section = page.locator(f"section[id='{anchor}']")
    expect(section.locator(":is(h1, h2, h3, h4)").first).to_be_in_viewport()
    text = section.inner_text().lower()
    assert not [word for word in one["words"] if word.lower() not in text]


def test_no_page_says_what_the_glossary_does_not() -> None:
    """But for the documents' own sentences and titles, what cells of tables quote, and the
    glossary.
    """
    quoted = [one.sentence for one in all_claims()]
    found = []
    for path in SITE.glob("*.html"):
        if path.stem in ("claims", "glossary", "genindex", "search"):
            continue
        left_out = r"<(script|style|pre|code|table|cite|em)\b.*?</\1>"
        whole = re.sub(left_out, " ", path.read_text(), flags=re.DOTALL)
        text = html.unescape(re.sub(r"<[^>]+>", " ", whole))
        for sentence in quoted:
            text = text.replace(sentence, " ")
        found += [f"{path.stem}: {one}" for one in said(text)]
    assert found == []
