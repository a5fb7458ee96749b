"""Document 000's profile: steps worked out by hand, its own tables as Records, and Records that flip each of its claims."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from multigpu.analysis import document_phases as phases
from multigpu.analysis import document_phases_page as page
from multigpu.analysis import document_phases_words as words
from multigpu.analysis.document_phases_page import phase_test
from multigpu.analysis.figure_phases import figure_shares, figure_skew
from multigpu.analysis.figure_step import figure_step
from multigpu.analysis.inside_traces import trace_table
from multigpu.claims import Result, evaluate, find_claim
from multigpu.claims.records import matches
from multigpu.grid import find_grid
from multigpu.grid.phases import REPEATED
from multigpu.measure.trace import ReplicaTrace, StepTrace, TraceSummary
from multigpu.published import load_published
from multigpu.record import Record
from tests.analysis.traced import ms, step_of
from tests.factory import make_machine, make_record

LAUNCHES = "aaabb"
WAYS: dict[str, dict[str, Any]] = {
    "PyTorch, one process": {"processes": "one"},
    "PyTorch, a process a GPU": {},
    "TensorFlow": {"framework": "tensorflow", "processes": "one", "execution": "graph", "precision": "tf32"},
}


def record_of(steps: Sequence[Sequence[StepTrace]], repeat: int = 0, **fields: Any) -> Record:
    """A traced Record of [step][replica]."""
    replicas = [ReplicaTrace(rank=rank, steps=list(mine), copies=[]) for rank, mine in enumerate(zip(*steps, strict=True))]
    trace = TraceSummary(source="kineto", replicas=replicas, kernels=[])
    usual = {"placement": "exp4", "devices": len(replicas), "warmup_steps": 10, "timed_steps": 10, "traced_steps": len(steps)}
    return make_record(repeat=repeat, launch_id=LAUNCHES[repeat], measurement={"trace": trace}, **(usual | fields))


def profile_step(forward: Sequence[float], backward: Sequence[float], computation: float, merge: float, update: float) -> list[StepTrace]:
    """A step with these times in ms on each replica, whose passes span `computation`: the slowest one's backward ends last."""
    slowest = max(range(len(forward)), key=lambda rank: forward[rank] + backward[rank])
    made = []
    for rank, (ahead, back) in enumerate(zip(forward, backward, strict=True)):
        late = computation - ahead - back if rank == slowest else 0.0
        start = late if len(forward) > 1 else 0.0
        ends = start + ahead + back if len(forward) > 1 else computation
        spans = {
            "forward": (start, start + ahead),
            "backward": (ends - back, ends),
            "update": (computation + merge, computation + merge + update),
        }
        made.append(step_of(**spans | ({"merge": (computation, computation + merge)} if merge else {})))
    return made


def of_document(**fields: Any) -> list[Record]:
    """The document's own tables of 1 to 8 GPUs as Records: five repeats over two launches, which differ by up to 0.4%."""
    replicas, whole = phases.document_replicas(), phases.document_whole().fillna(0.0).set_index("devices")
    found = []
    for count, rows in replicas.groupby("devices"):
        for repeat, factor in enumerate((1.0, 1.004, 0.996, 1.003, 0.997)):
            forward, backward = ([1000 * factor * time for time in rows[name]] for name in ("forward_s", "backward_s"))
            rest = (1000 * factor * whole.loc[count, name] for name in ("computation_s", "merge_s", "update_s"))
            found.append(record_of([profile_step(forward, backward, *rest)], repeat, **fields))
    return found


@cache
def document(way: str = "PyTorch, a process a GPU") -> tuple[Record, ...]:
    """`of_document` in this way, made once."""
    return tuple(of_document(**WAYS[way]))


def changed(records: Sequence[Record], change: Callable[[int, list[StepTrace]], list[StepTrace]]) -> list[Record]:
    """The Records with every step changed by `change(devices, replicas)`."""
    made = []
    for record in records:
        trace = record.measurement.trace  # type: ignore[union-attr]
        steps = [change(record.run.devices, list(step)) for step in zip(*(replica.steps for replica in trace.replicas), strict=True)]  # type: ignore[union-attr]
        made.append(record_of(steps, record.repeat))
    return made


