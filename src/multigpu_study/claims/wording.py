"""Figures as a reader meets them, "at 8 GPUs 0.31x (95% 0.30-0.33), n = 5 over 2 launches", and
results on a terminal.
"""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from multigpu.analysis.style import look
from multigpu.analysis.words import FRAMEWORKS, MODELS, OF_A_JOB, SAYS, USUAL, field_words, joined
from multigpu.spec.tables import table
from multigpu_study.analysis.columns import columns
from multigpu_study.claims.core import (
    HERE,
    KINDS,
    OPEN,
    VERDICTS,
    Contrast,
    Predicate,
    Selection,
    Verdict,
    data_of,
)
from multigpu_study.claims.ledger import orders
from multigpu_study.claims.results import ClaimResult, Setting, models_of

BEST_KNOWN = tuple(columns("best_known"))


def _value(name: str, value: object) -> str:
    """Say a field's value, with its name where the value alone would not tell."""
    if value is None:
        return f"no {name.removesuffix('_s').replace('_', ' ')}"
    text = str(value).replace("_", " ")
    if isinstance(value, str) and " / " in value:
        return " / ".join(_value(name, part) for part in value.split(" / "))
    if name == "placement":
        label, _, how = look(str(value)).label.partition(", ")  # a comma would end it in a list
        return f"{label} ({how})" if how else label
    if name in ("inputs", "workload"):
        return str(SAYINGS[name].get(value, text))
    if name in SAYINGS["forms"]:
        return str(SAYINGS["forms"][name].format(value))
    if name in SAYS or name in OF_A_JOB:
        return field_words(name, value) or USUAL.get(str(value), text)
    return f"{name.replace('_', ' ')} {value}" if text[0].isdigit() else text


LISTED = 3
"""Settings that are written out one by one; of more, the range is given."""


def of_models(settings: Sequence[Setting]) -> str:
    """Name these settings' models, " of ResNet-50 v1.5 and VGG-16", or count them; "" of none."""
    if not (models := sorted(models_of(setting.fields for setting in settings) - {"None", ""})):
        return ""
    if len(models) <= LISTED:
        return f" of {joined([MODELS.get(model, model) for model in models])}"
    return f" of {len(models)} models"


def settings_named(
    shown: Sequence[Setting], every: Sequence[Setting], told: Sequence[str], by_count: bool
) -> list[str]:
    """The fewest fields, best known first, that tell every shown setting from all that were found,
    in words; `told` are among them.
    """
    alike = [
        (setting, other)
        for setting in shown
        for other in every
        if other is not setting and not (by_count and setting.devices != other.devices)
    ]
    telling: list[str] = []
    for name in dict.fromkeys(
        [*BEST_KNOWN, *(name for setting in every for name in setting.fields)]
    ):
        left = [
            (setting, other)
            for setting, other in alike
            if setting.fields.get(name) == other.fields.get(name)
        ]
        if len(left) < len(alike) or name in told:
            alike, telling = left, [*telling, name]
    words = (
        [
            _value(name, setting.fields[name])
            for name in telling
            if setting.fields.get(name) is not None
        ]
        for setting in shown
    )
    return [", ".join(filter(None, parts)) for parts in words]


def number(value: float, contrast: Contrast, bare: bool = False, decimals: int = 2) -> str:
    """A value in the contrast's unit: a ratio, a share in percent, or a quantity."""
    if contrast.unit == "%":
        return f"{100 * value:.{max(decimals - 2, 1)}f}" + ("" if bare else "%")
    if bare or not contrast.unit:
        suffix = ""
    elif contrast.unit == "x":
        suffix = contrast.unit
    else:
        suffix = f" {contrast.unit}"
    if value >= 100:
        text = f"{value:,.0f}"
    elif value >= 0.1:
        text = f"{value:.{decimals}f}"
    else:
        text = f"{value:.2g}"
    return text + suffix


SAYINGS = data_of(HERE / "words.yaml")
SAID = {row["verdict"]: row for row in table(HERE / "verdicts.csv")}
"""Each verdict's sign, which reads in greyscale too, and what is said of one claim and several."""
SYMBOLS: dict[Verdict, str] = {name: SAID[name]["sign"] for name in VERDICTS}
WIDEST_TEXT = 120
"""Columns of a claim in full: longer lines are hard to read."""


def together(labels: Sequence[str]) -> str:
    """The labels of contrasts that share a figure: "time, in every setting and in one setting"."""
    heads = {label.rpartition(", ")[0] for label in labels}
    if len(labels) > 1 and len(heads) == 1 and "" not in heads:
        return f"{heads.pop()}, {joined([label.rpartition(', ')[2] for label in labels])}"
    return joined(list(labels))


def framework_title(name: str) -> str:
    """A framework, or those that a predicate joins ("torch / tensorflow"), as readers know them."""
    return joined([{**FRAMEWORKS, "numpy": "NumPy"}.get(part, part) for part in name.split(" / ")])


