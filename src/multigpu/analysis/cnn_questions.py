"""Document 001's own questions: which page answers each, and the answer in a few words from Records and verdicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from statistics import median

import pandas as pd

from multigpu.analysis import cnn_advice, cnn_answers, cnn_goals, cnn_practice, cnn_scaling, cnn_updates, formats, startup
from multigpu.analysis.cnn_document import at_claims_batch, cifar_points, torch_points
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.pairs import ratio_cell
from multigpu.analysis.picture import Shown
from multigpu.analysis.steady import steady
from multigpu.analysis.style import look
from multigpu.analysis.wording import describe, devices_text, joined, percent_text, plural, rate_text
from multigpu.claims import Result
from multigpu.claims.cautions import few_settings
from multigpu.claims.tables import page_title

NOT_YET = "not measured yet"
OWN_PAGE = "13-cnn-scaling"
"""The notebook that shows the table."""
UPDATES_PAGE = "24-cnn-updates"


@dataclass(frozen=True)
class Known:
    """What answers are computed from.

    ours: the page's Records, of a machine a model; measured: all machines', each row under the machine that measured it
    (`cnn_page.as_measured`); results: by a claim's number; same: of `training.same_curve_table`, or no row;
    warm: of `startup.warmup_rows`.
    """

    ours: pd.DataFrame
    measured: pd.DataFrame
    results: dict[str, Result]
    same: pd.DataFrame
    warm: pd.DataFrame

    def verdict(self, *numbers: str) -> str:
        """Of claims: "C16 does not hold, C17 and C18 are inconclusive", equal verdicts together; and of how few settings."""
        said: dict[str, list[str]] = {}
        for number in numbers:
            few = few_settings(self.results[number].why) if number in self.results else ""
            name = f"{number} (by {few})" if few else number
            said.setdefault(self.results[number].verdict if number in self.results else "not yet measured", []).append(name)
        return joined([f"{joined(own)} {_verb(verdict, len(own))}" for verdict, own in said.items()])

    def by_verdict(self, number: str, holds: str, fails: str) -> str:
        """An answer for either verdict, with the claim; of another verdict, that nothing is decided."""
        verdict = self.results[number].verdict if number in self.results else ""
        said = holds if verdict == "holds" else fails if verdict == "does not hold" else "not decided"
        return f"{said} ({self.verdict(number)})"


def _verb(verdict: str, count: int) -> str:
    """A verdict after one claim or several: "holds", "hold", "is inconclusive"."""
    several = {"holds": "hold", "does not hold": "do not hold"}
    if verdict in several:
        return verdict if count == 1 else several[verdict]
    return verdict if verdict.startswith("cannot") else f"{'is' if count == 1 else 'are'} {verdict}"


def _speedups(known: Known) -> str:
    large = at_claims_batch(known.ours)
    if large.empty:
        return known.by_verdict("C12", "yes", "not to 90% efficiency")
    most = large[large["devices"] == large["devices"].max()]
    best = most.loc[most["efficiency_low"].notna()] if most["efficiency_low"].notna().any() else most
    each = joined([f"{describe(row, ['model'])} {ratio_cell(row, 'speedup')} times" for _, row in best.iterrows()])
    on = devices_text(most["devices"].iloc[0], most["device_type"].iloc[0])
    return f"{known.by_verdict('C12', 'yes', 'not to 90% efficiency')}; {each} one GPU's rate on {on}"


def _good_models(known: Known) -> str:
    return cnn_scaling.good_models(known.ours) or NOT_YET


def _captured(known: Known) -> str:
    table = cnn_scaling.captured_pairs(known.measured)
    if table.empty:
        return NOT_YET
    return f"beside more GPUs, by a captured step: {cnn_scaling.captured_range(table)}"


def _layout(known: Known) -> str:
    table = formats.layouts(known.measured)
    exact = table[table["ratio_low"].notna() & steady(table, "ratio")] if len(table) else table
    each = [f"{describe(row, ['precision'])} {ratio_cell(row)} ({describe(row, ['model'])})" for _, row in exact.iterrows()]
    return f"NCHW over NHWC {joined(each) or NOT_YET}; {known.verdict('C16')}"


def _update(known: Known) -> str:
    rows, others = cnn_answers.ddp_rows(cnn_advice.advice(known.ours))
    if not rows:
        return known.verdict("C21", "C42", "C22")
    alone = sum(row["best"] == "ddp" and not row["rivals"] for row in rows)
    of = f"{len(rows) - len(others)} of {plural(len(rows), 'job')} with intervals"
    said = f"no update is faster than ddp in {of}, and every other is slower in {alone} of them"
    return f"{said}; {known.verdict('C21', 'C42', 'C22')}"


def _cifar(known: Known) -> str:
    own = cifar_points(scaling_table(torch_points(known.measured)), "exp2").drop_duplicates("model", keep="last")
    if own.empty:
        return f"{NOT_YET}; {known.verdict('C17')}"
    ends = " to ".join(dict.fromkeys(percent_text(value) for value in (own["efficiency"].min(), own["efficiency"].max())))
    once = int(own["efficiency_low"].isna().sum())
    often = f", {once} measured once" if once else ""
    hosts = int((~steady(own, "efficiency")).sum())
    often += f", {hosts} set by their hosts (eager)" if hosts else ""
    return (
        f"{plural(len(own), 'model keeps', 'models keep')} {ends} on 2 GPUs with variables on the CPU{often}; {known.verdict('C17', 'C18')}"
    )


def _batch(known: Known) -> str:
    said = cnn_practice.enough(known.ours)
    return f"{said}; 32 or 64: {known.verdict('C14')}" if said else known.verdict("C14")


def _warmup(known: Known) -> str:
    said = startup.warmup_length(known.warm)
    return f"in steps and seconds, by a change point in each Record's step times: {said or NOT_YET}; {known.verdict('C24')}"


def _tensorflow(known: Known) -> str:
    rows = known.ours[known.ours["framework"].eq("tensorflow") & known.ours["placement"].ne("independent")]
    table = scaling_table(rows) if len(rows) else pd.DataFrame()
    own = table[table["devices"].gt(1) & table["efficiency"].notna()] if len(table) else table
    if own.empty:
        return NOT_YET
    own = own[own["devices"] == own["devices"].max()]
    low, high = (percent_text(value) for value in (own["efficiency"].min(), own["efficiency"].max()))
    best = own.iloc[int(own["rate"].to_numpy().argmax())]
    fastest = f"{look(best['placement']).label}, {best['execution']}, {rate_text(best['rate'], unit=best['unit'])}"
    where = f"{describe(best, ['model'])} on {devices_text(best['devices'], best['device_type'])}"
    repeated = int(own["n"].gt(1).sum()) or "none"
    return f"{low} to {high} efficiency in {plural(len(own), 'way')} of {where}, {repeated} of them repeated; fastest: {fastest}"


def _exchange(known: Known) -> str:
    table = cnn_goals.goal_rows(known.ours)
    table = table[table["ratio_low"].notna()]
    if table.empty:
        return NOT_YET
    each = []
    for batch, own in table.groupby("batch_size"):
        row = own.sort_values("devices").iloc[-1]
        keeps = percent_text(row["ratio"], row["ratio_low"], row["ratio_high"])
        each.append(f"{keeps} at {batch} a GPU on {devices_text(row['devices'], row['device_type'])}")
    return f"of replicas that send nothing, captured ResNet-50 keeps {joined(each)}"


def _converges(known: Known) -> str:
    judged = known.same.loc[known.same["same"].notna(), "same"] if len(known.same) else pd.Series(dtype=object)
    if judged.empty:
        return NOT_YET
    return (
        f"{int(judged.astype(bool).sum())} of {plural(len(judged), 'run')} keep to the loss of their reference within that page's tolerance"
    )


def _concatenate(known: Known) -> str:
    table = cnn_updates.changes(known.measured, cnn_updates.PARALLEL)
    table = table[table["devices"] > 1] if len(table) else table
    cost = ""
    if len(table):
        hosts = int((~steady(table, "ratio")).sum())
        cost = f"; concatenating trains at {median(table['ratio']):.2f} times the rate in the median of {plural(len(table), 'point')}"
        cost += f", {hosts} of which hosts set" if hosts else ""
    return known.by_verdict("C23", "no, both train the same", "yes, they differ") + cost


@dataclass(frozen=True)
class Question:
    """What the document asks, the pages that answer it (notebooks' names), and the answer."""

    asked: str
    pages: tuple[str, ...]
    answer: Callable[[Known], str]


def _of_claims(*numbers: str, before: str = "") -> Callable[[Known], str]:
    return lambda known: f"{before}{known.verdict(*numbers)}"


QUESTIONS = (
    Question("What speedups are possible on non-trivial models? Would multi-GPU training help?", (OWN_PAGE,), _speedups),
    Question("How to speed up long training?", (OWN_PAGE, "05-placement-cost"), _captured),
    Question(
        "Which kind of parallelism to use? How suited are dense, convolutional and recurrent layers to it?",
        ("11-parallelism",),
        lambda known: (
            known.by_verdict("C31", "cutting a large model pays", "data parallelism: cutting a large model does not pay at every batch")
            + f"; {known.verdict('C40')}"
        ),
    ),
    Question(
        "What kind of models can benefit: size, ratio of parameters, size of images, number of samples?",
        ("16-what-scales",),
        lambda known: known.by_verdict("C17", "not small ones", "size alone does not tell") + "; bytes of gradients over operations may",
    ),
    Question("What are good models to test scaling?", (OWN_PAGE,), _good_models),
    Question("Is CIFAR-10 usable in place of ImageNet?", (OWN_PAGE,), _cifar),
    Question(
        "Do synthetic images do for real ones? Is the scaling problem really in feeding?",
        ("15-input",),
        lambda known: known.by_verdict("C13", "synthetic do, so feeding is not", "real images by way of the host are slower, so in part"),
    ),
    Question(
        "Does TensorFlow's Dataset API use a staging area?",
        ("15-input",),
        lambda known: "no Record looks into it; what copying batches ahead changes is asked on that page",
    ),
    Question("Which data format, NCHW or NHWC?", ("14-cnn-formats",), _layout),
    Question("What kind of variable update?", (UPDATES_PAGE,), _update),
    Question("What batch sizes to use?", ("14-cnn-formats", "08-learning"), _batch),
    Question(
        "What learning rate to use?",
        ("08-learning",),
        _of_claims("C32", before="in proportion to the batch, after a warm-up, is what is tried: "),
    ),
    Question("Is gradient averaging necessary or can we just concat predictions?", (UPDATES_PAGE,), _concatenate),
    Question(
        "What are necessary steps to scale in Keras?",
        (UPDATES_PAGE, "06-tensorflow"),
        lambda known: "not measured: Keras takes part in no Record; its way, concatenated predictions, stands there in both frameworks",
    ),
    Question("What's the cost of exchanging gradients?", ("04-all-reduce", "05-placement-cost"), _exchange),
    Question("How well does a data-parallel model converge?", ("08-learning",), _converges),
    Question("How well does data parallelism work in TensorFlow? How are operations distributed?", ("06-tensorflow",), _tensorflow),
    Question("How to quantify the warm-up?", ("17-hardware",), _warmup),
    Question(
        "How do the machines compare? Are seven GTX cards on slow links usable? Do memory clocks and the way between a pair matter?",
        ("17-hardware",),
        _of_claims("C49", "C50", "C19", "C20"),
    ),
)


def answers(known: Known) -> pd.DataFrame:
    """A row a question: what is asked, the names of the pages that answer it, the answer."""
    rows = [{"asked": one.asked, "pages": one.pages, "answer": one.answer(known)} for one in QUESTIONS]
    return pd.DataFrame(rows)


def question_table(ours: pd.DataFrame, measured: pd.DataFrame, results: Iterable[Result], same: pd.DataFrame, warm: pd.DataFrame) -> Shown:
    """`answers` with links to pages and claims, folded. Arguments: of `Known`.

    Written out, since `tables.table_html` has no links: as in the table of claims, addresses are those of the built report.
    """
    table = answers(Known(ours, measured, {result.claim.number: result for result in results}, same, warm))
    head = "".join(f'<th scope="col">{name}</th>' for name in ("001 asks", "answered", "in a few words"))
    lines = [f"<table><thead><tr>{head}</tr></thead>", "<tbody>"]
    for _, row in table.iterrows():
        where = "; ".join("above" if page == OWN_PAGE else _link(f"{page}.html", page_title(page)) for page in row["pages"])
        answer = re.sub(r"\bC\d+\b", lambda found: _link(f"../claims.html#{found[0]}", found[0]), escape(row["answer"], quote=False))
        lines.append(f'<tr><td>{escape(row["asked"], quote=False)}</td><td>{where}</td><td class="long">{answer}</td></tr>')
    lines += ["</tbody>", "</table>"]
    summary = f"{plural(len(table), 'question')} of document 001, and where each is answered"
    inside = "\n".join(lines)
    return Shown(f'<details><summary>{summary}</summary>\n<div class="wide" style="overflow-x:auto">\n{inside}\n</div>\n</details>\n')


def _link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}">{escape(text, quote=False)}</a>'
