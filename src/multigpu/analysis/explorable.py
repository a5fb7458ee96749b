"""A chart that its reader moves: altair's Vega, with the program that draws it in the page itself, so that nothing is fetched."""

from __future__ import annotations

import base64
import json
import re
from html import escape
from typing import Any

import altair as alt
import pandas as pd

from multigpu.analysis.picture import DIGITS, Shown

LOOK: dict[str, Any] = {
    "background": None,
    "font": "inherit",
    "view": {"stroke": None},
    "axis": {"labelColor": "currentColor", "titleColor": "currentColor", "gridOpacity": 0.3, "domain": False, "tickColor": "currentColor"},
    "title": {"color": "currentColor", "anchor": "start", "fontSize": 12},
    "legend": {"labelColor": "currentColor", "titleColor": "currentColor"},
}
"""Colours of the page around it, in light and dark."""


def explorable(chart: alt.TopLevelMixin, name: str, finding: str, caption: str, data: pd.DataFrame) -> Shown:
    """The chart as one HTML element: its title, controls and drawing, a caption, and its data one click away.

    Args:
        name: of its element, and of the CSV. finding: the title. data: what it was made from.

    Raises:
        ValueError: the name is no plain one.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", name):
        raise ValueError(f"{name!r} is no name for a chart: use letters, digits and '-', a letter first")
    page = chart.to_html(inline=True)
    program = re.findall(r'<script type="text/javascript">(.*?)</script>', page, re.DOTALL)[0]
    spec = chart.to_dict()
    spec["config"] = LOOK
    spec["usermeta"] = {"embedOptions": {"actions": False}}
    # in a function of its own: the program's names are as short as those of other scripts of the page
    options = {"actions": False, "renderer": "svg", "mode": "vega-lite"}
    csv = base64.b64encode(data.to_csv(index=False, float_format=DIGITS).encode()).decode()
    drawn = json.dumps(spec).replace("</", "<\\/")
    return Shown(
        f'<figure class="picture" id="{name}" style="margin:1.2rem 0">\n<p class="table-title">{escape(finding)}</p>\n'
        f'<div style="overflow-x:auto"><div id="{name}-chart" role="img" aria-label="{escape(finding)}"></div></div>\n'
        f"<script>(() => {{{program}}})();\n"
        f'vegaEmbed("#{name}-chart", {drawn}, {json.dumps(options)}).catch(console.error);</script>\n'
        f'<figcaption>{escape(caption)} <a href="data:text/csv;base64,{csv}" download="{name}.csv">Data (CSV)</a></figcaption>\n</figure>\n'
    )
