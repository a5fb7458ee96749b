"""What `doctor` says of links, clocks and threads of machines that are made up, and of this one."""

import pytest

from multigpu import doctor
from multigpu.doctor import clock_lines, link_lines, port_lines, thread_lines
from multigpu.measure.surroundings import GpuLook


def test_links_are_counted_by_pair_and_gpus_without_access_are_named() -> None:
    peers = [[a // 2 == b // 2 for b in range(4)] for a in range(4)]
    links = [["self" if a == b else "NVLink" if peers[a][b] else "PCIe" for b in range(4)] for a in range(4)]
    said = list(link_lines(links, peers))
    assert said[0] == "links       PCIe between 4 pairs, NVLink between 2 pairs"
    assert "0 and 2; 0 and 3; 1 and 2; 1 and 3" in said[1] and "host's memory" in said[1]
    assert "every GPU has access" in list(link_lines(links, [[True] * 4] * 4))[1]
    said = list(link_lines(links, [[a <= b for b in range(4)] for a in range(4)]))
    assert "no access between GPUs 0 and 1" in said[1] and "and 2 more" in said[1]
    assert not list(link_lines([["self"]], [[True]]))


def test_a_slowed_gpu_and_a_shared_one_are_named() -> None:
    looks = [GpuLook(sm_clock_mhz=1980, temperature_c=40), None, GpuLook(sm_clock_mhz=900, temperature_c=88, others=2, slowed=["heat"])]
    said = list(clock_lines(looks, [1980, 1980, 1980]))
    assert "GPU 0: 1980 of 1980 MHz, 40 °C, GPU 2: 900 of 1980 MHz, 88 °C" in said[0]
    assert [line.split(None, 1)[1] for line in said[1:]] == ["GPU 2 is slowed: heat", "GPU 2 is used by 2 other processes now"]
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
    assert "are refused: no private network can be made here (no namespaces)" in "\n".join(port_lines())
    monkeypatch.setenv(doctor.OPEN_PORTS, "1")
    assert "are open" in (said := "\n".join(port_lines())) and "127.0.0.1" in said
