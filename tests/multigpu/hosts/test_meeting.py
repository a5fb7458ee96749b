"""Hosts hear of each other's end: killed, unplugged, differing or absent, in one sentence each."""

import contextlib
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from benchmarks.namespaces import why_not

from multigpu.machine.line import connect
from multigpu.runner.hosts import meeting
from multigpu.runner.hosts.meeting import HostLost, Meeting
from tests.multigpu.hosts.failing import Hosts
from tests.patience import PATIENCE_S
from tests.refusals import refused


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def meetings(*abouts: dict[str, str]) -> list[Any]:
    """One meeting of so many hosts, all in this process; what each got or what it raised."""
    port = free_port()

    def enter(host: int) -> Any:
        try:
            return Meeting(
                len(abouts), host, "127.0.0.1", port, abouts[host], entry_s=10, silence_s=5
            )
        except (HostLost, ValueError) as error:
            return error

    with ThreadPoolExecutor(len(abouts)) as pool:
        return list(pool.map(enter, range(len(abouts))))


def test_words_travel_and_an_orderly_end_is_no_loss() -> None:
    first, second, third = meetings({}, {}, {})
    first.tell("plan", number=7)
    assert second.hear("plan")["number"] == third.hear("plan")["number"] == 7
    third.tell("ended", code=1)
    assert first.hear("ended")["code"] == 1 and first.take("ended") is None
    second.__exit__(None, None, None)
    time.sleep(0.1)
    first.check()
    third.check()
    first.__exit__(None, None, None)
    refused("host 0 has left", third.hear, "plan", error=HostLost)
    third.__exit__(None, None, None)


def test_a_host_that_fails_says_why() -> None:
    first, second, third = meetings({}, {}, {})
    second.__exit__(ValueError, ValueError("its disk is full"), None)
    for host in (first, third):
        refused("its disk is full", host.hear, "plan", error=HostLost)
        host.__exit__(None, None, None)


def test_hosts_that_differ_are_refused_on_all() -> None:
    found = meetings({"PyTorch": "2.13"}, {"PyTorch": "2.11"})
    assert all(
        isinstance(one, ValueError)
        and "host 1 (127.0.0.1) has PyTorch '2.11' and not '2.13'" in str(one)
        for one in found
    )


def test_a_host_that_does_not_come_is_named() -> None:
    absent = r"host 0 waited 0 s for hosts \[1, 2\], which did not come"
    refused(absent, Meeting, 3, 0, "127.0.0.1", free_port(), entry_s=0.2, error=HostLost)
    refused(
        r"host 0 did not answer at 127\.0\.0\.1:1 within 0 s",
        Meeting,
        2,
        1,
        "127.0.0.1",
        1,
        entry_s=0.2,
        error=HostLost,
    )
    refused("host 2 does not exist among 2", Meeting, 2, 2, "127.0.0.1", 1)


def framed(said: bytes) -> bytes:
    """A message as `multiprocessing.connection` sends it."""
    return len(said).to_bytes(4, "big") + said


STRANGERS = {
    "silent": b"",
    "half a word": b'{"word": "hello", "host',
    "web": b"GET / HTTP/1.1\r\nHost: node0\r\n\r\n",
    "brackets": framed(b"[" * 10_000),
    "no JSON": framed(b"hello"),
    "number": framed(b"7"),
    "no host": framed(b'{"word": "hello"}'),
    "own numbers": framed(b'{"word": "hello", "host": 5, "hosts": 2, "about": {}}'),
}


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS)
def test_who_is_no_host_is_passed_over(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "GREETING_S", 0.3)
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(Meeting, 2, 0, "127.0.0.1", port, {}, 10)
        visitor = connect("127.0.0.1", port, 10)  # before any host does
        visitor.sendall(said)
        with (
            pool.submit(Meeting, 2, 1, "127.0.0.1", port, {}, 10).result(20) as second,
            first.result(20) as host,
        ):
            assert set(host.lines) == {1}
            host.tell("plan", number=7)
            assert second.hear("plan")["number"] == 7
        visitor.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert visitor.recv(1) == b"", "it is shown out"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [(b"", "did not answer within 1 s"), (b"HTTP/1.1 400 Bad Request\r\n", "ended before all")],
)
def test_what_answers_in_host_0s_place_is_not_waited_for(
    said: bytes, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "GREETING_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        second = pool.submit(Meeting, 2, 1, "127.0.0.1", server.getsockname()[1], {}, 0.5)
        connection = server.accept()[0]
        connection.sendall(said)
        refused(sentence, second.result, 20, error=HostLost)
        connection.close()


def test_a_host_that_came_early_is_not_lost_when_the_last_one_comes() -> None:
    port = free_port()
    with ThreadPoolExecutor(3) as pool:
        early = [pool.submit(Meeting, 3, host, "127.0.0.1", port, {}, 10, 1.0) for host in (0, 1)]
        time.sleep(1.5)
        hosts = [pool.submit(Meeting, 3, 2, "127.0.0.1", port, {}, 10, 1.0), *early]
        for host in [one.result(20) for one in hosts]:
            host.check()
            host.__exit__(None, None, None)


WAIT = """
import sys
from multigpu.runner.hosts.meeting import HostLost, Meeting
try:
    with Meeting(3, int(sys.argv[1]), "10.77.0.1", 5000, silence_s=1.5) as meeting:
        print("met", flush=True)
        meeting.hear("never")
except HostLost as error:
    print(error, flush=True)
"""


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
@pytest.mark.parametrize(("lost", "how"), [(2, "kill"), (0, "kill"), (1, "unplug")])
def test_all_hosts_hear_of_one_that_is_lost(lost: int, how: str) -> None:
    """One that was unplugged hears nothing of the others either, whose words come by host 0."""
    why = {
        "kill": "ended in the middle of the run",
        "unplug": "has not been heard of for 2 s: it or its link is down",
    }[how]
    with Hosts(3) as hosts:
        programs = [
            subprocess.Popen(
                [*hosts.prefix(host), sys.executable, "-c", WAIT, str(host)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for host in range(3)
        ]
        for program in programs:
            assert program.stdout and program.stdout.readline() == "met\n"
        began = time.monotonic()
        getattr(hosts, how)(lost)
        for host in range(3) if how == "unplug" else {0, 1, 2} - {lost}:
            said = programs[host].communicate(timeout=PATIENCE_S)[0]
            gone = 0 if host == lost else lost
            assert (
                said.startswith(f"host {gone} (10.77.0.{gone + 1}) {why}") and said.count("\n") == 1
            ), said
        assert time.monotonic() - began < 30
    for program in programs:
        program.wait()
