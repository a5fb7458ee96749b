"""A figure with its words, saved as SVG and CSV and shown as HTML; and what plots share: panels,
colours by name, axes, a key below.
"""

import base64
import io
import re
import textwrap
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import AutoLocator

from multigpu import paths
from multigpu.analysis.estimate import WRITTEN, keys_in
from multigpu.analysis.points import Missing
from multigpu.analysis.show import Shown, explorer_link, of_machines
from multigpu.analysis.style import INK, label
from multigpu.analysis.words import missing

RC: Any = mpl.rc_params_from_file(
    Path(__file__).with_name("figures.mplstyle"), use_default_template=False
)
"""Matplotlib's settings for every figure of the study."""

FONTS = "system-ui, 'DejaVu Sans', Verdana, sans-serif"
SWITCH = """<style>
#{0}-narrow-drawing{{display:none}}
@container (width < {1}px) {{#{0}-drawing{{display:none}} #{0}-narrow-drawing{{display:block}}}}
</style>
"""
STANDALONE = "svg{color:#222;background:none}@media (prefers-color-scheme:dark){svg{color:#ddd}}"
DIGITS = "%.6g"
"""Of figures in a CSV: the last digits of floats differ between processors, files should not."""


class Picture(Figure):
    """A matplotlib Figure that knows its words and data.
    finding: the title, a sentence computed from the data, or "" where they do not support one.
        caption: what is drawn, of how many repeats, which machine. data: what was drawn, a row a
        mark. narrow: the same drawn for a telephone. name: of its files, where it is saved.
    link: where its points stand in the explorer, as its query ("model=resnet50").
    hovers: id of something drawn (matplotlib's gid) -> what is said when the pointer rests on it,
        or, where it has a URL, when it is focused. told: columns of data that `alt` reads out.
    """

    finding = caption = name = link = ""

    def __init__(self, width_in: float, height_in: float, **more: Any) -> None:
        super().__init__(figsize=(width_in, height_in), **more)
        FigureCanvasSVG(self)
        self.data = pd.DataFrame()
        self.narrow: Picture | None = None
        self.hovers: dict[str, str] = {}
        self.told: list[str] = []

    @property
    def alt(self) -> str:
        """The finding and what was drawn, as who cannot see it hears it."""
        rows = [
            " ".join(_told(row[name]) for name in self.told if not missing(row[name]))
            for _, row in self.data.head(READ_OUT).iterrows()
        ]
        left = len(self.data) - len(rows)
        more = [f"and {left} more in the data below"] if left else []
        return ": ".join(filter(None, [self.finding.rstrip("."), "; ".join([*rows, *more])]))

    def saved(self) -> Shown:
        """Save a figure and return how a page shows it; its SVG and CSV are written where it has a
        name (`save`).
        """
        return save(self, self.name) if self.name else shown(self, "figure")

    def _repr_html_(self) -> str:
        return shown(self, "figure").html


READ_OUT = 12
"""Rows of a figure's data that its alternative text holds."""


def _told(value: Any) -> str:
    """A value of a figure's data in an alternative text."""
    return f"{value:.3g}" if isinstance(value, float) else label(str(value))


_LINKED = re.compile(
    r'(<title>([^<]*)</title>(?:(?!</g>).)*<a )(xlink:href="[^"]*") target="_blank"', re.DOTALL
)
"""What can be pointed at and leads somewhere: its title is the name of its link, too."""

_GEOMETRY = re.compile(r'\b(?:d|x|y|points|transform)="[^"]*"')
_LONG = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
"""Coordinates keep two decimals: further ones are not seen and differ between processors."""