def verdict(number: str, records: Sequence[Record]) -> Result:
    return evaluate(find_claim(number), trace_table(records))


def test_forward_ends_at_the_latest_where_backward_begins() -> None:
    assert phases.forward_time(step_of(forward=(0, 3), backward=(4, 8))) == pytest.approx(ms(3))
    late = step_of(forward=(1, 9), backward=(3, 8))
    assert phases.forward_time(late) == pytest.approx(ms(2)) and phases.forward_clipped(late) == pytest.approx(ms(6))
    assert phases.replica_times(late)["forward"] == pytest.approx(ms(2))
    assert phases.forward_time(step_of(forward_backward=(0, 8))) is None


def test_a_whole_step_by_hand() -> None:
    """Passes 0 to 10, merge 8 to 11, update 11 to 13: 10 + 3 + 2 ms in a step of 13; the longest of one replica is 8."""
    first = step_of(forward=(0, 3), backward=(3, 8), merge=(8, 11), update=(11, 12))
    second = step_of(forward=(2, 3), backward=(5, 10), merge=(10, 11), update=(11, 13))
    whole = phases.whole_step([first, second])
    assert whole and (whole.computation_s, whole.merge_s, whole.update_s) == pytest.approx((ms(10), ms(3), ms(2)))
    assert whole.total_s == pytest.approx(ms(15)) and whole.total_over_step == pytest.approx(15 / 13)
    assert whole.share("merge_s") == pytest.approx(0.2) and whole.launch_skew_s == pytest.approx(ms(2))
    assert phases.slowest_over_mean([first, second]) == pytest.approx({"forward": 1.5, "passes": 8 / 7})
    found = phases.step_quantities([first, second])
    assert found["forward_s"] == pytest.approx(ms(2)) and found["backward_over_forward"] == pytest.approx(2.5)
    assert found["computation_share"] == pytest.approx(10 / 15)
    assert phases.whole_step([first, step_of(forward=(0, 3))]) is None and phases.step_quantities([step_of(forward_backward=(0, 8))]) == {}


def test_frames_take_medians_over_steps_and_tables_means_over_repeats() -> None:
    def step(forward: float) -> list[StepTrace]:
        return [step_of(forward=(0, forward), backward=(forward, forward + 4)), step_of(forward=(0, 1), backward=(1, 5))]

    records = [record_of([step(2), step(9), step(3)]), record_of([step(5)] * 3, 4)]
    replicas, whole = phases.replicas_frame(records), phases.whole_frame(records)
    assert replicas["forward_s"].tolist() == pytest.approx([ms(3), ms(1), ms(5), ms(1)]) and replicas["merge_s"].isna().all()
    assert whole["forward_imbalance"].tolist() == pytest.approx([1.5, 5 / 3]), "2/1.5, 9/5 and 3/2: the median"
    pooled = page.pooled(replicas, ["devices", "rank"])
    assert pooled["forward_s"].tolist() == pytest.approx([ms(4), ms(1)])
    assert pooled["n"].tolist() == [2, 2] and pooled["launches"].tolist() == [2, 2]
    assert phases.whole_frame([record_of([[step_of(forward_backward=(0, 8))]])]).empty


def test_the_document_read_back_from_records_of_its_own_figures() -> None:
    """What its tables say and what our functions make of a trace with its times is the same, to the microsecond it prints."""
    records = [record for record in document() if record.repeat == 0]
    ours, theirs = phases.whole_frame(records).set_index("devices"), phases.document_whole().set_index("devices")
    for name in ("computation_s", "total_s", "launch_skew_s", "skew_share", "forward_imbalance", "computation_share"):
        assert (ours[name] - theirs[name]).abs().max() < 6e-5, name
    assert theirs["forward_imbalance"].iloc[-1] == pytest.approx(1.80, abs=0.005) and theirs["launch_skew_s"].iloc[-1] == pytest.approx(
        3.943, abs=1e-3
    )
    assert len(phases.document_replicas()) == (load_published("000_phases_per_gpu")["gpu"] != "average").sum() / 2 == 36


