"""A figure with its words: title, caption, alternative text and the data behind it; saved as SVG and CSV, shown as HTML."""

from __future__ import annotations

import base64
import io
import re
import textwrap
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from multigpu import paths
from multigpu.analysis.show import EXPLORER, Shown
from multigpu.analysis.style import INK

RC: Any = mpl.rc_params_from_file(Path(__file__).with_name("figures.mplstyle"), use_default_template=False)
"""Matplotlib's settings for every figure of the study."""

FONTS = "system-ui, 'DejaVu Sans', Verdana, sans-serif"
STANDALONE = "svg{color:#222;background:none}@media (prefers-color-scheme:dark){svg{color:#ddd}}"
DIGITS = "%.6g"
"""Of figures in a CSV: the last digits of a float differ between processors, and a file that is committed should not."""
LEAST_SHARE = 1.0
"""Of its own width: where a page is narrower a figure scrolls in its own box, so that its letters keep nine pixels."""


class Picture(Figure):
    """A matplotlib Figure that knows its words and data.

    finding: the title, a sentence computed from the data, or "" where they do not support one.
    caption: what is drawn, of how many repeats, how intervals were made, which scaling, which machine.
    alt: the figure in words.  data: what was drawn, a row a mark.
    name: of its files, where it is saved. link: where its points stand in the explorer, as its query ("model=resnet50").
    """

    def __init__(self, width_in: float, height_in: float, **more: Any) -> None:
        super().__init__(figsize=(width_in, height_in), **more)
        FigureCanvasSVG(self)
        self.finding = ""
        self.caption = ""
        self.alt = ""
        self.data = pd.DataFrame()
        self.name = self.link = ""

    def saved(self) -> Shown:
        """What a page shows of it; its SVG and CSV are written where it has a name (`save`)."""
        return save(self, self.name, link=self.link) if self.name else shown(self, "figure")

    def head(self, finding: str | None) -> None:
        """Write the finding along the top."""
        self.finding = finding[:1].upper() + finding[1:] if finding else ""
        width, height = self.get_size_inches()
        text = "\n".join(_wrapped(self.finding, width))
        self.text(0.1 / width, 1 - 0.08 / height, text, va="top", ha="left", fontsize=11, fontweight="bold", linespacing=1.25)

    def _repr_html_(self) -> str:
        return shown(self, "figure").html


def _wrapped(finding: str, width_in: float) -> list[str]:
    return textwrap.wrap(finding, int(width_in * 9.8))


def head_height(finding: str | None, width_in: float) -> float:
    """Inches that the finding takes along the top of a picture."""
    return 0.16 + 0.2 * len(_wrapped(finding, width_in)) if finding else 0.1


_GEOMETRY = re.compile(r'\b(?:d|x|y|points|transform)="[^"]*"')
_LONG = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
"""Coordinates keep two decimals: a hundredth of a point is not seen, and further digits differ between processors."""


def svg_text(figure: Figure, name: str) -> str:
    """The figure as SVG: equal figures are equal text; ink is `currentColor`; every id begins with `name`; no blank line."""
    buffer = io.StringIO()
    with mpl.rc_context(RC):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace(INK, "currentColor").replace("'DejaVu Sans'", FONTS)
    text = text.replace("*{stroke", f"#{name}-figure_1 *{{stroke")
    for pattern in (r'\bid="', r"url\(#", r'href="#'):
        text = re.sub(pattern, lambda found: found.group(0) + name + "-", text)
    text = _GEOMETRY.sub(lambda found: _LONG.sub(lambda digits: f"{round(float(digits[0]), 2) + 0:g}", found[0]), text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def shown(figure: Figure, name: str, data: pd.DataFrame | None = None, link: str = "") -> Shown:
    """The figure as one self-contained HTML element: SVG with alternative text, caption, and its data one click away.

    The SVG stands in the page, so that its text takes the page's colour; the CSV is in the link itself. The link works from a
    file path and no request leaves the page.
    """
    finding, caption, alt = (str(getattr(figure, part, "")) for part in ("finding", "caption", "alt"))
    svg = svg_text(figure, name)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    width = float(size.group(1)) if size else 640.0
    least = round(width * LEAST_SHARE)
    style = f"width:100%;min-width:{least}px;max-width:{round(width * 1.4)}px;height:auto;background:none;filter:none"
    opening = f'<svg role="img" aria-label="{escape(alt or finding)}" style="{style}"'
    svg = re.sub(r'^<svg (?:width|height)="[^"]*"', "<svg", svg)
    svg = re.sub(r'^(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", re.sub(r'^(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", svg))
    svg = opening + svg.removeprefix("<svg")
    more = f' <a href="{EXPLORER}#{escape(link)}">Records</a>' if link else ""
    if data is not None and len(data):
        encoded = base64.b64encode(data.to_csv(index=False, float_format=DIGITS).encode()).decode()
        more = f' <a href="data:text/csv;base64,{encoded}" download="{escape(name)}.csv">Data (CSV)</a>{more}'
    return Shown(
        f'<figure class="picture" id="{escape(name)}" style="margin:1.2rem 0">\n'
        f'<div style="overflow-x:auto">\n{svg.strip()}\n</div>\n'
        f"<figcaption>{escape(caption)}{more}</figcaption>\n</figure>\n"
    )


def save(figure: Figure, name: str, data: pd.DataFrame | None = None, folder: Path | None = None, link: str = "") -> Shown:
    """Write `<folder>/<name>.svg` and `<folder>/<name>.csv` and return what a page shows of them.

    Args:
        data: what stands behind the figure; by default what the figure itself says it drew.
        link: where its points stand in the explorer, as its query ("model=resnet50").
        folder: as `paths.figures` says unless given.

    Raises:
        ValueError: the name is no plain file name, or the folder cannot be written; one sentence says which.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name):
        raise ValueError(f"{name!r} is no name for a figure: use letters, digits, '-', '_' and '.', a letter first")
    folder = folder or paths.figures()
    data = getattr(figure, "data", pd.DataFrame()) if data is None else data
    svg = svg_text(figure, name)
    end = svg.index(">") + 1
    about = f"<title>{escape(str(getattr(figure, 'alt', '') or name))}</title>\n<style>{STANDALONE}</style>"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.svg").write_text(f"{svg[:end]}\n{about}{svg[end:]}", encoding="utf-8")
        data.to_csv(folder / f"{name}.csv", index=False, float_format=DIGITS)
    except OSError as error:
        raise ValueError(f"the figure {name!r} cannot be written to {folder}: {error.strerror or error}") from None
    return shown(figure, name, data, link)
