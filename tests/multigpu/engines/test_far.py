"""TensorFlow's members on other hosts: what their hosts' programs are asked, and who is let in. No
TensorFlow here.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from multigpu.engines.common.session import Opening
from multigpu.engines.tensorflow import members, processes
from multigpu.engines.tensorflow.members import KEY_VARIABLE, Gathering, attend, free_ports, join
from multigpu.machine.cluster import Cluster, as_machine
from multigpu.runner.plan import Plan
from multigpu.spec.run import Run
from tests.factory import make_machine
from tests.refusals import refused

JOINS = (
    "import sys, time; from multigpu.engines.tensorflow.members import join; join(sys.argv[1],"
    " int(sys.argv[2])).recv()"
)


def plan_of(host: int, port: int, hosts: int = 2) -> Plan:
    return Plan.model_construct(
        hosts=hosts,
        host=host,
        launch_id="launch",
        address=f"127.0.0.{host + 1}",
        gathering=f"127.0.0.1:{port}",
    )


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Host 0's gathering, the thread that is host 1's program, how that ended, and the processes
    that it started.
    """
    monkeypatch.setenv(KEY_VARIABLE, "launch")
    started: list[subprocess.Popen[bytes]] = []

    def start(words: list[str], **rest: Any) -> Any:
        started.append(subprocess.Popen([sys.executable, "-c", JOINS, *words]))
        return started[-1]

    monkeypatch.setattr(members, "start_member", start)
    (port,), ended = free_ports(1), []

    def program() -> None:
        try:
            ended.append(attend(plan_of(1, port)))
        except SystemExit as error:
            ended.append(error)

    thread = threading.Thread(target=program)
    thread.start()
    with Gathering(plan_of(0, port)) as gathering:
        yield gathering, thread, ended, started
    thread.join(20)


def test_a_host_starts_members_that_come_by_themselves_and_ends_them(met: Any) -> None:
    gathering, thread, ended, started = met
    assert gathering.address_of(0) == "127.0.0.1" and gathering.address_of(1) == "127.0.0.2"
    assert len(set(gathering.ports(1, 3))) == 3
    outpost = gathering.outposts[1]
    outpost.ask("start", {"words": [gathering.place, "7"]})
    # a stranger does not know the launch, and one that leaves at once says nothing
    stranger = socket.create_connection(("127.0.0.1", int(gathering.place.split(":")[1])))
    stranger.close()
    pipe, greeting = gathering.accept(time.monotonic() + 60)
    assert greeting == [7]
    pipe.close()
    assert started[0].wait(20) == 1 and outpost.ask("ended") == [1], "its pipe closed under it"
    outpost.ask("end")
    assert [process.poll() is not None for process in started] == [True]
    gathering.__exit__(None, None, None)
    thread.join(20)
    assert ended == [None], "the launch is over, and no failure"


# nothing, half of a length, a page of the web, a wrong answer
SAID = (b"", b"\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x04wrong")


def test_those_that_say_nothing_of_use_keep_no_member_out(
    met: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "GREETING_S", 0.5)
    gathering, began = met[0], time.monotonic()
    with ExitStack() as visitors:
        for said in SAID:
            visitor = visitors.enter_context(
                socket.create_connection(("127.0.0.1", int(gathering.place.split(":")[1])))
            )
            visitor.sendall(said)
        time.sleep(0.1)
        with pytest.raises(TimeoutError):
            gathering.accept(time.monotonic() + 0.2)
        gathering.outposts[1].ask("start", {"words": [gathering.place, "7"]})
        pipe, greeting = gathering.accept(time.monotonic() + 30)
    assert greeting == [7] and time.monotonic() - began < 30
    # a member may be silent for as long as it works, also beyond the greeting's limit
    began, ending = time.monotonic(), threading.Timer(0.8, met[3][0].terminate)
    ending.start()
    with pytest.raises((EOFError, OSError)):
        pipe.recv()
    assert time.monotonic() - began > 0.7