@pytest.mark.parametrize("number", page.CLAIMS)
def test_the_documents_own_figures_hold_its_claims(number: str) -> None:
    result = verdict(number, document())
    assert result.verdict == "holds", result.why
    assert {record.key for record in document() if record.run.devices == 8} <= set(result.record_keys)
    assert verdict(number, document("TensorFlow")).by_framework["tensorflow"].verdict == "holds"
    few = verdict(number, [record for record in document() if record.repeat == 0])
    assert few.verdict == "inconclusive" and "screening" in few.why and few.record_keys
    assert verdict(number, []).verdict == "not yet measured"
    assert verdict(number, of_document(machine=make_machine(0), device_type="cpu")).verdict == "not yet measured", "CPUs decide nothing"


def moved(step: StepTrace, **spans: tuple[float, float]) -> StepTrace:
    return step.model_copy(update={"phases": step.phases | spans})


def even_forward(times: float) -> Callable[[int, list[StepTrace]], list[StepTrace]]:
    """Every forward 0.75 s long, `times` as long on one GPU."""
    return lambda count, step: [moved(mine, forward=(0.0, 0.75 * (times if count == 1 else 1))) for mine in step]


def backward_of(on_one: float, on_more: float) -> Callable[[int, list[StepTrace]], list[StepTrace]]:
    """Every backward this long in s, from where forward ends."""

    def change(count: int, step: list[StepTrace]) -> list[StepTrace]:
        long = on_one if count == 1 else on_more
        return [moved(mine, backward=(mine.phases["forward"][1], mine.phases["forward"][1] + long)) for mine in step]

    return change


def one_even_count(count: int, step: list[StepTrace]) -> list[StepTrace]:
    """On 5 GPUs all forwards are equally long."""
    return [moved(mine, forward=(mine.phases["backward"][0] - 1.0, mine.phases["backward"][0])) for mine in step] if count == 5 else step


def growing_merge(count: int, step: list[StepTrace]) -> list[StepTrace]:
    """The merge takes a second a GPU."""
    ends = max(mine.phases["backward"][1] for mine in step)
    return [moved(mine, merge=(ends, ends + count)) for mine in step] if count > 1 else step


@pytest.mark.parametrize(
    ("number", "change"),
    [
        ("C6", even_forward(1.0)),
        ("C6", even_forward(1.5)),
        ("C7", backward_of(1.5, 1.5)),
        ("C7", backward_of(1.5, 6.0)),
        ("C8", one_even_count),
        ("C9", growing_merge),
    ],
    ids=["C6 equal", "C6 shorter", "C7 equal", "C7 more than forward", "C8 not always", "C9 merge grows"],
)
def test_records_that_say_otherwise_refute_each_claim(number: str, change: Callable[[int, list[StepTrace]], list[StepTrace]]) -> None:
    result = verdict(number, changed(document(), change))
    assert result.verdict == "does not hold", (result.figure, result.why)


def test_both_shapes_of_pytorch_have_to_agree() -> None:
    one = changed(document(), even_forward(1.0))
    mixed = [*document("PyTorch, one process"), *one]
    assert verdict("C6", mixed).verdict == "inconclusive"


