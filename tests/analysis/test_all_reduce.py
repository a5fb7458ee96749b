"""All-reduces alone: intervals, formulas, transfers and sentences, from planted Records with times worked out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from multigpu import study as study_module
from multigpu.analysis import all_reduce_findings as findings
from multigpu.analysis import all_reduce_tables as tables
from multigpu.analysis.all_reduce import (
    Model,
    at,
    find_point,
    gradient_bytes,
    gradient_marks,
    model_of,
    points,
    serial_bytes,
    stretches,
    transfer,
    winners,
)
from multigpu.analysis.collectives import collectives_frame, median_bounds
from multigpu.analysis.figure_collectives import figure_collectives, method_look
from multigpu.collectives.record import CollectiveRecord, CollectiveStore
from tests.collectives.planted import ALPHA_S, BETA, make_record, study

N = 2**30


def timed(method: str, size: int, samples: list[float], devices: int = 8, repeat: int = 0) -> CollectiveRecord:
    """A Record with these samples."""
    record = make_record(method, size, devices, repeat=repeat)
    assert record.measurement is not None
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"time_s": samples})})


def steady(method: str, size: int, seconds: float, devices: int = 8) -> CollectiveRecord:
    """Ten samples within half a percent."""
    return timed(method, size, [seconds * (1 + 0.001 * step) for step in (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)], devices)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return collectives_frame(study())


def test_the_median_lies_between_order_statistics() -> None:
    assert median_bounds([float(value) for value in range(10, 0, -1)]) == (2.0, 9.0)  # 1 - 2 P(B(10, 1/2) < 2) = 97.9%
    assert median_bounds([float(value) for value in range(20)]) == (5.0, 14.0)
    assert median_bounds([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1.0, 6.0)
    assert all(math.isnan(bound) for bound in median_bounds([1.0, 2.0, 3.0, 4.0, 5.0]))


def test_a_point_of_one_record_and_of_several() -> None:
    one = points(collectives_frame([timed("ring", N, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 100.0])]))
    assert one[["time_s", "low_s", "high_s", "n", "launches"]].iloc[0].tolist() == [5.5, 2.0, 9.0, 1, 1]
    several = points(collectives_frame([make_record(time_s=seconds, repeat=repeat) for repeat, seconds in enumerate((1.0, 2.0, 4.0))]))
    row = several.iloc[0]
    # logs -ln 2, 0, ln 2 about ln 2: t(0.975, 2) ln 2 / sqrt 3
    assert (row["n"], row["launches"], row["time_s"]) == (3, 3, pytest.approx(2.0))
    assert row["high_s"] == pytest.approx(2 * math.exp(4.30265 * math.log(2) / math.sqrt(3)), rel=1e-4)
    assert points(collectives_frame([make_record(status="failed")])).empty and points(collectives_frame([])).empty


@pytest.mark.parametrize(
    ("method", "two", "four", "eight"),
    [
        ("ring", 1, 1.5, 1.75),
        ("torus", 1, 1.5, 1.75),
        ("halving_doubling", 1, 1.5, 1.75),
        ("central_server", 2, 6, 14),  # N(P-1) in, then out
        ("tree", 2, 4, 6),  # N at each of log2 P levels, up and down
        ("hierarchical", 1, 3, 5),  # 2: a ring of two; 4: N, a ring of two leaders, N; 8: 2N, the same, 2N
        ("everyone", 1, 3, 7),
        ("everyone_bf16", 0.5, 1.5, 3.5),
    ],
)
def test_bytes_that_follow_each_other(method: str, two: float, four: float, eight: float) -> None:
    assert [serial_bytes(method, 4 * 840, devices) / (4 * 840) for devices in (2, 4, 8)] == pytest.approx([two, four, eight])


def test_bytes_beyond_a_power_of_two_are_handed_over_and_back() -> None:
    # 6 processes: 2 hand over N, 4 halve and double (1.5 N), N goes back
    assert serial_bytes("halving_doubling", 4 * 840, 6) / (4 * 840) == pytest.approx(3.5)


def test_the_latency_is_fitted_and_the_bandwidth_is_not(frame: pd.DataFrame) -> None:
    model = model_of(at(points(frame), 8, "captured"), bytes_per_s=BETA)
    assert model is not None and model.bytes_per_s == BETA
    # planted: 2 us a message in a row, and what 1 KiB adds at 400 GB/s: at most 7 KiB over one message
    assert ALPHA_S < model.alpha_s < ALPHA_S + 7 * 1024 / BETA
    assert Model(2e-6, 400e9).time_s("ring", N, 8) == pytest.approx(14 * 2e-6 + 1.75 * N / 400e9)
    assert Model(2e-6, 400e9).time_s("central_server", N, 4) == pytest.approx(2 * 2e-6 + 6 * N / 400e9)
    assert model_of(points(collectives_frame([]))) is None
    assert model_of(at(points(collectives_frame([make_record(size=N)])), 8, "captured"), BETA) is None


def test_a_transfer_is_measured_or_in_proportion() -> None:
    table = points(collectives_frame([steady("nccl", size, 1e-3 + size / 400e9, 2) for size in (2**28, 2**30)]))
    between = transfer(table, "nccl", 717_668_352)
    assert between is not None and not between.measured and between.between == (2**28, 2**30)
    assert between.time_s == pytest.approx(1e-3 + 717_668_352 / 400e9) and between.low_s < between.time_s < between.high_s
    exact = transfer(table, "nccl", 2**28)
    assert exact is not None and exact.measured and exact.time_s == pytest.approx(1e-3 + 2**28 / 400e9)
    assert transfer(table, "nccl", 2**31) is None and transfer(table, "nccl", 4) is None and transfer(table, "ring", 2**29) is None


def test_gradients_are_those_of_the_documents() -> None:
    assert gradient_bytes("nmt", "nmt004") == 717_668_352  # 179,417,088 in fp32: 717.67 MB
    assert round(gradient_bytes("nmt", "nmt000") / 1e6) == 374


def two_methods(ring_s: float, other: str = "nccl") -> pd.DataFrame:
    return collectives_frame([steady(other, N, 1.0), steady("ring", N, ring_s)])


def test_a_winner_needs_intervals_apart_and_exact_sums() -> None:
    assert winners(points(two_methods(2.0))) == [(N, "nccl")]
    assert winners(points(two_methods(0.5))) == [(N, "ring")]
    assert winners(points(two_methods(1.001))) == [(N, None)]
    assert winners(points(two_methods(2.0, "everyone_bf16"))) == [(N, None)]  # the ring is alone
    assert list(stretches([(4, "a"), (16, "a"), (64, None), (256, "a")])) == [("a", 4, 16), (None, 64, 64), ("a", 256, 256)]
    assert list(stretches([])) == []


def test_nobody_wins_where_a_rival_of_the_next_size_was_not_measured() -> None:
    """Two-shot wins at 4 B and ties with NCCL at 16 B; at 64 B it has no Record, and at 256 B it loses."""
    both = [(4, 2.0, 1.0), (16, 1.0, 1.001), (256, 1.0, 2.0)]
    made = [record for size, nccl, shot in both for record in (steady("nccl", size, nccl), steady("two_shot", size, shot))]
    made += [steady("nccl", 64, 1.0), steady("ring", 64, 3.0)]
    assert winners(points(collectives_frame(made))) == [(4, "two_shot"), (16, None), (64, None), (256, "nccl")]
    assert findings.fastest_finding(collectives_frame(made), 8) == "On 8 GPUs, torch two-shot is fastest at 4 B; NCCL is fastest at 256 B"
    # a method that loses next door may be missing, and so may one that was measured alone there
    beside = [*made, steady("two_shot", 64, 4.0), steady("ring", 1024, 1.0)]
    assert winners(points(collectives_frame(beside)))[2:] == [(64, "nccl"), (256, "nccl"), (1024, None)]


def test_the_answer_says_how_many_records_a_point_has() -> None:
    once = findings.repeats_finding(two_methods(2.0), 8)
    assert once is not None and once.startswith("Each point is one Record") and "say nothing of other launches" in once
    twice = collectives_frame([make_record("nccl", N, 8, repeat=repeat) for repeat in range(2)])
    assert findings.repeats_finding(twice, 8) == "Each point has 2 Records; intervals at 95%; a single Record's is that of its samples"
    assert findings.repeats_finding(twice, 4) is None


def test_the_other_algorithms_have_a_title_of_their_own_and_no_line_lies_hidden() -> None:
    times = {"nccl": 1.0, "ring": 1.5, "torus": 1.2, "everyone_bf16": 2.0, "everyone_fp16": 2.0}
    frame = collectives_frame([steady(name, size, seconds) for name, seconds in times.items() for size in (N // 4, N)])
    told = findings.others_finding(frame, 8)
    assert told == (
        "At 1 GiB on 8 GPUs the fastest written out, 2-D torus, takes 1.20 times the time of NCCL; half the bytes, everyone to everyone, "
        "take 2.00 times"
    )
    picture = figure_collectives(frame, finding=told)
    assert picture.finding == told and "The wide line is that of bf16" in picture.caption
    colours = {name: method_look(name).colour for name in times}
    widths = {line.get_color(): line.get_linewidth() for line in picture.axes[0].get_lines()}
    assert widths[colours["everyone_bf16"]] > 2 * widths[colours["everyone_fp16"]], "two lines on each other: the lower is wider"
    order = [line.get_color() for line in picture.axes[0].get_lines()]
    assert order.index(colours["everyone_bf16"]) < order.index(colours["everyone_fp16"])
    assert figure_collectives(frame[frame["method"] != "everyone_bf16"]).finding != told
    assert findings.others_finding(two_methods(2.0).query("method == 'ring'"), 8) is None


def test_sentences_say_who_wins_and_by_how_much() -> None:
    frame = collectives_frame(
        [
            *(steady("nccl", size, 2.0) for size in (4, 16)),
            *(steady("two_shot", size, 1.0) for size in (4, 16)),
            *(steady(name, 64, seconds) for name, seconds in (("nccl", 1.0), ("two_shot", 2.0), ("ring", 3.0), ("central_server", 5.0))),
        ]
    )
    assert findings.fastest_finding(frame, 8) == "On 8 GPUs, torch two-shot is fastest from 4 B to 16 B; NCCL is fastest at 64 B"
    assert findings.written_out_finding(frame, 8) == (
        "At 64 B, written out from sends and receives, the ring takes 3.00 times and the central server takes 5.00 times the time of NCCL; "
        "none of 2 points of algorithms written out is faster than NCCL (on 8 GPUs)"
    )
    won = findings.written_out_finding(two_methods(0.5), 8)
    assert won is not None and "the ring takes 0.500 times" in won and "NCCL is beaten by ring at 1 GiB" in won
    for function in (findings.fastest_finding, findings.written_out_finding, findings.bandwidth_finding):
        assert function(frame, 4) is None and function(collectives_frame([]), 4) is None


def test_bandwidth_stands_beside_the_link() -> None:
    frame = collectives_frame([steady("nccl", N, 1.75 * N / 300e9)])
    text = findings.bandwidth_finding(frame, 8)
    assert text is not None and text.startswith("NCCL reaches 300 GB/s (299 to 301) of bus bandwidth at 1 GiB: 67% of the link's 450 GB/s")


def test_growth_is_set_beside_the_documents_formulas() -> None:
    frame = collectives_frame(
        [steady(name, N, seconds, devices) for name, devices, seconds in (("ring", 2, 1.0), ("ring", 4, 1.4), ("central_server", 2, 1.0))]
        + [steady("central_server", N, 3.3, 4)]
    )
    assert findings.growth_finding(frame, 2, 4) == (
        "At 1 GiB, on 4 GPUs instead of 2, the ring takes 1.40 times as long, where 2N(P-1)/P grows to 1.50 times and the central server "
        "takes 3.30 times as long, where 2N(P-1) grows to 3.00 times"
    )
    assert findings.growth_finding(frame, 2, 8) is None and findings.growth_finding(frame, 4, 4) is None
    assert findings.device_counts(frame) == (4, 2) and findings.device_counts(collectives_frame([])) == (2, 2)


def test_one_message_of_the_ring_and_half_the_bytes() -> None:
    # on 2 processes a ring is two messages of N/2 in turn
    sizes = {2**26: 100e9, 2**28: 200e9, 2**30: 300e9}
    ring = collectives_frame([steady("ring", size, size / rate, 2) for size, rate in sizes.items()])
    told = findings.message_finding(ring, 2)
    assert told is not None and "of 32 MiB, 128 MiB and 512 MiB, travel at 100 GB/s, 200 GB/s and 300 GB/s" in told
    assert findings.message_finding(ring, 4) is None
    halves = collectives_frame([steady("everyone", N, 2.0), steady("everyone_bf16", N, 1.5)])
    told = findings.rounding_finding(halves, 8)
    assert told is not None and "takes 75% of the time at 1 GiB" in told
    assert findings.rounding_finding(ring, 2) is None


def test_the_documents_90_ms_stand_beside_the_transfer() -> None:
    assert findings.added_ms() == 90
    size = gradient_bytes("nmt", "nmt004")
    told = findings.gradients_finding(collectives_frame([steady("nccl", size, 3e-3, 2)]))
    assert told is not None and "717.67 MB" in told and "(measured)" in told and told.endswith("in tens, are about 30 times as long")
    assert findings.gradients_finding(collectives_frame([steady("nccl", 2**20, 3e-3, 2)])) is None


def test_an_answer_without_findings_says_why() -> None:
    assert "No all-reduce has been measured yet." in findings.answer([None, None]).html
    assert "<p>Now &lt;so&gt;.</p>" in findings.answer(["now <so>", None]).html


def test_tables_hold_times_and_say_what_is_missing() -> None:
    frame = collectives_frame([steady("nccl", 4, 10e-6, 2), steady("ring", 4, 20e-6, 2), steady("nccl", N, 3e-3, 2)])
    html = tables.sizes_table(frame, 2, "captured", (4, N)).html
    assert "10.0 (10.0 to 10.0)" in html and "3.00 (2.99 to 3.01)" in html and "not measured" in html and "screening" in html
    assert "time allowed for the sweep had ended" in html
    full = tables.sizes_table(collectives_frame([steady("nccl", 4, 10e-6, 2), steady("ring", 4, 20e-6, 2)]), 2, "captured", (4,)).html
    assert "time allowed" not in full, "no cell is missing"
    short, long = (part.split("</table>")[0] for part in html.split("<table")[1:])
    assert "short messages" in short and "4 B" in short and "bus bandwidth" not in short
    assert "long messages" in long and "1 GiB (ms)" in long and "bus bandwidth at 1 GiB" in long
    assert "No all-reduce on 4 devices was measured eager." in tables.sizes_table(frame, 4, "eager").html
    html = tables.gradients_table(frame).html
    assert "717.67" in html and "NMT of 000" in html and "in proportion between the sizes measured: 4 B to 1 GiB" in html
    assert "Not measured: torch two-shot (ms), ring (ms), central server (ms)." in html  # of the ring: outside of its sizes


def test_tables_of_formulas_and_links(frame: pd.DataFrame) -> None:
    html = tables.formula_table(frame, 8).html
    assert "1.75 N" in html and "14.00 N" in html and "two levels" in html
    assert "No formula" in tables.formula_table(frame, 4).html
    html = tables.links_table(frame).html
    assert "2N(P-1)/P = 1.75 N" in html and "2N(P-1) = 14.00 N" in html
    assert "No bytes were counted." in tables.links_table(collectives_frame([])).html


def test_a_size_that_a_line_passes_over_is_named() -> None:
    frame = collectives_frame([*(steady("nccl", size, 1.0) for size in (4, 16, 64)), *(steady("ring", size, 2.0) for size in (4, 64))])
    assert "Not measured, and passed over by the lines: 16 B of ring." in figure_collectives(frame).caption
    assert find_point(points(frame), "ring", 16) is None


def test_the_report_speaks_of_the_machine_with_gpus(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    cpus = [make_record(name, 4, 2, "eager", gpus=0) for name in ("gloo", "ring", "tree")]
    both = collectives_frame([*cpus, steady("nccl", 4, 1.0), steady("ring", 4, 2.0)])
    assert set(study_module.published_collectives(both)["machine"]) == {"8x-nvidia-h200"}
    assert len(study_module.published_collectives(collectives_frame(cpus))) == 3
    assert study_module.published_collectives(collectives_frame([])).empty
    monkeypatch.setattr(study_module.paths, "COLLECTIVES", tmp_path)
    for record in cpus:
        CollectiveStore(tmp_path).write(record)
    assert sorted(study_module.observe_collectives("none")["method"]) == ["gloo", "ring", "tree"]
    own = both["machine"].eq("8x-nvidia-h200")
    assert study_module.measured_here(both).empty, "this computer has none of these"
    monkeypatch.setattr(study_module, "this_machine", lambda: SimpleNamespace(name="8x-nvidia-h200"))
    assert study_module.measured_here(both).empty, "what the report speaks of is not said twice"
    monkeypatch.setattr(study_module, "this_machine", lambda: SimpleNamespace(name=both.loc[~own, "machine"].iloc[0]))
    assert len(study_module.measured_here(both)) == 3
    own_section = tables.here(study_module.measured_here(both))
    assert own_section is not None and "<h2>On this computer</h2>" in own_section.html and "gloo" in own_section.html
    assert tables.here(both.iloc[:0]) is None, "no heading over nothing"


def test_gradients_are_marked_on_the_curves(frame: pd.DataFrame) -> None:
    picture = figure_collectives(frame, marks=gradient_marks())
    plain = figure_collectives(frame)
    for ax, without in zip(picture.axes, plain.axes, strict=True):
        assert len(ax.get_lines()) == len(without.get_lines()) + 2
    assert {"NMT of 000", "NMT of 004"} <= {text.get_text() for text in picture.axes[0].texts}
    assert "Dashed: the gradients of NMT of 000 (374 MB) and NMT of 004 (718 MB)." in picture.caption and "Dashed" not in plain.caption