def test_who_does_not_know_the_launch_is_not_let_in(
    met: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = met[0]
    monkeypatch.setenv(KEY_VARIABLE, "another")
    with ThreadPoolExecutor(1) as pool:
        stranger = pool.submit(
            refused, "rejected", join, gathering.place, 1, error=AuthenticationError
        )
        with pytest.raises(TimeoutError):
            gathering.accept(time.monotonic() + 1)
        assert stranger.result(20)


def test_a_host_whose_first_host_has_gone_says_so_and_leaves_no_member(met: Any) -> None:
    gathering, thread, ended, started = met
    gathering.outposts[1].ask("start", {"words": [gathering.place, "1"]})
    pipe, _ = gathering.accept(time.monotonic() + 60)
    gathering.__exit__(RuntimeError, RuntimeError(), None)
    pipe.close()
    thread.join(20)
    assert (
        "the program of host 0 has ended in the middle" in str(ended[0])
        and started[0].poll() is not None
    )


def elsewhere(ended: Sequence[int] = ()) -> Any:
    """A gathering that notes what it is asked; nobody comes."""
    gathering = Mock(place="10.0.0.1:5")
    gathering.ports = lambda host, count: [100 * host + index for index in range(count)]
    gathering.address_of = lambda host: f"10.0.0.{host + 1}"
    gathering.ask.side_effect = lambda word, content=None: ended if word == "ended" else None
    gathering.accept.side_effect = TimeoutError
    gathering.outposts = {1: gathering}
    return gathering


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opens a session of four replicas, two a host, with an `elsewhere`; and what was started on
    this host.
    """
    run = Run(
        **{
            "workload": "nmt",
            "model": "nmt_tiny",
            "framework": "tensorflow",
            "placement": "multi_worker",
            "execution": "graph",
        },
        **{"devices": 4, "device_type": "cpu", "batch_size": 4},
    )
    machine = as_machine(
        make_machine(0), Cluster(hosts=2, per_host=2, network="a wire", link="wire")
    )
    here: list[dict[str, Any]] = []

    def start(**how: Any) -> Any:
        here.append({name: value for name, value in how.items() if name not in ("words", "files")})
        return subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(0.2)"])

    monkeypatch.setattr(processes, "start_member", start)
    monkeypatch.setattr(processes, "this_machine", lambda: machine)

    def session(gathering: Any) -> Any:
        opening = Opening(run, 0, 8, Path(os.devnull), 0.5, 0.0, lambda stage: None)
        return processes.Session(opening, gathering=gathering)

    return session, here


def test_replicas_are_dealt_out_host_after_host_and_tf_config_names_their_addresses(
    opened: Any,
) -> None:
    session, here = opened
    gathering = elsewhere()
    refused(
        r"workers \[2, 3\] did not come from their hosts within 90% of 0.5 s",
        session,
        gathering,
        error=TimeoutError,
    )
    there = [call.args[1] for call in gathering.ask.call_args_list if call.args[0] == "start"]
    gathering.ask.assert_called_with("end")  # what was started there
    tasks = [how["task"] for how in (*here, *there)]
    addresses = ["10.0.0.1:0", "10.0.0.1:1", "10.0.0.2:100", "10.0.0.2:101"]
    assert [task["cluster"] for task in tasks] == [{"worker": addresses}] * 4
    assert [task["task"] for task in tasks] == [
        {"type": "worker", "index": rank} for rank in range(4)
    ]
    assert [how["place"] for how in (*here, *there)] == [0, 1, 0, 1], "of a GPU on its own host"
    assert [how["words"] for how in there] == [["10.0.0.1:5", "2"], ["10.0.0.1:5", "3"]]
    gathering = elsewhere([1])
    refused("ended on its host before it came", session, gathering, error=processes.Lost)
    gathering.ask.assert_called_with("end")