def test_the_page_names_what_is_missing_and_shows_8_gpus_as_soon_as_they_are_there() -> None:
    few = [record for record in document() if record.run.devices in (1, 2) and record.repeat == 0]
    assert (
        words.coverage(few)
        == "GPUs traced: PyTorch, a process a GPU on 1 and 2. None of them yet on 3, 4, 5, 6, 7 and 8. Not traced yet: TensorFlow."
    )
    assert words.answers([]) == [words.NOTHING]
    everything = [record for way in WAYS for record in document(way)]
    assert (
        set(page.ways(page.profiled(everything))) == set(WAYS)
        and page.profiled([record_of([[step_of(forward=(0, 1))]], placement="exp2")]) == []
    )
    assert "yet" not in words.coverage(everything) and words.answers(everything)[-1] == "Verdicts: C6 holds; C7 holds; C8 holds; C9 holds."
    grown = words.growth_table(everything).html
    assert (
        ">2.29 (2.28 to 2.31)<" in grown and ">1.50 (1.49 to 1.51)<" in grown and all(f">{name}<" in grown for name in ("document", *WAYS))
    )
    said = words.answers(everything)[1]
    assert said.startswith("The document's mean forward takes 2.29 times as long on 8 GPUs as on 1; here 2.29 (2.28 to 2.31) times (")
    assert words.forward_finding([]) is None and words.forward_finding(few[:1]) is None
    for shown in (page.per_gpu_table(everything, "forward"), page.whole_table(everything), page.skew_table(everything)):
        assert shown.html.count("TensorFlow") >= 8 and shown.html.count(">document<") == 8
    assert ">5 (2)<" in page.skew_table(everything).html
    assert page.per_gpu_table([], "forward").html.count(">document<") == 8 and "3,083.4" in page.per_gpu_table([], "forward").html
    assert all(record.key in page.verdict_table(everything).html for record in everything if record.run.devices in (1, 8))
    assert "AddN_\u200b24" in page.events_table().html and "–" not in page.events_table().html


def test_sentences_say_what_the_traces_show() -> None:
    late = record_of([[step_of(forward=(0, 9), backward=(3, 8), update=(1, 9))]], **WAYS["TensorFlow"])
    once = step_of(forward=(0, 3), backward=(3, 8), update=(4, 9))
    assert words.early_update_sentence([record_of([[once]])]) is None, "during backward there are gradients"
    plain = record_of([[step_of(forward=(0, 3), backward=(3, 8), merge=(4, 8), update=(8, 9))]])
    assert "In 1 Record of TensorFlow" in str(words.clipped_sentence([late, plain])) and "up to 6.0 ms" in str(
        words.clipped_sentence([late])
    )
    assert words.clipped_sentence([plain]) is None and words.early_update_sentence([plain]) is None
    assert "On 1 replica of 1 Record" in str(words.early_update_sentence([late, plain]))
    assert (
        words.overlap_sentence([plain])
        == "The sum of computation, merge and update over the traced step is 1.44 on 1 GPU (PyTorch, a process a GPU)."
    )
    alike = document("PyTorch, one process")
    assert words.spread_sentence([plain]) is None and words.spread_sentence(alike) is None, "five traces beside one untraced step"
    slower = alike[-1].model_copy(
        update={"measurement": alike[-1].measurement.model_copy(update={"wall_s": 2 * alike[-1].measurement.wall_s})}
    )
    assert "(PyTorch, one process, n = 2)" in str(words.spread_sentence([*alike[:-1], slower]))
    assert words.overlap_sentence([]) is None and words.skew_finding([plain]) is None


def test_growth_is_the_claims_own_figure() -> None:
    """The sentence's ratio and bounds are those that C6 is decided by, not a ratio of means that may differ in the last digit."""
    records = document("PyTorch, one process")
    result = verdict("C6", records)
    found = phases.growth(records, "forward_s", 1, 8)
    assert found and f"{found[0]:.2f}x at 8 GPUs (95% {found[1]:.2f}-{found[2]:.2f})" in result.figure
    assert phases.growth(records, "forward_s", 1, 9) is None
    once = phases.growth([record for record in records if record.repeat == 0], "forward_s", 1, 8)
    assert once and once[1] != once[1], "no bounds from one repeat"


