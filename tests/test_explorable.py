"""A chart that a reader moves: whole in the page, with its data, and nothing fetched."""

from __future__ import annotations

import base64
import json
import re

import altair as alt
import pandas as pd
import pytest

from multigpu.explorer import explorable

DATA = pd.DataFrame({"x": [1, 2, 3], "y": [0.5, 0.25, 1 / 3], "name": ["a", "b", "</script>"]})


def test_everything_is_in_the_page() -> None:
    chosen = alt.param(name="K", value=1, bind=alt.binding_range(min=1, max=3, step=1))
    html = explorable(alt.Chart(DATA).mark_bar().encode(x="x", y="y").add_params(chosen), "bars", "A < B", "n = 1", DATA).html
    spec, options = (json.loads(text) for text in re.search(r'vegaEmbed\("#bars-chart", (\{.*\}), (\{[^{}]*\})\)', html).groups())  # type: ignore[union-attr]
    assert [row["y"] for row in next(iter(spec["datasets"].values()))] == DATA["y"].tolist() and options["actions"] is False
    assert spec["params"][0]["bind"]["max"] == 3 and 'id="bars-chart"' in html and "A &lt; B" in html
    outside = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"<(script|link|img)", outside) and "import(" not in html, "nothing is fetched"
    assert html.count("<script>") == html.count("</script>") == 1, "data cannot end the script"
    csv = base64.b64decode(re.search(r"base64,([^\"]*)", html)[1]).decode()  # type: ignore[index]
    assert csv.splitlines()[0] == "x,y,name" and len(csv.splitlines()) == 4


def test_a_name_that_is_no_id_is_refused() -> None:
    with pytest.raises(ValueError, match="'a b' is no name for a chart"):
        explorable(alt.Chart(DATA).mark_bar(), "a b", "", "", DATA)
