"""Shares of the lost speed, on Records whose rates were chosen by hand."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import lost_speed, lost_speed_page, lost_speed_protocols
from multigpu.analysis import lost_speed_sweeps as sweeps
from multigpu.analysis.figure_lost_speed import figure_lost_speed, figure_sweeps
from multigpu.analysis.frame import STEP_COLUMNS, frame_of
from multigpu.analysis.lost_speed import APART, CEILING, PROTOCOL, REST
from multigpu.analysis.lost_speed_causes import by_cause, told_apart
from multigpu.analysis.ordinary import ordinary
from multigpu.analysis.style import INK, look
from multigpu.grid.causes import CHAINS
from multigpu.record import Record
from multigpu.run import Run
from tests.factory import make_machine, make_record

TORCH = CHAINS[0]
SPEEDUPS = (1.0, 2.0, 4.0, 5.0, 5.5, 5.6, 6.4, 7.2)
"""Of PyTorch's eight ways on 8 GPUs."""
CEILING_SPEEDUP = 7.8
NO_STEPS = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in STEP_COLUMNS.items()})


def plant(run: Run, rate: float, repeats: int = 1, noise: float = 0.0, **more: Any) -> list[Record]:
    fields = run.model_dump()
    wobble = [1 + noise * (-1) ** n * (1 + n // 2) for n in range(repeats)]
    return [make_record(units_per_s=rate * w, repeat=n, launch_id="aab"[n % 3], **more, **fields) for n, w in enumerate(wobble)]


def chain_records(speedups: tuple[float | None, ...] = SPEEDUPS, devices: int = 8, ceiling: float | None = CEILING_SPEEDUP, **more: Any):
    """Every way of PyTorch's chain on one device (a million words a second, twice as many from way to way) and on `devices`."""
    records = []
    for place, (one, many, speedup) in enumerate(zip(TORCH.runs(1), TORCH.runs(devices), speedups, strict=True)):
        if speedup is not None:
            records += plant(one, 1e6 * 2**place, **more) + plant(many, 1e6 * 2**place * speedup, **more)
    if ceiling:
        records += plant(TORCH.ceiling_run(1), 1e9, **more) + plant(TORCH.ceiling_run(devices), 1e9 * ceiling, **more)
    return records


def steps_of(records: list[Record]) -> pd.DataFrame:
    rows = [
        (record.key, rank, step, step >= record.run.warmup_steps, time)
        for record in records
        if record.measurement
        for rank, times in enumerate(record.measurement.step_time_s)
        for step, time in enumerate(times)
    ]
    return pd.DataFrame(rows, columns=list(STEP_COLUMNS)).astype(STEP_COLUMNS)


def told(records: list[Record], steps: bool = True) -> pd.DataFrame:
    (ground,) = lost_speed.best_grounds(frame_of(records))
    return lost_speed.chain_table(ground, steps_of(records) if steps else NO_STEPS)


def shares(table: pd.DataFrame) -> dict[str, float]:
    found = by_cause(table)
    return {row["cause"]: row["share"] for _, row in found[found["share"].notna()].iterrows()}


def row(table: pd.DataFrame, way: str) -> pd.Series:
    return table[table["way"] == way].iloc[0]


def test_shares_are_logs_of_what_each_change_gives_and_add_up() -> None:
    table = told(chain_records())
    lost = math.log(8 / 1.0)
    names = [way.name for way in TORCH.ways]
    for name, before, after in zip(names, SPEEDUPS, SPEEDUPS[1:], strict=False):
        assert row(table, name)["speedup"] == pytest.approx(after)
        assert row(table, name)["share"] == pytest.approx(math.log(after / before) / lost)
    assert row(table, CEILING)["share"] == pytest.approx(math.log(7.8 / 7.2) / lost)
    assert row(table, REST)["share"] == pytest.approx(math.log(8 / 7.8) / lost)
    found = shares(table)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["host"] == pytest.approx(math.log(2 * 2 * 5 / 4 * 6.4 / 5.6) / lost)
    assert found["links"] == pytest.approx(math.log(5.5 / 5 * 7.8 / 7.2) / lost)
    # equal first steps on one and on eight cost both alike
    assert row(table, PROTOCOL)["share"] == pytest.approx(0.0, abs=1e-9) and row(table, "2018's way")["published"]


def test_the_protocol_is_what_the_same_records_lose_by_their_first_steps() -> None:
    records = chain_records()
    slow = records[1]
    assert slow.run.devices == 8 and slow.run.host_cores == 2 and slow.measurement
    steady = slow.measurement.wall_s / slow.run.timed_steps
    # one first step as long as 50: with 49 others, 99 in place of 50; on one device all are alike
    times = [50 * steady] + [steady] * (slow.run.warmup_steps + slow.run.timed_steps - 1)
    alone_s = steady / 8
    planted = [(0, [[alone_s] * len(times)]), (1, [times] * 8)]
    for place, each in planted:
        measured = records[place].measurement
        assert measured
        records[place] = records[place].model_copy(update={"measurement": measured.model_copy(update={"step_time_s": each})})
    table = told(records)
    first = row(table, "2018's way")["speedup"]
    assert first == pytest.approx(50 / 99)
    assert row(table, PROTOCOL)["share"] == pytest.approx(math.log(99 / 50) / math.log(8 / first))
    (ground,) = lost_speed.best_grounds(frame_of(records))
    rows = lost_speed_protocols.protocol_rows([ground], steps_of(records))
    own = rows.iloc[0]
    assert own["published"] == pytest.approx(50 / 99) and own["corrected"] == pytest.approx(1.0)
    assert own["first_over_rest"] == pytest.approx(99 / 50)
    # a second of building on either side
    assert own["building"] == pytest.approx(8 * (50 * alone_s + 1) / (99 * steady + 1))
    said = lost_speed_protocols.protocol_finding(rows)
    assert "“2018's way”" in said and "0.51 as published" in said
    assert "with building" in lost_speed_protocols.protocol_html(rows).html


def test_a_way_without_a_record_is_named_and_never_assumed() -> None:
    # neither "a process a device" (host) nor the rest but the all-reduce (links): not told apart
    table = told(chain_records((1.0, None, 4.0, None, 5.5, 5.6, 6.4, 7.2)))
    one_call, merged = row(table, "cells in one call"), row(table, "all-reduce overlapped (ddp)")
    assert one_call["cause"] == "host" and one_call["spans"] == "all host cores, cells in one call"
    assert one_call["share"] == pytest.approx(math.log(4) / math.log(8))
    assert merged["cause"] == APART and merged["spans"] == "a process a device, all-reduce overlapped (ddp)"
    assert row(table, "a process a device")["why"] == "not measured on 1 and 8"
    assert sum(shares(table).values()) == pytest.approx(1.0)
    said = lost_speed_page.chain_finding(table)
    assert "Not measured, and so not told: all host cores and a process a device" in said and "causes not told apart" in said
    assert "not measured on 1 and 8" in lost_speed_page.chain_html([table]).html


def test_the_answer_names_what_was_measured_once() -> None:
    table = told(chain_records())
    several = table.assign(n=table["n"].clip(upper=1) * 5, n_one=table["n_one"].clip(upper=1) * 5)
    assert "Measured once" not in lost_speed_page.chain_finding(several)
    few = several.assign(n_one=several["n_one"].mask(several["way"].eq("loss in one piece"), 1))
    assert "Measured once, so that shares beside them are screening: “loss in one piece”." in lost_speed_page.chain_finding(few)


def test_what_is_left_over_names_what_was_not_measured() -> None:
    """The last two ways and the ceiling lack: what they would give back is in what is left over."""
    table = told(chain_records((*SPEEDUPS[:-2], None, None), ceiling=None))
    said = lost_speed_page.chain_finding(table)
    assert "is left over, which holds what was not measured: “step as one graph”, “a larger batch” and independent replicas" in said
    assert "left over, 3 not measured" in lost_speed_page.chain_html([table]).html
    whole = told(chain_records())
    assert "which holds" not in lost_speed_page.chain_finding(whole) and "left over, " not in lost_speed_page.chain_html([whole]).html
    assert "Of the factor of 8.00 that the first one loses, the host took " in lost_speed_page.chain_finding(whole)


def test_shares_of_one_measurement_are_marked_where_they_stand() -> None:
    """Of five repeats each, the loss in one piece was measured once on one device: the work in a step then rests on n = 1."""
    records = chain_records(repeats=5, noise=0.004)
    piece = TORCH.runs(1)[5].digest
    table = told([record for record in records if record.run.digest != piece or record.repeat == 0])
    said = lost_speed_page.shares_findings([table])[0]
    assert re.search(r"the work in a step \d[^,;]*% \(n = 1\)", said) and "rest on n = 1" not in said
    assert not re.search(r"the protocol [^,;]*\(n = 1\)", said)


def test_single_changes_that_are_told_from_none_are_named_where_no_cause_is() -> None:
    table = told(chain_records(repeats=5, noise=0.004))
    wide = by_cause(table).assign(share_low=-1.0, share_high=1.0)
    text = lost_speed_page._surely(
        wide,
        table.assign(
            share_low=table["share_low"].where(table["way"].eq(CEILING)), share_high=table["share_high"].where(table["way"].eq(CEILING))
        ),
    )
    assert text.startswith(" Launches differ too much to tell any cause from 0; of single changes: “nothing merged (independent)” ")
    sure = figure_lost_speed([table]).finding
    assert re.search(r"“(cells in one call|all host cores)” gives back 3[34](\.\d)?% of what was lost", sure), "a doubling of eight times"


def test_this_computers_section_has_its_heading_with_it() -> None:
    assert lost_speed_page.on_this_computer([]) is None
    here = lost_speed_page.on_this_computer([told(chain_records())])
    assert here is not None
    html = here.html
    assert html.startswith("<h2>On this computer</h2>") and "8 CPU processes" in html


def test_one_side_alone_is_no_speedup() -> None:
    records = [record for record in chain_records() if record.run.devices == 8 or record.run.host_cores != 2]
    table = told(records)
    assert row(table, "2018's way")["why"] == "not measured on 1" and math.isnan(row(table, "2018's way")["speedup"])
    assert row(table, "all host cores")["published"] and "those before it could not be told" in lost_speed_page.chain_finding(table)


def test_the_ceiling_of_a_way_that_was_not_measured_tells_nothing() -> None:
    table = told(chain_records((*SPEEDUPS[:-1], None)))
    assert math.isnan(row(table, CEILING)["share"]) and row(table, CEILING)["speedup"] == pytest.approx(7.8)
    assert row(table, REST)["share"] == pytest.approx(math.log(8 / 6.4) / math.log(8))


def test_without_step_times_there_is_no_protocol_to_tell() -> None:
    table = told(chain_records(), steps=False)
    assert row(table, PROTOCOL)["why"] == "no step times" and not table["published"].any()
    assert row(table, "all host cores")["share"] == pytest.approx(math.log(2) / math.log(8))
    assert row(table, "all host cores")["cause"] == "host"


def test_intervals_come_with_repeats_and_hold_the_share() -> None:
    table = told(chain_records(repeats=5, noise=0.004))
    way = row(table, "cells in one call")
    assert way["low"] < way["speedup"] < way["high"] and way["share_low"] < way["share"] < way["share_high"]
    assert way["share_high"] - way["share_low"] < 0.1 and (way["n_one"], way["n"]) == (5, 5)
    assert math.isnan(row(told(chain_records()), "cells in one call")["share_low"])


def test_causes_add_up_in_shares_and_multiply_in_speed() -> None:
    table = told(chain_records(repeats=5, noise=0.004))
    found = by_cause(table).set_index("cause")
    ways = table[table["speedup"].notna() & ~table["way"].eq(CEILING)]
    known = found[found["faster"].notna()]
    assert known["faster"].prod() == pytest.approx(ways["rate"].iloc[-1] / ways["rate"].iloc[0])
    # rates double on one device from way to way: cores, one call, a process each and the graph are the host's
    assert found.loc["host", "faster"] == pytest.approx(2**4 * 2 * 2 * 5 / 4 * 6.4 / 5.6)
    assert found.loc["links", "faster"] == pytest.approx(2 * 5.5 / 5), "the ceiling trains no common model"
    assert found.loc["links", "share"] > math.log(5.5 / 5) / math.log(8) and found["share"].sum() == pytest.approx(1.0)
    assert (known["faster_low"] < known["faster"]).all() and (found["share_low"] <= found["share"]).all()
    assert {"host", "links", "work"} <= set(told_apart(found.reset_index()))


def test_bounds_of_a_cause_are_those_of_its_ways() -> None:
    """One way a cause, nothing published: the bounds are the ways' own, beside what the width of the first adds to a share."""
    table = told(chain_records(repeats=5, noise=0.004), steps=False)
    way, found = row(table, "all-reduce overlapped (ddp)"), by_cause(table.assign(cause=table["way"])).set_index("cause")
    own = found.loc["all-reduce overlapped (ddp)"]
    assert own["share"] == pytest.approx(way["share"]) and own["faster"] == pytest.approx(way["faster"])
    assert own["share_high"] - own["share"] == pytest.approx(way["share_high"] - way["share"], rel=0.25)
    assert math.log(own["faster_high"] / own["faster"]) == pytest.approx(math.log(way["faster_high"] / way["faster"]), rel=0.25)
    once = by_cause(told(chain_records()))
    assert once[["share_low", "faster_low"]].isna().all().all() and once["share"].notna().all()


def test_what_the_protocol_changes_varies_by_itself() -> None:
    """The same Records timed twice: however far launches lie apart, the difference of the two is sure."""
    records = chain_records(repeats=5, noise=0.1)
    found = by_cause(told(records)).set_index("cause")
    assert found.loc["protocol", "share_high"] - found.loc["protocol", "share_low"] < 0.01
    assert found.loc["host", "share_high"] - found.loc["host", "share_low"] > 0.1
    said = lost_speed_page.chain_finding(told(records))
    assert "Launches differ" in said and "as many words a second there: the host" in said
    html = lost_speed_page.speed_table([told(records), lost_speed.document_chain()]).html
    assert "PyTorch (8)" in html and "Document 000" not in html


def test_the_nearest_way_says_that_its_warm_up_is_left_out() -> None:
    """A chain of one way has two speedups; the corrected one is not what its row of that name says."""
    table = told(chain_records((None, 3.0, None, None, None, None, None, None), devices=4, ceiling=None))
    assert "“all host cores, warm-up left out” comes nearest with 3.00 times" in lost_speed_page.seven_finding([table])


def test_seven_on_eight() -> None:
    sure = told(chain_records(repeats=5, noise=0.001))
    said = lost_speed_page.seven_finding([sure])
    assert said.startswith("**What passing 7 on 8 takes.** PyTorch on 8 GPUs passes 7 with “a larger batch”, 7.20 times")
    found, unsure = lost_speed_page.passing(sure)
    assert found is not None and found["way"] == "a larger batch" and not unsure
    wide = told(chain_records((1.0, 2.0, 4.0, 5.0, 5.5, 5.6, 7.05, 7.9), repeats=5, noise=0.03, ceiling=None))
    found, unsure = lost_speed_page.passing(wide)
    assert unsure == ["step as one graph"] and (found is None or found["way"] == "a larger batch")
    never = told(chain_records((1.0, 2.0, 4.0, 5.0, 5.5, 5.6, 6.0, 6.4)))
    assert "no measured way surely passes 7; “a larger batch” comes nearest" in lost_speed_page.seven_finding([never])


def test_fewer_than_eight_are_said_to_be_fewer() -> None:
    table = told(chain_records((1.0, 1.2, 2.0, 3.6, 3.4, 3.7, 3.8, 3.9), devices=4, ceiling=3.95))
    said = lost_speed_page.seven_finding([table])
    assert "is not known yet: no chain was measured on 8 GPUs" in said and "87.5%" in said
    assert "PyTorch on 4 GPUs passes 3.5 with “a process a device”, 3.60 times one, measured once" in said
    assert "“all-reduce overlapped (ddp)” after it falls below" in said
    # the most devices that have half of the ways
    both = [*chain_records((1.0, 1.2, 2.0, 3.6, 3.4, 3.7, 3.8, 3.9), devices=4, ceiling=None), *plant(TORCH.runs(8)[0], 1e6)]
    assert [ground.devices for ground in lost_speed.best_grounds(frame_of(both))] == [4]


def test_where_more_of_a_chain_was_measured_it_is_told_too() -> None:
    """Six of the ways on 4 devices of one machine, all eight on 2 of another."""
    on_four = chain_records((None, None, 2.0, 3.6, 3.4, 3.7, 3.8, 3.9), devices=4, ceiling=3.95)
    on_two = chain_records((0.8, 0.9, 1.2, 1.8, 1.7, 1.8, 1.9, 1.95), devices=2, ceiling=1.98, machine=make_machine(2))
    frame = frame_of([*on_four, *on_two])
    (best,) = lost_speed.best_grounds(frame)
    (fuller,) = lost_speed.fuller_grounds(frame, [best])
    assert (best.devices, best.ways, fuller.devices, fuller.ways) == (4, 6, 2, 8)
    tables = [lost_speed.chain_table(ground, NO_STEPS) for ground in (best, fuller)]
    html = lost_speed_page.chain_html(tables[1:]).html
    assert "PyTorch, 2 GPUs of 2x-nvidia-h200" in html and "not measured" not in html
    said = lost_speed_page.findings(tables[:1], tables[1:])
    assert len(said) > 2 and lost_speed_page.answer(tables[:1], tables[1:]) == [said[0], said[-1]], "the rest stands beside its table"
    assert lost_speed_page.further(tables[:1], tables[1:]) == said[1:-1]
    assert said[0].startswith("**PyTorch on 2 GPUs of 2x-nvidia-h200**, of what is lost from 2018's way on: the host took ")
    assert said[1].startswith("**PyTorch on 4 GPUs of 8x-nvidia-h200**, of what is lost from “cells in one call” on: ")
    unknown = "How 2018's whole loss divides is not known of PyTorch on 4 GPUs: its own way was not measured there."
    assert "(all rest on n = 1)" in said[1] and said[2] == unknown and "What passing 7 on 8 takes" in said[3]
    assert lost_speed_page.findings(tables[:1])[0] == unknown, "where 2018's way was measured of no chain, that comes first"
    assert not any("not known of" in text for text in lost_speed_page.findings([], tables[1:]) + lost_speed_page.findings(tables[1:]))
    figure = figure_lost_speed([tables[1], tables[0]])
    assert figure.finding.startswith("From 0.80 to 1.95 times one on 2 GPUs (PyTorch)"), "the chain that has 2018's way"
    assert "gives back" not in figure.finding, "measured once"
    alone = figure_lost_speed(tables[:1]).finding
    assert alone == "From 2.00 to 3.90 times one on 4 GPUs (PyTorch); 2018's way itself was not measured there"
    assert lost_speed.fuller_grounds(frame, [fuller]) == []
    # whole graphs of the smaller machine are read under the larger one's name, and are its own all the same
    lent = frame["machine"].eq("2x-nvidia-h200") & frame["execution"].eq("captured")
    frame.loc[lent, "machine"] = best.frame["machine"].iloc[0]
    assert lent.sum() == 6 and [ground.ways for ground in lost_speed.fuller_grounds(frame, [best])] == [8]


def test_nothing_lost_is_nothing_shared_out() -> None:
    table = told(chain_records((8.5, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0)))
    assert shares(table) == {} and "loses nothing" in lost_speed_page.chain_finding(table)


def test_machines_and_versions_never_share_a_chain() -> None:
    other = chain_records(versions={"torch": "2.11.0"})
    records = [record for record in chain_records() if record.run.devices == 1] + [r for r in other if r.run.devices == 8]
    assert lost_speed.best_grounds(frame_of(records)) == []
    assert lost_speed_page.answer([]) == [lost_speed_page.NOTHING] and lost_speed_page.further([]) == []
    assert lost_speed_page.findings([]) == [lost_speed_page.NOTHING]


def test_the_documents_own_figures() -> None:
    table = lost_speed.document_chain()
    assert list(table["speedup"])[:4] == [1.76, 4.89, 6.44, 7.59]
    assert table["share"].sum() == pytest.approx(1.0)
    assert table["share"].iloc[1] == pytest.approx(math.log(4.89 / 1.76) / math.log(8 / 1.76))
    assert "Document 000 (8)" in lost_speed_page.share_table([table]).html


def test_figures_name_their_machine_and_show_what_is_missing() -> None:
    table = told(chain_records((1.0, None, 4.0, 5.0, 5.5, 5.6, 6.4, 7.2)))
    picture = figure_lost_speed([table, lost_speed.document_chain()])
    assert "8x-nvidia-h200" in picture.caption and picture.finding.startswith("From 1.00 to 7.20 times one on 8 GPUs")
    words = [text.get_text() for ax in picture.axes for text in ax.texts]
    assert "not measured on 1 and 8" in words and "7.59" in words and len(picture.axes) == 2
    nothing = sweeps.sweep_rows("host_cores", [], frame_of([]), pd.DataFrame())
    assert "No chain" in figure_lost_speed([]).alt and "No sweep" in figure_sweeps([("host cores", nothing)]).alt


def sweep_records() -> list[Record]:
    records = chain_records()
    for cores, speedup in ((1, 1.5), (2, 2.5), (8, 5.0)):
        for count, rate in ((1, 1e6), (8, 1e6 * speedup)):
            records += plant(TORCH.runs(count)[4].model_copy(update={"host_cores": cores}), rate)
    big = TORCH.runs(1)[-1].model_copy(update={"batch_size": 512})
    fields = big.model_dump()
    return [*records, make_record(status="out_of_memory", reason="no room", **fields)]


def test_a_sweep_stands_on_the_machine_that_measured_most_of_it() -> None:
    """Eight GPUs have the chain and all cores alone; two have the host's cores too, and a batch that did not fit."""
    two = make_machine(2)
    here = [record.model_copy(update={"machine": two}) for record in sweep_records() if record.run.devices == 1]
    for cores, speedup in ((1, 0.9), (2, 1.1), (8, 1.5), (None, 1.8 * 2**4)):
        here += plant(TORCH.runs(2)[4].model_copy(update={"host_cores": cores}), 1e6 * speedup, machine=two)
    frame = frame_of([*chain_records(), *here])
    told = [*lost_speed.best_grounds(frame), *lost_speed.grounds(frame, TORCH)]
    assert [ground.devices for ground in told] == [8, 8, 2]
    rows = sweeps.sweep_rows("host_cores", told, frame, pd.DataFrame())
    assert set(rows["machine"]) == {two.name} and set(rows["devices"]) == {1, 2}
    assert "Host cores, on 2 GPUs. PyTorch ddp: 0.90 times one with “1”" in sweeps.sweep_finding(rows, "host_cores")
    assert two.name in sweeps.sweep_table(rows, "host_cores").html
    batches = sweeps.sweep_rows("batch", told, frame, pd.DataFrame())
    assert set(batches["machine"]) == {"8x-nvidia-h200"}, "of as many points the first ground's"
    lent = frame.assign(machine=frame["machine"].where(frame["status"].eq("ok"), "8x-nvidia-h200"))
    own = sweeps.sweep_rows("batch", told[2:], lent, pd.DataFrame())
    assert own[own["value"].eq("512") & own["devices"].eq(1)]["status"].isin(["out_of_memory"]).any(), "read under the other's name"
    picture = figure_sweeps([("host cores", rows)])
    assert len(picture.axes) == 1 and two.name in picture.caption
    assert len(sweeps.sweep_keys(told)) > len(sweeps.sweep_keys(told[:1]))


def test_sweeps_tell_one_cause_and_name_what_is_missing() -> None:
    frame = frame_of(sweep_records())
    grounds = lost_speed.best_grounds(frame)
    traced = frame[frame["execution"].eq("eager") & frame["recurrence"].eq("stepwise") & frame["host_cores"].isna()].assign(
        kernels=37_000.0
    )
    rows = sweeps.sweep_rows("host_cores", grounds, frame, traced)
    ddp = rows[rows["way"].eq("PyTorch ddp") & rows["devices"].eq(8)].set_index("value")["speedup"]
    assert ddp["1"] == pytest.approx(1.5) and ddp["8"] == pytest.approx(5.0) and ddp["all"] == pytest.approx(5.5) and math.isnan(ddp["4"])
    assert "PyTorch ddp: 1.50 times one with “1” and 5.50 times one with “all”" in sweeps.sweep_finding(rows, "host_cores")
    slower = rows.assign(rate=rows["rate"].where(~(rows["value"].eq("all") & rows["devices"].eq(1)), 7e5))
    assert "while one alone trains 0.70 times as many" in sweeps.sweep_finding(slower, "host_cores").replace("0.700", "0.70")
    assert "PyTorch ddp (4)" in sweeps.sweep_table(rows, "host_cores").html
    batches = sweeps.sweep_rows("batch", grounds, frame, traced)
    assert "out of memory" in sweeps.sweep_table(batches, "batch").html
    assert "ddp, one graph: 360" in sweeps.best_text(batches) and "512 did not fit" in sweeps.best_text(batches)
    cells = sweeps.sweep_rows("recurrence", grounds, frame, traced)
    assert "PyTorch Exp4, one process, a loop: 37,000" in sweeps.kernels_finding(cells, {"stepwise cells": 37_644})
    processes = sweeps.sweep_rows("processes", grounds, frame, traced)
    assert "Exp4, cells in one call: 4.00 times one with “one for all” and 5.00 times one with “one a device”" in sweeps.sweep_finding(
        processes, "processes"
    )
    chain = frame_of(chain_records())  # all cores alone: a column of one value is no sweep
    single = sweeps.sweep_table(sweeps.sweep_rows("host_cores", lost_speed.best_grounds(chain), chain, traced), "host_cores").html
    assert "<table" not in single and "One value alone: " in single and "PyTorch ddp (all)" in single
    picture = figure_sweeps([("host cores", rows), ("batch a device", batches)])
    assert len(picture.axes) == 2 and "1 1.50" in picture.alt
    assert {line.get_color() for ax in picture.axes for line in ax.lines} <= {look("ddp").colour, look("exp4").colour, INK}
    assert len(sweeps.sweep_keys(grounds)) > 10


def test_other_pages_do_not_speak_of_these_runs() -> None:
    frame = frame_of(chain_records())
    kept = ordinary(frame)
    assert kept["recurrence"].isna().all() and kept["host_cores"].isna().all() and len(kept) == len(frame) - 4


def test_the_documents_speedups_stand_beside_ours() -> None:
    records = chain_records()
    frame = frame_of(records)
    html = lost_speed_protocols.beside_document(lost_speed.best_grounds(frame), steps_of(records), frame).html
    assert "1.76" in html and "7.20" in html and "PyTorch: last way, corrected" in html