def test_an_update_that_begins_before_its_gradients_has_no_known_time() -> None:
    """Adam's powers of beta may run first; the span from there would count the passes as updating and press every other share."""
    plain = step_of(forward=(0, 3), backward=(3, 8), merge=(8, 9), update=(9, 10))
    early = step_of(forward=(0, 3), backward=(3, 8), merge=(8, 9), update=(0, 10))
    found = phases.step_quantities([plain, early])
    assert not {"computation_share", "merge_share"} & set(found) and found["forward_s"] == pytest.approx(ms(3))
    record = record_of([[plain, early], [plain, plain]], **WAYS["TensorFlow"])
    assert record.measurement and record.measurement.trace
    known = phases.profile_quantities(record.measurement.trace)
    assert known["merge_share"] is None and known["forward_imbalance"] == 1.0
    assert phases.replicas_frame([record])["update_s"].isna().tolist() == [False, True]
    assert phases.whole_frame([record])[["update_share", "total_s"]].isna().all(axis=None)
    whole, each = page.whole_table([record]).html, page.per_gpu_table([record], "update").html
    assert "nan" not in whole and "A dash: not known" in each
    assert "other phases alone" in figure_shares([record]).caption and "other phases alone" not in figure_shares([]).caption
    assert words.overlap_sentence([record]) is None and figure_shares([record]).finding == ""


def test_a_missing_time_leaves_its_own_gpu_empty_and_no_other() -> None:
    early = step_of(forward=(0, 3), backward=(3, 8), update=(0, 9))
    plain = step_of(forward=(0, 3), backward=(3, 8), update=(8, 10))
    records = [record_of([[early, plain]]), record_of([[plain] * 3])]
    cells = re.findall(r">([^<>\n]+)</td>", page.per_gpu_table(records, "update").html)
    assert [text for text in cells if text in ("–", "2.0")] == ["–", "–", "2.0", "2.0", "2.0", "2.0", "2.0"], "average, GPU 0, GPU 1, ..."


def test_steps_of_one_placement_are_called_by_what_tells_them_apart() -> None:
    """Three panels of Exp4 had a caption of three times "Exp4" and no title."""
    even = [step_of(forward=(0, 4), backward=(4, 10)) for _ in range(2)]
    late = [even[0], step_of(forward=(5, 9), backward=(9, 15))]
    records = [record_of([late], **WAYS["PyTorch, one process"]), record_of([even]), record_of([even], **WAYS["TensorFlow"])]
    picture = figure_step(records)
    assert picture.finding.startswith("Launch skew takes 33% of a step in PyTorch, one process, 0% of a step in ")
    barely = [even[0], step_of(forward=(0.003, 4.003), backward=(4.003, 10.003))]
    assert "less than 0.1% of a step in TensorFlow" in figure_step([*records[:1], record_of([barely], **WAYS["TensorFlow"])]).finding
    said = [ax.get_title("left").replace("\n", " ") for ax in picture.axes]
    assert "one process" in said[0] and "a process a GPU" in said[1] and "TensorFlow" in said[2]
    assert all(title.endswith("51.2 ms timed, 15 ms traced") for title in said[:1]), said
    loop = record_of([even], **WAYS["TensorFlow"], recurrence="stepwise")
    looped = [ax.get_title("left") for ax in figure_step([records[2], loop]).axes]
    assert "a loop of cells" in looped[1] and "a loop" not in looped[0] and "process" not in looped[0], (
        "one process each tells nothing apart"
    )
    other = figure_step([records[0], record_of([even], placement="exp2", processes="one")])
    assert "under Exp4" in other.finding, "several placements are still called by their labels"


def test_the_step_shown_is_the_median_of_the_repeats() -> None:
    def of(length: float, repeat: int) -> Record:
        return record_of([[step_of(forward=(0, 3), backward=(3, length))]], repeat)

    records = [of(length, repeat) for repeat, length in enumerate((5, 9, 7))]
    assert page.shown_steps(records) == [records[2]]


def on(machine: str, record: Record) -> Record:
    return record.model_copy(update={"machine": record.machine.model_copy(update={"name": machine})})


