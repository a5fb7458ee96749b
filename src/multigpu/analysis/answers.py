"""What `explain` and `advise` answer, for a notebook: sentences, figures and tables; the text of
the commands is what papermill logs.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from zlib import crc32

import pandas as pd

from multigpu.analysis.advise import Advice, rankings
from multigpu.analysis.advise_text import advised
from multigpu.analysis.advise_text import sentences as advice
from multigpu.analysis.explain import WAITS, Explanation, explain_words
from multigpu.analysis.explain_text import NAMES, PART_NAMES, changes, explained, sentences
from multigpu.analysis.parts import shown_parts
from multigpu.analysis.picture import shown
from multigpu.analysis.plots import dots
from multigpu.analysis.read import Study
from multigpu.analysis.show import Shown, table
from multigpu.analysis.words import job_words, repeats_words, way_words


def _paragraphs(texts: Sequence[str]) -> str:
    """Sentences as HTML, a line of a terminal that is no table kept as it is."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts if text)


def explanation(study: Study, words: Sequence[str], machine: str | None = None) -> Shown:
    """Answer `explain` of a key, or of fields, for a notebook."""
    told = explained(study, words, machine, details=True)
    found, _, _ = explain_words(study, words, machine)
    html = "".join(map(_explained, found))
    return Shown(html or f"<pre>{escape(told)}</pre>", told)


def _explained(one: Explanation) -> str:
    """One point: the answer, where its step goes, what it stands beside and what is faster."""
    row = one.row
    measured = f"{way_words(row)}; {job_words(row)}; {repeats_words(row)} on {row['machine']}"
    html = [_paragraphs(sentences(one)), f'<p class="muted">{escape(measured)}</p>']
    if one.parts is not None:
        named = {PART_NAMES[name]: one.parts[name] for name in ("compute", *WAITS)}
        html.append(shown_parts({"One step by part": named}).html)
    beside = [
        base.to_frame().T.assign(what=NAMES[name], way=way_words(base))
        for name, base in one.baselines.items()
        if base["keys"] != row["keys"]
    ]
    if beside:
        columns = "beside = what | its way = way | its rate = rate:rate"
        ratio = "this point is = ratio:times interval | n"
        html.append(table(pd.concat(beside), f"{columns} | {ratio}").html)
    if len(one.faster):
        faster = one.faster.assign(
            change=[changes(row, other) for _, other in one.faster.iterrows()]
        )
        columns = "measured to be faster = change | times its rate = ratio:times interval | n"
        html.append(table(faster, columns).html)
    return "\n".join(html)


def advising(study: Study, fields: Mapping[str, Any], machine: str | None = None) -> Shown:
    """Answer `advise` of a job for a notebook."""
    told = advised(study, fields, machine)
    found, _ = rankings(study.everywhere, fields, machine)
    html = "".join(_ranked(one) for one in found if len(one.ranked))
    return Shown(html or f"<pre>{escape(told)}</pre>", told)


def _ranked(one: Advice) -> str:
    """One job's ranking: the advice, a figure and a table."""
    first = one.ranked.iloc[0]
    rows = one.ranked.assign(
        way=[way_words(row) for _, row in one.ranked.iterrows()],
        standing=one.ranked["standing"].replace("slower", ""),
    )
    title = f"{job_words(first)}, measured on {first['machine']}"
    caption = (
        "Rate of each way that was measured; 95% intervals, hollow where there is a single run."
    )
    picture = dots(rows.head(12), "rate", "way", title, caption, hue="placement", form="rate")
    columns = "way | rate | of best = of_best:percent | n | peak_memory_gib | stands = standing"
    failed = [
        f"Not measured: {way_words(row)}: {row['reason']}." for _, row in one.failed.iterrows()
    ]
    return "\n".join(
        [
            _paragraphs(advice(one)),
            shown(picture, f"advice-{crc32(title.encode())}").html,
            table(rows, columns).html,
            _paragraphs(failed),
        ]
    )