def svg_text(figure: Picture, name: str) -> str:
    """The figure as SVG: equal figures are equal text; ink is `currentColor`; every id begins with
    `name`; no blank line.
    """
    buffer = io.StringIO()
    with mpl.rc_context(RC):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace("'DejaVu Sans'", FONTS)
    # of digits that differ between processors
    for number, hashed in enumerate(re.findall(r'\bid="([hmp][0-9a-f]{10})"', text)):
        text = text.replace(hashed, f"{hashed[0]}{number}")
    text = text.replace("*{stroke", f"#{name}-figure_1 *{{stroke")
    for part, said in figure.hovers.items():
        text = text.replace(f'<g id="{part}">', f'<g id="{part}"><title>{escape(said)}</title>')
    text = _LINKED.sub(r'\1aria-label="\2" \3', text)
    for pattern in (r'\bid="', r"url\(#", r'href="#'):
        text = re.sub(pattern, lambda found: found.group(0) + name + "-", text)
    text = _GEOMETRY.sub(
        lambda found: _LONG.sub(lambda digits: f"{round(float(digits[0]), 2) + 0:g}", found[0]),
        text,
    )
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def csv_link(data: pd.DataFrame, name: str) -> str:
    """A link to the data as a CSV of this name; the CSV is in the link itself, so that no request
    leaves the page.
    """
    encoded = base64.b64encode(data.to_csv(index=False, float_format=DIGITS).encode()).decode()
    return f' <a href="data:text/csv;base64,{encoded}" download="{escape(name)}.csv">Data (CSV)</a>'


def shown(figure: Picture, name: str, svg: str = "") -> Shown:
    """Show a figure as one HTML element; a narrow column shows its narrow drawing.
    svg: the wide one, where it is drawn already.
    """
    more = csv_link(figure.data, name) if len(figure.data) else ""
    more += explorer_link(figure.link, "Records")
    drawings = _inline(figure, name, svg)
    if figure.narrow:
        drawings += _inline(figure.narrow, f"{name}-narrow") + SWITCH.format(
            escape(name), round(72 * figure.get_figwidth())
        )
    return Shown(
        f'<figure class="picture" id="{escape(name)}" style="margin:1.2rem 0">\n<div'
        ' style="overflow-x:auto;container-type:inline-size">\n'
        f"{drawings}</div>\n"
        f"<figcaption>{escape(figure.caption)}{more}</figcaption>\n</figure>\n",
        f"Figure: {figure.finding or name}. {figure.caption}",
    )


def _inline(figure: Picture, name: str, svg: str = "") -> str:
    """The figure as an SVG that stands in a page, at least as wide as it was drawn."""
    head, end, inside = (svg or svg_text(figure, name)).partition(">")
    head = re.sub(r' (?:width|height)="[^"]*"', "", head).removeprefix("<svg")
    width = 72 * figure.get_figwidth()
    style = (
        f"width:100%;min-width:{round(width)}px;max-width:{round(width * 1.4)}px;"
        "height:auto;background:none;filter:none"
    )
    # what is an image has no links inside
    role = "group" if "<a " in inside else "img"
    words = f'id="{escape(name)}-drawing" role="{role}" aria-label="{escape(figure.alt)}"'
    return f'<svg {words} style="{style}"{head}{end}{inside.rstrip()}\n'