def test_a_way_is_shown_once_on_the_machine_with_most_gpus_and_loops_apart() -> None:
    """Two machines traced the same way: the picture has the one with 4 GPUs; a loop of cells, ten times as long, has its own axis."""

    def of(count: int, recurrence: str | None = None) -> Record:
        return record_of([[step_of(forward=(0, 3), backward=(3, 8))] * count], recurrence=recurrence)

    small = [on("2x", of(count)) for count in (1, 2)]
    large = [on("4x", of(count)) for count in (1, 4)]
    loops = [on("2x", of(count, "stepwise")) for count in (1, 2)]
    everything = [*small, *large, *loops]
    assert page.leading(everything) == [*large, *loops]
    assert page.shown_steps(everything) == [large[1]] and page.shown_steps(everything, loop=True) == [loops[1]]
    assert list(page.ways(page.leading(everything))) == ["PyTorch, a process a GPU", "PyTorch, a process a GPU, a loop of cells"]
    assert "PyTorch, a process a GPU, 2x" in page.ways(everything)
    html = page.per_gpu_table(everything, "forward").html
    main, further = html.split("Forward on every GPU, 2x")
    assert "Forward on every GPU, 4x" in main and main.count(">document<") == 8 and "GPU 7" in main
    assert further.count(">document<") == 2 and "GPU 2" not in further, "as many columns as were filled"


def test_the_answer_compares_repeated_ways_on_equal_gpus() -> None:
    """Repeated on 4: one process with 44.6 - 22.3 = half its span lost; a way traced once on 8, and two on 2 GPUs, are not beside it."""
    even, late = step_of(forward=(0, 4), backward=(4, 10)), step_of(forward=(10, 14), backward=(14, 20))
    several = {"TensorFlow": [even] * 4, "PyTorch, one process": [even] * 3 + [late]}
    records = [record_of([step[:count]], repeat, **WAYS[way]) for way, step in several.items() for count in (1, 4) for repeat in range(3)]
    once = record_of([[even] * 8], **WAYS["PyTorch, a process a GPU"])
    most, found = words.compared([*records, once])
    assert most == 4 and list(found) == ["TensorFlow", "PyTorch, one process"]
    assert words.skew_finding([*records, once]) == (
        "Launch skew on 4 GPUs is 0.0% (TensorFlow) and 50.0% (PyTorch, one process) of the computation's span; the document's is 23.4% on "
        "4 and 44.6% on 8"
    )
    said = words.answers([*records, once])
    assert "TensorFlow dispatches for all GPUs from one process, as in 2018." in said[0] and "GPUs traced" not in " ".join(said)
    assert said[1].startswith("The document's mean forward takes 1.80 times as long on 4 GPUs as on 1 (2.29 on 8); here 1.00")
    assert "TensorFlow: forward 4.0 and backward 6.0, of a step of 10.0 traced and 102.4 timed" in said[2]
    early = [step_of(forward=(0, 4), backward=(4, 10), update=(start, 11)) for start in (0, 10)]
    assert "backward 6.0 and update not known, of" in str(words.does_sentence([record_of([early])])), "one GPU's update is not known"
    assert words.skew_finding([once]).startswith("Launch skew on 8 GPUs is 0.0% (PyTorch, a process a GPU, traced once)")
    assert figure_skew([*records, once]).finding == words.skew_finding([*records, once])


def test_steps_that_are_mostly_the_profilers_are_named() -> None:
    """10 ms traced: 1.25 times 8 ms timed in one way, 2.5 times 4 ms in the other."""
    even = [step_of(forward=(0, 4), backward=(4, 10))] * 2
    made = []
    for way, timed in (("TensorFlow", 8.0), ("PyTorch, a process a GPU", 4.0)):
        for repeat in range(2):
            record = record_of([even], repeat, **WAYS[way])
            update = {"untraced_step_s": {0: timed / 1e3, 1: timed / 1e3}}
            made.append(record.model_copy(update={"measurement": record.measurement.model_copy(update=update)}))
    text = words.profiled_sentence(made)
    assert "1.2 times (TensorFlow: 10.0 against 8.0 ms) and 2.5 times (PyTorch, a process a GPU: 10.0 against 4.0 ms)" in text
    assert "In PyTorch, a process a GPU more of a traced step is the profiler's" in text and "In TensorFlow" not in text
    assert words.profiled_sentence([]) is None


