"""Machines as rows: the latest Record describes each, links and ceilings are named with their kind and source."""

from __future__ import annotations

from pathlib import Path

import pytest

from multigpu.analysis import limits
from multigpu.analysis.machines import MACHINE_COLUMNS, ceilings_frame, machines_frame
from tests.factory import make_machine, make_record


def test_machines_are_described_once_by_their_latest_record() -> None:
    old = make_record(machine=make_machine(8).model_copy(update={"driver": "1"})).model_copy(update={"measured_at": "2025-01-01"})
    records = [make_record(), old, make_record(machine=make_machine(0))]
    table = machines_frame(records).set_index("machine")
    row = table.loc["8x-nvidia-h200"]
    assert (row["driver"], row["gpus"], row["links"], row["records"], row["first_day"]) == ("570.0", 8, "NVLink", 2, "2025-01-01")
    assert len(table) == 2 and table["gpus"].min() == 0 and table.loc[table["gpus"].eq(0), "links"].eq("").all()
    assert list(machines_frame([]).columns) == list(MACHINE_COLUMNS)


def test_every_kind_of_link_is_named() -> None:
    machine = make_machine(4)
    links = [row[:] for row in machine.links]
    links[0][3] = "PCIe"
    (row,) = machines_frame([make_record(machine=machine.model_copy(update={"links": links}))]).to_dict("records")
    assert set(row["links"].split(", ")) == {"NVLink", "PCIe"}


def test_ceilings_name_their_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("multigpu.paths.RUNS", tmp_path)  # without measured ones
    monkeypatch.setattr("multigpu.analysis.machines.ceilings", limits.ceilings.__wrapped__)
    table = ceilings_frame("NVIDIA H200").set_index("quantity")
    assert set(table["how"]) == {"datasheet"} and table.loc["device_link", "value"] == 450e9
    assert ceilings_frame("Tesla P100").empty