def save(figure: Picture, name: str, folder: Path | None = None) -> Shown:
    """Write `<folder>/<name>.svg` and `.csv` and return what a page shows of them. ValueError: no
    file name, or it cannot be written.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name):
        raise ValueError(
            f"{name!r} is no name for a figure: use letters, digits, '-', '_' and '.', a letter"
            " first"
        )
    folder = folder or paths.figures()
    svg = svg_text(figure, name)
    end = svg.index(">") + 1
    about = f"<title>{escape(figure.finding or name)}</title>\n<style>{STANDALONE}</style>"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.svg").write_text(f"{svg[:end]}\n{about}{svg[end:]}", encoding="utf-8")
        figure.data.to_csv(folder / f"{name}.csv", index=False, float_format=DIGITS)
    except OSError as error:
        raise ValueError(
            f"the figure {name!r} cannot be written to {folder}: {error.strerror or error}"
        ) from None
    return shown(figure, name, svg)


WIDTH_IN, NARROW_IN = 6.4, 4.5
"""Of every figure, and of its drawing for telephones: an inch is 72 px there, so letters of 9
points are at least 9 px high on both.
"""
NAME, LINE_IN = 22, 0.16
"""Letters of a name down the side of a narrow axis, and the height of each further line of it."""


def drawn(
    rows: pd.DataFrame,
    draw: Callable[[Axes, pd.DataFrame], None],
    columns_shown: Sequence[str | None],
    title: str,
    caption: str,
    panel: str | None,
    height_in: tuple[float, float],
    columns: int,
    key: Sequence[Any],
    names: str = "",
    file: str = "",
    link: str = "",
) -> Picture:
    """The picture with its title, an axis a panel, the key below, its words, and the data of the
    columns shown.
    height_in: of an axis, and more for each of its names. names: the column of names down the side
        of each axis, which then share what is below them; without, what is beside them. columns: of
        axes at most; 1: each axis has a scale of its own.
    """
    if rows.empty:
        raise Missing("no row to draw")
    groups = (
        [("", rows)]
        if panel is None
        else [(str(name), group) for name, group in rows.groupby(panel, sort=False, observed=True)]
    )
    told = [
        [label(str(one)) for one in dict.fromkeys(group[names])] if names else []
        for _, group in groups
    ]
    columns = min(len(groups), 2 if columns == 3 and len(groups) not in (3, 6) else columns)
    lowest = (height_in[0] if names or len(groups) < 3 else 2.4) + (0.2 if names and panel else 0)
    longest = max((len(str(handle.get_label())) for handle in key), default=0)
    finding = title[:1].upper() + title[1:]

    def at(width_in: float, abreast: int) -> Picture:
        narrow = width_in < WIDTH_IN
        if narrow:
            lines = max((len(textwrap.wrap(name, NAME)) for own in told for name in own), default=1)
        else:
            lines = 1
        height = lowest + max(height_in[1], LINE_IN * lines) * max(map(len, told))
        keys_a_row = max(1, min(len(key), int(13.125 * width_in) // (longest + 8)))
        head = textwrap.wrap(finding, int(width_in * 9.8))
        rows_of_axes, top = -(-len(groups) // abreast), 0.28 + 0.2 * len(head) if head else 0.22
        whole = rows_of_axes * height + top + 0.19 * -(-len(key) // keys_a_row)
        picture = Picture(width_in, whole)
        heading: dict[str, Any] = {"fontsize": 11, "fontweight": "bold", "linespacing": 1.25}
        picture.text(0.1 / width_in, 1 - 0.08 / whole, "\n".join(head), va="top", **heading)
        beside: Any = "row" if all(own == told[0] for own in told) else False
        grid = picture.subplots(
            rows_of_axes, abreast, squeeze=False, sharex=bool(names) and columns > 1, sharey=beside
        ).ravel()
        for number, (ax, (name, group)) in enumerate(zip(grid, groups, strict=False)):
            if narrow and not names and number % columns:
                ax.sharey(grid[number - number % columns])
            draw(ax, group)
            ax.set_title(name)
            if narrow:
                _broken(ax, bool(names))
                if names and columns > 1 and number < len(groups) - 1:
                    ax.set_xlabel("")  # its figures stand below the last axis alone
        for unused in grid[len(groups) :]:
            unused.remove()
        # last, for seaborn draws all anew where it looks whether words overlap
        picture.set_layout_engine(ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - top / whole)))
        if key:
            picture.legend(handles=key, loc="outside lower center", ncols=keys_a_row)
        return picture

    with mpl.rc_context(RC):
        picture, narrow = at(WIDTH_IN, columns), at(NARROW_IN, 1)
    WRITTEN.update(keys_in(rows))
    wanted = [f"{name}{end}" for name in columns_shown if name for end in ("", "_low", "_high")]
    picture.data = rows[
        [
            name
            for name in dict.fromkeys([*wanted, "n", "launches", "machine", "keys", "base_keys"])
            if name in rows
        ]
    ]
    for one in (picture, narrow):
        one.finding, one.caption, one.data = finding, caption, picture.data
        one.told = [name for name in dict.fromkeys(filter(None, columns_shown)) if name in rows]
    picture.name, picture.link, picture.narrow = file, of_machines(link, rows), narrow
    return picture


def _broken(ax: Axes, named: bool) -> None:
    """Break the words of a narrow axis into lines: names down its side, what stands below and
    above.
    """
    width = 32 if named else 46
    ax.set(
        xlabel=textwrap.fill(ax.get_xlabel(), width),
        title=textwrap.fill(ax.get_title("left"), width),
    )
    if isinstance(ax.xaxis.get_major_locator(), AutoLocator):
        ax.locator_params(axis="x", nbins=4)  # more would write over each other
    if named:
        ax.set_yticks(
            ax.get_yticks(), [textwrap.fill(tick.get_text(), NAME) for tick in ax.get_yticklabels()]
        )