def test_flat_lines_of_skew_have_one_name() -> None:
    even, late = step_of(forward=(0, 4), backward=(4, 10)), step_of(forward=(10, 14), backward=(14, 20))
    records = [record_of([[even] * count], **WAYS[way]) for way in ("TensorFlow", "PyTorch, a process a GPU") for count in (1, 2)]
    records += [record_of([[even, late][:count]], **WAYS["PyTorch, one process"]) for count in (1, 2)]
    picture = figure_skew(records)
    labels = [text.get_text() for text in picture.axes[0].texts]
    assert sorted(labels) == ["PyTorch, one process", "document 000", "the other 2, all below 1%"]
    assert "Grey: TensorFlow; PyTorch, a process a GPU." in picture.caption


def test_nothing_of_this_computer_leaves_no_heading() -> None:
    assert page.whole_table_here([]) is None
    here = page.whole_table_here([record_of([[step_of(forward=(0, 3), backward=(3, 8))]])])
    assert here is not None and "<h2>On this computer</h2>" in here.html and "<table" in here.html


def test_pictures_show_the_counts_that_were_measured() -> None:
    everything = [record for way in WAYS for record in document(way)]
    few = [record for record in everything if record.run.devices in (2, 4)]
    full, part, none = (figure_shares(records) for records in (everything, few, []))
    assert len(full.axes) == 4 and len(none.axes) == 1 and none.finding == ""
    assert [[label.get_text() for label in ax.get_xticklabels()] for ax in part.axes] == [list("12345678"), *[["2", "4"]] * 3]
    assert full.finding.startswith("On 8 GPUs forward and backward are 71% of the phases in the document and here 71%")
    assert full.data[["forward", "backward", "pull", "merge", "update"]].sum(axis=1).to_list() == pytest.approx([1.0] * 4 * 36)
    skew = figure_skew(everything)
    assert skew.finding.startswith("Launch skew on 8 GPUs is 44.6% (") and skew.finding.endswith("the document's is 44.6% on 8")
    assert len(skew.data) == 4 * 8 and figure_skew([]).finding == ""


def test_an_update_that_overlaps_the_passes_does_not_hide_them() -> None:
    over, after = (step_of(forward=(0, 4), backward=(4, 8), update=span) for span in ((1, 8), (8, 9)))
    heights = [max(bar.get_height() for bar in figure_step([record_of([[step]])]).axes[0].patches[-1:]) for step in (over, after)]
    assert heights[0] < heights[1] == pytest.approx(0.74), "a strip along the top of the lane"


def test_the_grid_repeats_what_the_claims_compare_and_lists_it_first() -> None:
    planned = find_grid("phases", range(1, 9))
    assert {entry.run.devices for entry in planned} == set(range(1, 9)) and {entry.run.framework for entry in planned} == {
        "torch",
        "tensorflow",
    }
    tiers = [entry.tier for entry in planned]
    assert tiers == sorted(tiers) and tiers[0] == "headline" and planned[0].run.devices == 8
    for entry in planned:
        assert matches(entry.run.model_dump(), phase_test().where) and entry.run.traced_steps
        points = entry.points()
        assert (len(points) >= 5 and len({point.launch for point in points}) >= 2) == (entry.run.devices in REPEATED)
    known = {entry.run.digest for name in ("traces", "tensorflow_traces") for entry in find_grid(name, [1, 2, 4, 8])}
    assert {entry.run.digest for entry in find_grid("phases", [1, 2, 4, 8])} <= known, (
        "one Run, one Record, in whichever grid it is measured"
    )
    assert all(entry.run.device_type == "cpu" and entry.run.traced_steps for entry in find_grid("phases_small", [1, 2]))
