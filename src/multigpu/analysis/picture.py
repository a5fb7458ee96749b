"""A figure with its words: title, caption, alternative text and the data behind it; saved as SVG and CSV, shown as HTML."""

import base64
import io
import re
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from multigpu import paths
from multigpu.analysis.show import Shown, explorer_link
from multigpu.analysis.style import INK

RC: Any = mpl.rc_params_from_file(Path(__file__).with_name("figures.mplstyle"), use_default_template=False)
"""Matplotlib's settings for every figure of the study."""

FONTS = "system-ui, 'DejaVu Sans', Verdana, sans-serif"
SWITCH = """<style>
#{0}-narrow-drawing{{display:none}}
@container (width < {1}px) {{#{0}-drawing{{display:none}} #{0}-narrow-drawing{{display:block}}}}
</style>
"""
STANDALONE = "svg{color:#222;background:none}@media (prefers-color-scheme:dark){svg{color:#ddd}}"
DIGITS = "%.6g"
"""Of figures in a CSV: the last digits of a float differ between processors, and a file that is committed should not."""


class Picture(Figure):
    """A matplotlib Figure that knows its words and data.
    finding: the title, a sentence computed from the data, or "" where they do not support one. caption: what is drawn, of how many repeats,
    which machine. data: what was drawn, a row a mark. narrow: the same drawn for a telephone. name: of its files, where it is saved.
    link: where its points stand in the explorer, as its query ("model=resnet50").
    """

    finding = caption = name = link = ""

    def __init__(self, width_in: float, height_in: float, **more: Any) -> None:
        super().__init__(figsize=(width_in, height_in), **more)
        FigureCanvasSVG(self)
        self.data = pd.DataFrame()
        self.narrow: Picture | None = None

    def saved(self) -> Shown:
        """What a page shows of it; its SVG and CSV are written where it has a name (`save`)."""
        return save(self, self.name) if self.name else shown(self, "figure")

    def _repr_html_(self) -> str:
        return shown(self, "figure").html


_GEOMETRY = re.compile(r'\b(?:d|x|y|points|transform)="[^"]*"')
_LONG = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
"""Coordinates keep two decimals: a hundredth of a point is not seen, and further digits differ between processors."""


def svg_text(figure: Picture, name: str) -> str:
    """The figure as SVG: equal figures are equal text; ink is `currentColor`; every id begins with `name`; no blank line."""
    buffer = io.StringIO()
    with mpl.rc_context(RC):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace("'DejaVu Sans'", FONTS)
    for number, hashed in enumerate(re.findall(r'\bid="([hmp][0-9a-f]{10})"', text)):  # of digits that differ between processors
        text = text.replace(hashed, f"{hashed[0]}{number}")
    text = text.replace("*{stroke", f"#{name}-figure_1 *{{stroke")
    for pattern in (r'\bid="', r"url\(#", r'href="#'):
        text = re.sub(pattern, lambda found: found.group(0) + name + "-", text)
    text = _GEOMETRY.sub(lambda found: _LONG.sub(lambda digits: f"{round(float(digits[0]), 2) + 0:g}", found[0]), text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def csv_link(data: pd.DataFrame, name: str) -> str:
    """A link to the data as a CSV of this name; the CSV is in the link itself, so that no request leaves the page."""
    encoded = base64.b64encode(data.to_csv(index=False, float_format=DIGITS).encode()).decode()
    return f' <a href="data:text/csv;base64,{encoded}" download="{escape(name)}.csv">Data (CSV)</a>'


def shown(figure: Picture, name: str) -> Shown:
    """The figure as one self-contained HTML element: SVG, which takes the page's colour, caption, its data and Records one click away.
    Where its column has less room than it needs, its narrow drawing stands in its place.
    """
    more = csv_link(figure.data, name) if len(figure.data) else ""
    drawings = _inline(figure, name)
    if figure.narrow:
        drawings += _inline(figure.narrow, f"{name}-narrow") + SWITCH.format(escape(name), round(72 * figure.get_figwidth()))
    return Shown(
        f'<figure class="picture" id="{escape(name)}" style="margin:1.2rem 0">\n<div style="overflow-x:auto;container-type:inline-size">\n'
        f"{drawings}</div>\n<figcaption>{escape(figure.caption)}{more}{explorer_link(figure.link, 'Records')}</figcaption>\n</figure>\n"
    )


def _inline(figure: Picture, name: str) -> str:
    """The figure as an SVG that stands in a page, at least as wide as it was drawn."""
    head, end, inside = svg_text(figure, name).partition(">")
    head = re.sub(r' (?:width|height)="[^"]*"', "", head).removeprefix("<svg")
    width = 72 * figure.get_figwidth()
    style = f"width:100%;min-width:{round(width)}px;max-width:{round(width * 1.4)}px;height:auto;background:none;filter:none"
    words = f'id="{escape(name)}-drawing" role="img" aria-label="{escape(figure.finding)}"'
    return f'<svg {words} style="{style}"{head}{end}{inside.rstrip()}\n'


def save(figure: Picture, name: str, folder: Path | None = None) -> Shown:
    """Write `<folder>/<name>.svg` and `.csv` and return what a page shows of them. ValueError: no file name, or it cannot be written."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name):
        raise ValueError(f"{name!r} is no name for a figure: use letters, digits, '-', '_' and '.', a letter first")
    folder = folder or paths.figures()
    svg = svg_text(figure, name)
    end = svg.index(">") + 1
    about = f"<title>{escape(figure.finding or name)}</title>\n<style>{STANDALONE}</style>"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.svg").write_text(f"{svg[:end]}\n{about}{svg[end:]}", encoding="utf-8")
        figure.data.to_csv(folder / f"{name}.csv", index=False, float_format=DIGITS)
    except OSError as error:
        raise ValueError(f"the figure {name!r} cannot be written to {folder}: {error.strerror or error}") from None
    return shown(figure, name)
