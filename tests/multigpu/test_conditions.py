"""What a Run may ask of its input, its devices and the machine; what `doctor` says of links, clocks
and threads of planted machines.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from multigpu.build import build_run
from multigpu.cli import doctor
from multigpu.cli.doctor import (
    clock_lines,
    launch_lines,
    launch_us,
    link_lines,
    port_lines,
    thread_lines,
    worker_lines,
)
from multigpu.engines.torch import session as engine
from multigpu.engines.torch.session import SPARE, measure_energy
from multigpu.machine.surroundings import GpuLook
from multigpu.runner.point import Point, launch_of
from multigpu.runner.timed import check_devices
from multigpu.spec.errors import Unsupported
from multigpu.spec.run import Run
from tests.refusals import refused


def make(**more: Any) -> Run:
    common: dict[str, Any] = {
        "workload": "cnn",
        "model": "resnet_tiny",
        "placement": "ddp",
        "batch_size": 4,
        "devices": 2,
    }
    return build_run(**(common | more))


WORDS = {"workload": "nmt", "model": "nmt_tiny"}
FED = {"inputs": "jpeg_folder", "input_workers": 2}
TENSORFLOW = {
    "framework": "tensorflow",
    "placement": "exp2",
    "processes": "one",
    "execution": "graph",
}


def test_defaults_keep_keys_and_other_values_make_new_ones() -> None:
    plain = make()
    unset = dict.fromkeys(
        ("input_workers", "staging", "device_ids", "peer_access", "energy_window_s", "host_cores")
    )
    assert make(**unset, prefetch=0).digest == plain.digest
    drawn = WORDS | {"inputs": "lengths_000"}
    assert make(**drawn, batching="own", shuffle=False).digest == make(**drawn).digest
    changes = [
        {"device_ids": "1,0"},
        {"peer_access": "off"},
        {"nccl_ctas": 4},
        {"nccl_ctas": 8},
        {"energy_window_s": 10},
    ]
    changes += [
        {"host_cores": 2},
        {"inputs": "jpeg_folder"},
        FED,
        FED | {"prefetch": 1},
        FED | {"prefetch": 1, "staging": "own_stream"},
    ]
    others = [make(**change) for change in changes] + [
        make(**drawn, batching=mode) for mode in ("own", "shared", "fixed")
    ]
    assert len({run.digest for run in [plain, *others]}) == 1 + len(others)


def test_runs_of_one_environment_share_a_launch() -> None:
    on, off, pair = make(), make(peer_access="off"), make(device_ids="1,0")
    assert (on.environment, off.environment) == ({}, {"NCCL_P2P_DISABLE": "1"})
    assert launch_of(Point(on)) == launch_of(Point(pair)) != launch_of(Point(off))
    assert (on.chosen_devices, pair.chosen_devices) == ((0, 1), (1, 0))
    own, persistent = (make(**TENSORFLOW, batch_norm=kernel) for kernel in (None, "persistent"))
    assert (
        persistent.environment == {"TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT": "1"}
        and own.environment == {}
    )
    assert launch_of(Point(own)) != launch_of(Point(persistent)) and own.digest != persistent.digest
    assert make(nccl_ctas=4).environment == {"NCCL_MAX_CTAS": "4"}
    few, fewer = make(host_cores=2), make(host_cores=1)
    assert len({launch_of(Point(run)) for run in (on, few, fewer)}) == 3


def test_gpus_that_are_not_here_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multigpu.runner.timed.gpu_count", lambda: 4)
    check_devices(make(device_ids="3,0"))
    refused(
        "host_cores 100000 were asked for and this machine has",
        check_devices,
        make(host_cores=100_000),
    )
    refused(
        "device_ids '4,0' names GPUs that are not here: this machine has 0 to 3",
        check_devices,
        make(device_ids="4,0"),
    )


@pytest.mark.parametrize(
    ("step_s", "fastest", "steps"),
    [(2.0, 1, round(SPARE * 20 / 2.0)), (0.5, 1, 11 + 32), (2.0, 0.75, 11 + 3)],
)
def test_energy_is_what_the_counter_moved_while_the_window_was_trained(
    step_s: float, fastest: float, steps: int, monkeypatch
) -> None:
    """Of a counter of 300 W. Where eleven steps were thought to take 22 s and take 5.5, 14.5 s are
    left: 32 steps of half a second and a tenth more. So all replicas train on until the window of
        the fastest is long enough: its 11 steps are 16.5 s.
    """
    now, batches = [0.0], {}

    def step(index: int) -> None:
        batches[index] = [SimpleNamespace(units=64)]
        now[0] += step_s

    monkeypatch.setattr(engine, "largest", lambda value: max(value, fastest * value))
    device = SimpleNamespace(
        index=3, synchronise=lambda: None, mark=lambda: now[0], seconds_between=lambda a, b: b - a
    )
    session: Any = SimpleNamespace(
        run=SimpleNamespace(energy_window_s=20), batches=batches, device=device, step=step
    )
    window = measure_energy(
        session, 7, 2.0, counter=lambda gpu: 1e6 + gpu + 300 * now[0], clock=lambda: now[0]
    )
    assert (
        window.steps == steps >= 11
        and set(batches) == set(range(7, 7 + steps))
        and window.units == steps * 64
    )
    assert (
        window.window_s == steps * step_s >= 20
        and window.end_j - window.start_j == 300 * window.window_s
    )
    refused(
        "GPU 3 has no counter of energy",
        measure_energy,
        session,
        0,
        1.0,
        counter=lambda gpu: None,
        error=Unsupported,
    )


def test_links_are_counted_by_pair_and_gpus_without_access_are_named() -> None:
    peers = [[a // 2 == b // 2 for b in range(4)] for a in range(4)]
    links = [
        ["self" if a == b else "NVLink" if peers[a][b] else "PCIe" for b in range(4)]
        for a in range(4)
    ]
    said = list(link_lines(links, peers))
    assert said[0] == "links       PCIe between 4 pairs, NVLink between 2 pairs"
    assert "0 and 2; 0 and 3; 1 and 2; 1 and 3" in said[1] and "host's memory" in said[1]
    assert "every GPU has access" in list(link_lines(links, [[True] * 4] * 4))[1]
    said = list(link_lines(links, [[a <= b for b in range(4)] for a in range(4)]))
    assert "no access between GPUs 0 and 1" in said[1] and "and 2 more" in said[1]
    assert not list(link_lines([["self"]], [[True]]))


def test_a_slowed_gpu_and_a_shared_one_are_named() -> None:
    looks = [
        GpuLook(sm_clock_mhz=1980, temperature_c=40),
        None,
        GpuLook(sm_clock_mhz=900, temperature_c=88, others=2, slowed=["heat"]),
    ]
    said = list(clock_lines(looks, [1980, 1980, 1980]))
    assert "GPU 0: 1980 of 1980 MHz, 40 °C, GPU 2: 900 of 1980 MHz, 88 °C" in said[0]
    assert [line.split(None, 1)[1] for line in said[1:]] == [
        "GPU 2 is slowed: heat",
        "GPU 2 is used by 2 other processes now",
    ]
    assert not list(clock_lines([None], [0]))


def test_threads_that_exceed_the_cores_are_told() -> None:
    for cores, told, words in (
        (16, None, "want OMP_NUM_THREADS=2"),
        (16, "16", "would be 128 threads in 8 processes"),
        (4, "1", "8 processes wait for each other on 4 cores"),
    ):
        assert words in "\n".join(thread_lines(cores, 8, told))
    assert len(list(thread_lines(16, 8, "2"))) == 1, "as many threads as cores need no word"


def test_ports_say_what_is_refused_and_what_was_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "why_not", lambda: "no namespaces")
    monkeypatch.delenv(doctor.OPEN_PORTS, raising=False)
    assert "are refused: no private network can be made here (no namespaces)" in "\n".join(
        port_lines()
    )
    monkeypatch.setenv(doctor.OPEN_PORTS, "1")
    assert "are open" in (said := "\n".join(port_lines())) and "127.0.0.1" in said


def test_doctor_says_what_links_launches_and_workers_mean_here() -> None:
    pair = [["self", "PCIe"], ["PCIe", "self"]]
    said = "\n".join(link_lines(pair, [[True, False], [False, True]]))
    assert "here that means" in said and "over PCIe" in said
    fast = [["self", "NVLink"], ["NVLink", "self"]]
    said = "\n".join(link_lines(fast, [[True] * 2] * 2))
    assert "here that means" not in said and "PCIe" not in said
    assert "takes 8 ms or more" in "".join(launch_lines(8.0, True))
    assert "slow" not in "".join(launch_lines(8.0, True))
    assert "that is slow" in "".join(launch_lines(25.0, True))
    assert "each operation" in "".join(launch_lines(2.0, False))
    assert "7 input workers for each of 2" in "".join(worker_lines(16, 2))
    assert "no room for input workers beside 2" in "".join(worker_lines(2, 2))
    assert 0 < launch_us(50) < 1e5
