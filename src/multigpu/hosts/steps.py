"""Training steps between hosts made on this machine: the measuring command on each of them, as on real hosts.

`multigpu.hosts.measure` calls it; by hand the same is `measure ... --nnodes` on every host.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from multigpu.hosts.cluster import Cluster, as_machine, slug
from multigpu.hosts.grid import Steps
from multigpu.hosts.namespaces import Hosts
from multigpu.measure.launch import Summary, launch_environment
from multigpu.measure.machine import framework_version, this_host
from multigpu.measure.timing import TIMING_VERSION
from multigpu.measure.turn import turn
from multigpu.record import RecordStore, record_key
from multigpu.run import Run

PATIENCE_S = 120.0
"""For starting programs and meeting, beside what the Runs may take."""


def command(run: Run, store: RecordStore, hosts: Hosts, host: int, repeats: int, retry: Sequence[str], timeout_s: float) -> list[str]:
    """The words of the measuring command on one host."""
    fields = {**run.model_dump(exclude_defaults=True), "device_type": run.device_type}
    words = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in fields.items()]
    several = ["--nnodes", str(hosts.count), "--node-rank", str(host), "--rendezvous", hosts.address(0), "--per-host", "1"]
    options = ["--network", hosts.description, "--repeats", str(repeats), "--timeout", f"{timeout_s:g}", "--quiet"]
    again = [word for status in retry for word in ("--retry", status)]
    program = [sys.executable, "-m", "multigpu", "--records", str(store.root.resolve()), "measure"]
    return [*hosts.prefix(host), *program, *words, *several, *options, *again]


def missing(run: Run, store: RecordStore, hosts: Hosts, repeats: int, retry: Sequence[str]) -> int:
    """How many of a Run's repeats have no Record from such hosts."""
    cluster = Cluster(hosts=hosts.count, per_host=1, network=hosts.description, link=slug(hosts.description.partition(",")[0]))
    machine = as_machine(this_host(), cluster).name
    keys = [record_key(run, repeat, machine, framework_version(run.framework), TIMING_VERSION) for repeat in range(repeats)]
    known = [store.find(machine, key) for key in keys]
    return sum(record is None or record.status in retry for record in known)


def measure_steps(part: Steps, store: RecordStore, budget_s: float, repeats: int = 1, retry: Sequence[str] = ()) -> Summary:
    """Measure in order what has no Record, for at most about `budget_s` seconds: every Run on as many hosts as it has devices.

    A Run whose framework is not installed is left out, and the summary says so.
    """
    began, summary = time.monotonic(), Summary()
    store.check_writable()
    for run in part.runs:
        if framework_version(run.framework) == "none":
            summary.troubles.append(f"left out: {run.label()}: {run.framework} is not installed here")
            continue
        with turn(), Hosts(run.devices, part.rate_mbit) as hosts:
            count = missing(run, store, hosts, repeats, retry)
            summary.reused += repeats - count
            if not count:
                continue
            if time.monotonic() - began > budget_s:
                summary.statuses["left for a longer budget"] += count
                continue
            said = _on_all(hosts, [command(run, store, hosts, host, repeats, retry, part.timeout_s) for host in range(run.devices)], part)
            left = missing(run, store, hosts, repeats, retry)
            summary.statuses["measured"] += count - left
            if left:
                summary.troubles.append(f"not measured: {run.label()}: {said or 'it left no message'}")
    summary.wall_s = time.monotonic() - began
    return summary


def _on_all(hosts: Hosts, commands: Sequence[Sequence[str]], part: Steps) -> str:
    """Run one command on each host; what the first of them said last."""
    # the hosts share one machine's processors: a thread that waits by spinning would take the turn of another host's
    environment = launch_environment() | hosts.environment | {"OMP_WAIT_POLICY": "passive"}
    programs = [
        subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for words in commands
    ]
    until = time.monotonic() + part.timeout_s + PATIENCE_S
    said = ""
    try:
        for program in reversed(programs):
            said = program.communicate(timeout=max(1.0, until - time.monotonic()))[1]
    except subprocess.TimeoutExpired:
        return f"the hosts did not end within {part.timeout_s + PATIENCE_S:.0f} s"
    finally:
        for program in programs:
            if program.poll() is None:
                program.kill()
            program.wait()
    return said.strip().splitlines()[-1] if said.strip() else ""
