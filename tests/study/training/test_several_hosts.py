"""Training on two hosts goes on from its checkpoint: as `tests.multigpu.hosts`, with
MULTIGPU_TEST_HOSTS=1.
"""

import json
import subprocess
import time
from pathlib import Path

from multigpu_study.training.record import TrainingStore
from tests.multigpu.hosts.failing import Hosts
from tests.multigpu.hosts.test_several_hosts import on_all, wait_for
from tests.multigpu.hosts.test_several_hosts import pytestmark as pytestmark


def train(hosts: Hosts, folder: Path) -> list[subprocess.Popen[str]]:
    """400 steps with a checkpoint every 20."""
    places = ["--folder", str(folder / "records"), "--checkpoints", str(folder / "checkpoints")]
    return on_all(hosts, [], "train", {"devices": 2, "steps": 400, "checkpoint_every": 20}, *places)


def test_training_goes_on_from_its_checkpoint_after_a_host_was_killed(tmp_path: Path) -> None:
    with Hosts(2, rate_mbit=1000) as hosts:
        programs = train(hosts, tmp_path)
        logs = wait_for(tmp_path / "checkpoints", "*/log.jsonl", programs)
        hosts.kill(1)
        began = time.monotonic()
        said = programs[0].communicate(timeout=60)[1]
        assert time.monotonic() - began < 60 and programs[0].returncode == 1
        assert (
            said.startswith("multigpu: host 1 (10.77.0.2) ended in the middle of the run")
            and said.count("\n") == 1
        ), said
        programs[1].communicate(timeout=10)
        reached = max(json.loads(line)["step"] for line in logs[0].read_text().splitlines())
        assert 0 < reached < 400 and not list((tmp_path / "records").glob("*/*.gz"))
        programs = train(hosts, tmp_path)
        ends = [program.communicate(timeout=200) for program in programs]
        assert [program.returncode for program in programs] == [0, 0], ends
    (record,) = TrainingStore(tmp_path / "records")
    assert record.status == "ok" and record.machine.hosts == 2 and record.measurement
    assert record.measurement.resumed_at and record.measurement.resumed_at[0] >= reached