def stated(contrast: Contrast) -> str:
    """State a contrast's test in words: "words/s of Exp2 over Exp4 at most 0.95x"."""
    how = {"above": "at least", "below": "at most"}.get(
        contrast.direction, f"{contrast.direction} {number(1 / contrast.bound, contrast)} to"
    )
    return f"{contrast.label} {how} {number(contrast.bound, contrast)}"


def _described(selection: Selection) -> str:
    """The Runs of a selection, in words, what is best known of them first."""
    rank = {name: place for place, name in enumerate(("workload", *BEST_KNOWN))}
    ordered = sorted(selection, key=lambda pair: rank.get(pair[0], len(rank)))
    return ", ".join(
        " or ".join(_value(name, value) for value in values) for name, values in ordered
    )


def counted(predicate: Predicate, counts: Iterable[object]) -> str:
    """So many of what its `devices` count: "4 and 8 GPUs"."""
    words = sorted(map(str, counts), key=lambda text: (len(text), text))
    return f"{joined(words)} {KINDS[predicate.of]['counted'][words != ['1']]}"


def wanted(predicate: Predicate, lacking: Iterable[tuple[Selection, set[str]]]) -> str:
    """The Runs that are missing, in words: what all have in common first."""
    counts: dict[Selection, set[str]] = {}
    for select, words in lacking:
        counts.setdefault(select, set()).update(words)
    parts = "; ".join(
        f"{_described(select)} on {counted(predicate, words)}".strip()
        for select, words in counts.items()
    )
    return f"no Records of {_described(predicate.where)}{':' if any(counts) else ''} {parts}"


def titled(result: ClaimResult) -> list[str]:
    """Our figures, each with its frameworks, and with its verdict where that is another one."""
    told = {name: answer for name, answer in result.by_framework.items() if answer.figure}
    other = {
        name: "" if answer.verdict == result.verdict else f"{answer.verdict}, "
        for name, answer in told.items()
    }
    return [
        f"{framework_title(name)}: {other[name]}{answer.figure}" for name, answer in told.items()
    ]


def tested(result: ClaimResult) -> str:
    """Say predicates: what must be so, measured how if not as usual, in which scope; or ""."""
    tests = result.claim.predicates
    usual = {
        of: kind.get("usual", {}).get("protocol", Predicate.model_fields["protocol"].default)
        for of, kind in KINDS.items()
    }
    further = [
        text
        for test in tests
        for text in ("" if test.protocol == usual[test.of] else test.protocol, test.scope)
        if text
    ]
    told = "; ".join(stated(contrast) for test in tests for contrast in test.contrasts)
    return f"Test: {told}. {' '.join(further)}".strip() if told else ""


def overview(results: Sequence[ClaimResult], width: int) -> str:
    """Write a line a claim, how many have which verdict, and what is open."""
    broad, lines = max(map(len, VERDICTS)), []
    for result in results:
        said = f"{result.claim.number:4} {SYMBOLS[result.verdict]:2} {result.verdict:{broad}}"
        documents = ", ".join(result.claim.documents)
        line = f"{said}  {documents:8}  {result.claim.sentence}"
        lines.append(line if len(line) <= width else line[: max(width - 1, 0)].rstrip() + "…")
    counts = Counter(result.verdict for result in results)
    told = joined([f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]])
    open_ones = [result for result in results if result.verdict in OPEN]
    gpu_s = sum(result.claim.gpus * result.claim.seconds for result in open_ones)
    rest = f"{len(open_ones)} open ones wait for about {gpu_s:,} GPU seconds. " if open_ones else ""
    first = (open_ones or results)[0].claim.number
    return "\n".join(
        [
            *lines,
            "",
            *textwrap.wrap(
                f"{len(results)} claims: {told}. {rest}Details: claims {first}", max(width, 20)
            ),
        ]
    )


def in_full(result: ClaimResult, width: int) -> str:
    """All that is said of a claim, wrapped."""
    claim = result.claim
    parts = {
        f"Document {', '.join(claim.documents)}": claim.figure,
        "Verdict": (
            f"{SYMBOLS[result.verdict]}"
            f" {result.verdict}{f': {result.scope}' if result.scope else ''}"
        ),
        "Why": result.why,
        "Ours": "\n".join(titled(result)),
        "Test": (
            f"{tested(result)} {orders([result]).get(claim.number, '')}".removeprefix(
                "Test: "
            ).strip()
        ),
        "Repeats needed": result.needed,
        "Shown on": f"notebooks/{claim.page}.ipynb" if claim.page else "",
        "Records": (
            f"{len(result.record_keys)}: {' '.join(result.record_keys)}"
            if result.record_keys
            else ""
        ),
    }
    wrap = textwrap.TextWrapper(
        min(max(width, 20), WIDEST_TEXT),
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )
    lines = textwrap.wrap(f"{claim.number}: {claim.sentence}", wrap.width)
    for name, text in parts.items():
        if text:
            lines += [
                name,
                *(line for paragraph in text.splitlines() for line in wrap.wrap(paragraph)),
            ]
    return "\n".join(lines)
