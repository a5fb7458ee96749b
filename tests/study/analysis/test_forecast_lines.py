"""Lines that are forecast, their test and their tables, from planted Records."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from multigpu.analysis import forecast_lines as of_records
from multigpu.analysis.forecast import PARTS
from multigpu.analysis.forecast_reduction import Links, reduction_seconds
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points, where
from multigpu.analysis.read import timed_steps
from multigpu_study.analysis import forecast_accuracy as accuracy
from tests.factory import make_point
from tests.refusals import refused


def planted(c=10.0, x=1.0, counts=(1, 2, 4), placement="ddp", spread=0.004, **fields):
    """Records of ResNet-50 whose rates follow the model on H200s' measured links; five repeats over
    five launches.
    """
    generator, records = np.random.default_rng(3), []
    links = of_records.measured_links("NVIDIA H200", no_collectives(), Links(1.0))
    for p in counts:
        first = make_point([1e3], placement=placement, devices=p, workload="cnn", **fields)
        inside = reduction_seconds(
            of_records.demand_of_point(frame_of(first).iloc[0], 1.0), p, links
        )[0]
        rates = 64 * p / (1e-3 * c + x * inside) * np.exp(generator.normal(0, spread, 5))
        records += make_point(
            list(rates), launches="abcde", placement=placement, devices=p, workload="cnn", **fields
        )
    return records


def no_collectives():
    return pd.DataFrame(
        {name: [] for name in ("kind", "gpu", "devices", "execution", "bytes", "time_s")}
    )


def made_lines(records, most=1024):
    frame = frame_of(records)
    found = of_records.lines_of(
        points(frame), frame, timed_steps(records), no_collectives(), of_records.NETWORK
    )
    return accuracy.forecast_lines(found, most, draws=100)


@pytest.fixture(scope="module")
def lines():
    records = (
        planted()
        + planted(x=2.0, placement="exp4")
        + planted(placement="independent")
        + planted(counts=(1, 4), placement="ps_gpu0")
    )
    return made_lines(records + planted(counts=(2, 4), placement="exp2"))


def test_planted_records_are_recovered_and_tables_hold_each_forecast_and_its_test(lines):
    found = {line.first["placement"]: line for line in lines}
    assert set(found) == {"ddp", "exp4", "ps_gpu0", "exp2"}, "independent replicas merge nothing"
    ddp, exp4 = found["ddp"], found["exp4"]
    assert ddp.forecast["computation_s"].iloc[0] == pytest.approx(10e-3, rel=0.01)
    assert (
        abs(ddp.held_out.error) < 0.02 and ddp.held_out.devices == 4 and len(ddp.residuals) == 15
    ), "its own"
    assert ddp.forecast["devices"].iloc[-1] == 1024 and ddp.links.inside_bytes_per_s > 1e11
    assert exp4.forecast["efficiency"].iloc[-1] < 0.1 < ddp.forecast["efficiency"].iloc[-1]
    assert found["ps_gpu0"].forecast is None, "two counts leave nothing to test"
    assert found["exp2"].forecast is None, "it was not measured on one device"
    table = where(accuracy.ahead_table(lines), placement="ddp")
    tested = accuracy.held_out_table(lines)
    assert tested[["placement", "devices", "n"]].to_numpy().tolist() == [
        ["ddp", 4, 5],
        ["exp4", 4, 5],
    ]
    assert table[list(PARTS)].sum(axis=1).to_numpy() == pytest.approx(table["step_s"].to_numpy())
    assert table["efficiency"].iloc[-1] == pytest.approx(ddp.forecast["efficiency"].iloc[-1])
    assert list(table["devices"][table["measured"]]) == [1, 2, 4]
    assert (table["efficiency_low"] <= table["efficiency"]).all() and (
        table["efficiency"] <= table["efficiency_high"]
    ).all()
    first = tested.iloc[0]
    assert first["efficiency"] / first["measured"] == pytest.approx(1 / (1 + first["error"])), (
        "the same step on one device under both"
    )
    assert set(ddp.rows["keys"].iloc[0].split(", ")) <= set(first["keys"].split(", "))
    plain = [line for line in lines if line.held_out]
    missed = replace(
        plain[0], held_out=replace(plain[0].held_out, measured_s=2 * plain[0].held_out.predicted_s)
    )
    before, after = (
        [line.held_out.high_s for line in accuracy.calibrated(every)]
        for every in (plain, [missed, *plain[1:]])
    )
    assert (
        after[0] == before[0]
        and max(np.subtract(after, before)[1:]) > 0
        and min(np.subtract(after, before)) >= 0
    )


def test_without_lines_there_is_no_row_and_a_forecast_goes_to_two_devices_at_least():
    assert made_lines([]) == []
    assert accuracy.ahead_table([]).empty and accuracy.held_out_table([]).empty
    refused("at least 2 devices, not 1", accuracy.forecast_lines, [], 1)
