"""How soon a comparison on two CPU processes says something, by the clock of an idle computer."""

import math
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from multigpu import paths
from multigpu.user_model.placed import ONE
from multigpu.user_model.race import LAUNCHES
from multigpu.user_model.result import compared
from multigpu.workloads.own.description import FOLDERS

INTERVAL = re.compile(r">[\d,.]+ \([\d,.]+ to [\d,.]+\)")
"""A figure of the page's table with its interval."""

FIRST_S, BUDGET_S = 20.0, 60.0
WITHIN_S = 5.0  # of its end a budget holds
SLOWER = 2.5  # than one on which this holds, a computer may be
IDLE = 0.15  # of all cores, that others may use
MOST_BYTES = 2 << 20


def busy_s() -> float:
    """Seconds of all cores that something used, since this computer started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def own_s() -> float:
    """Seconds that this process used, and those that it started and that have ended."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in each)


def check_idle(before: tuple[float, float, float], told: str = "") -> None:
    """Skip the test where others used this computer: seconds are those of an idle one. told: what
    was found all the same.
    """
    passed, busy, own = (now - then for now, then in zip(moment(), before, strict=True))
    others = (busy - own) / passed
    if others > IDLE * (os.cpu_count() or 1):
        pytest.skip(f"others used {others:.1f} cores: seconds are those of an idle computer{told}")


def moment() -> tuple[float, float, float]:
    return time.monotonic(), busy_s(), own_s()


def followed(command: list[str], page: Path) -> tuple[list[tuple[float, str]], float]:
    """What the page said as long as the command ran, with when it was written; when it ended."""
    began_s, seen = time.monotonic(), list[tuple[float, str]]()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            time.sleep(0.05)
            if page.is_file() and (text := page.read_text()) != (seen[-1][1] if seen else ""):
                seen.append((time.monotonic() - began_s, text))
    assert process.returncode == 0
    return seen, time.monotonic() - began_s


@pytest.mark.alone
@pytest.mark.further  # of rounds and their pages `test_order` and `test_page` tell
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_interval_in_20_s_and_a_page_of_three_launches_in_60_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of a GPT; each page that stood meanwhile was whole."""
    before = moment()
    time.sleep(2.0)
    check_idle(before)
    monkeypatch.setenv(FOLDERS, "")
    job, out = paths.REPOSITORY / "examples" / "my_gpt.py", tmp_path / "out"
    asked = ["--devices", "2", "--device-type", "cpu", "--budget-s", f"{BUDGET_S:g}"]
    command = [sys.executable, "-m", "multigpu", "compare", f"{job}:job", *asked, "--quiet"]
    before = moment()
    pages, ended_s = followed([*command, "--out", str(out)], out / "index.html")
    assert all(text.rstrip().endswith("</html>") for _, text in pages)
    told = [f"{when_s:.1f} s: {len(INTERVAL.findall(text))}" for when_s, text in pages]
    check_idle(before, f"; intervals on the page: {', '.join(told)}")
    told_s = f"intervals on the page: {', '.join(told)}"
    assert ended_s <= BUDGET_S + WITHIN_S, told_s
    files = [path for path in out.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    assert not [path for path in files if path.suffix in (".job", ".pkl", ".pickle")]
    first_s = next((when_s for when_s, text in pages if INTERVAL.search(text)), math.inf)
    assert first_s <= SLOWER * FIRST_S, told_s
    if first_s > FIRST_S:
        pytest.skip(f"this computer is slower, or others used it: {told_s}")
    assert len(pages) >= LAUNCHES, "a page after each round"
    result = compared(out)
    assert result.race is not None
    counts = result.race.launches
    assert counts[result.race.leader] >= LAUNCHES and counts[ONE] >= LAUNCHES, told_s
