"""The measuring program on two hosts: one command on each, a Record on the first, and a lost host
ends it in one sentence. Each launch imports a framework four times, a minute of two cores in all:
run these with MULTIGPU_TEST_HOSTS=1.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.namespaces import why_not

from multigpu.records.record import RecordStore
from tests.multigpu.hosts.failing import Hosts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not os.environ.get("MULTIGPU_TEST_HOSTS"),
        reason="a minute of two cores: set MULTIGPU_TEST_HOSTS=1",
    ),
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]
FIELDS = {
    "workload": "nmt",
    "model": "nmt_tiny",
    "placement": "ddp",
    "device_type": "cpu",
    "batch_size": 4,
    "sequence_length": 5,
}


def on_all(
    hosts: Hosts, options: list[str], command: str, fields: dict[str, object], *more: str
) -> list[subprocess.Popen[str]]:
    """The same command on every host."""
    words = [
        *options,
        command,
        *(f"{name}={value}" for name, value in (FIELDS | fields).items()),
        *more,
        "--quiet",
    ]
    words += [
        "--nnodes",
        str(hosts.count),
        "--rendezvous",
        hosts.address(0),
        "--network",
        "1 Gbit/s",
    ]
    return [
        subprocess.Popen(
            [
                *hosts.prefix(host),
                sys.executable,
                "-m",
                "multigpu",
                *words,
                "--node-rank",
                str(host),
            ],
            env=os.environ | hosts.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in range(hosts.count)
    ]


def start(hosts: Hosts, records: Path, **fields: object) -> list[subprocess.Popen[str]]:
    return on_all(hosts, ["--records", str(records)], "measure", fields, "--repeats", "2")


def wait_for(folder: Path, pattern: str, programs: list[subprocess.Popen[str]]) -> list[Path]:
    """The first files there, while all programs run."""
    until = time.monotonic() + 200
    while not (found := list(folder.glob(pattern))):
        assert time.monotonic() < until and all(program.poll() is None for program in programs), [
            p.communicate() for p in programs
        ]
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("how", ["kill", "unplug"])
@pytest.mark.parametrize(
    "framework",
    [{}, {"framework": "tensorflow", "placement": "multi_worker", "execution": "graph"}],
    ids=len,
)
def test_a_lost_host_ends_the_run_and_the_same_command_goes_on(
    tmp_path: Path, how: str, framework: dict[str, str]
) -> None:
    if framework:
        pytest.importorskip("tensorflow")
    with Hosts(2, rate_mbit=1000) as hosts:
        programs = start(hosts, tmp_path, devices=2, warmup_steps=5, timed_steps=400, **framework)
        wait_for(tmp_path, "*/*.gz", programs)
        time.sleep(1)  # one of the two measurements is done, and the other under way
        getattr(hosts, how)(1)
        began = time.monotonic()
        said = programs[0].communicate(timeout=60)[1]
        assert time.monotonic() - began < 60
        assert (
            programs[0].returncode == 1
            and said.count("\n") == 1
            and said.startswith("multigpu: host 1 (10.77.0.2) ")
        )
        assert (
            "has not been heard of for 20 s: it or its link is down"
            if how == "unplug"
            else "its connection was closed"
        ) in said
        assert "the same commands go on from there" in said
        if how == "unplug":
            assert (
                "host 0 (10.77.0.1) has not been heard of" in programs[1].communicate(timeout=60)[1]
            )
            hosts.plug(1)
        else:
            programs[1].communicate(timeout=10)
        programs = start(hosts, tmp_path, devices=2, warmup_steps=5, timed_steps=400, **framework)
        ends = [program.communicate(timeout=200) for program in programs]
        assert [program.returncode for program in programs] == [0, 0], ends
        assert ends[0][0].splitlines()[-1].startswith("1 ok; 1 measured before")
    records = list(RecordStore(tmp_path))
    assert sorted(record.repeat for record in records) == [0, 1] and all(
        record.status == "ok" for record in records
    )
    for record in records:
        assert (
            record.machine.hosts,
            record.machine.processes_per_host,
            record.machine.network,
        ) == (2, 1, "1 Gbit/s")
        assert record.machine.name.startswith("1-a-host-1-gbit-s-")
        assert record.measurement and record.measurement.replicas_agree
        assert (
            record.measurement.moved_bytes == record.measurement.predicted_bytes
            and record.measurement.flags == []
        )


def test_what_several_hosts_cannot_run_is_refused_on_all(tmp_path: Path) -> None:
    with Hosts(2) as hosts:
        programs = start(hosts, tmp_path, devices=2, placement="exp1")
        ends = [program.communicate(timeout=100)[1] for program in programs]
    assert (
        programs[0].returncode == 2
        and "'exp1' uses memory that one host's processes share" in ends[0]
    )
    assert (
        programs[1].returncode == 1
        and "'exp1' uses memory that one host's processes share" in ends[1]
    )
    assert json.dumps(ends).count("Traceback") == 0
