"""Kernels that are built, kept, damaged or cannot be built: every fault ends in the library's
kernels and a sentence.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from multigpu.cli import doctor
from multigpu.engines.torch.trainer import substituted
from multigpu.kernels import build, driver, lstm_launch
from multigpu.kernels.build import Unavailable
from multigpu.spec.run import Run
from tests.refusals import refused


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A compiler that writes down what it was given, and a cache of its own."""
    sources: list[str] = []

    def compile_source(source: str, options: tuple[str, ...]) -> bytes:
        sources.append(source)
        return f"built {len(sources)} with {options}".encode()

    monkeypatch.setattr(build, "compile_source", compile_source)
    monkeypatch.setattr(build, "version", lambda: "13.0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return sources


def test_what_was_built_once_is_read_but_of_no_other_source_option_or_compiler(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = build.built("lstm.cu", ("-a",))
    assert build.built("lstm.cu", ("-a",)) == first and len(compiled) == 1
    assert build.built("lstm.cu", ("-b",)) != first and len(compiled) == 2
    assert {path.suffix for path in build.cache_folder().iterdir()} == {".cubin"}
    monkeypatch.setattr(build, "version", lambda: "13.1")
    build.built("lstm.cu", ("-a",))
    (tmp_path / "lstm.cu").write_text("another source")
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    build.built("lstm.cu", ("-a",))
    assert len(compiled) == 4 and compiled[-1] == "another source"


@pytest.mark.parametrize("damage", [b"", b"short", None], ids=["empty", "cut off", "a bit turned"])
def test_a_damaged_file_is_built_anew(compiled: list[str], damage: bytes | None) -> None:
    build.built("lstm.cu", ())
    (path,) = build.cache_folder().iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage if damage is not None else whole[:-1] + bytes([whole[-1] ^ 1]))
    assert build.built("lstm.cu", ()) == b"built 2 with ()"
    assert build.built("lstm.cu", ()) == b"built 2 with ()" and len(compiled) == 2


def test_a_folder_that_cannot_be_written_costs_a_build(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert build.built("lstm.cu", ()) and build.built("lstm.cu", ()) and len(compiled) == 2
    assert not build.writable(build.cache_folder())


def test_without_a_compiler_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "library_names", lambda folders: ["libnvrtc.so.none"])
    refused("NVRTC .* is not installed", build.nvrtc.__wrapped__, error=Unavailable)


def test_the_compiler_is_found_among_nvidias_packages(tmp_path: Path) -> None:
    library = tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    library.parent.mkdir(parents=True)
    library.touch()
    assert build.library_names([str(tmp_path), "nowhere"]) == ["libnvrtc.so.13", str(library)]


def test_the_kernels_are_built_where_there_is_a_compiler() -> None:
    try:
        build.nvrtc()
    except Unavailable as error:
        pytest.skip(str(error))
    source = (build.SOURCES / "lstm.cu").read_text()
    for kind, shapes in (
        ("FORWARD", lstm_launch.FORWARD),
        ("BACKWARD", lstm_launch.BACKWARD),
        ("PREPARE", ((16, 1),)),
    ):
        for shape in shapes:
            assert build.compile_source(source, lstm_launch.options(kind, *shape)).startswith(
                b"\x7fELF"
            )
    wrong = ["--no-such-option"]
    refused(
        "NVRTC does not build the kernels: .*unrecognized option",
        build.compile_source,
        source,
        wrong,
        error=Unavailable,
    )


GPUS = [
    (None, (9, 0), "this PyTorch is built without CUDA"),
    ("12.8", (9, 0), "PyTorch is built for CUDA 12.8, and the kernels need CUDA 13's compiler"),
    ("13.0", (8, 0), "for compute capability 9.0 (H100, H200), and this GPU has 8.0"),
    ("13.0", (10, 0), "this GPU has 10.0"),
    ("13.0", (9, 0), None),
]


@pytest.mark.parametrize(("cuda", "capability", "sentence"), GPUS)
def test_what_a_gpu_lacks_is_named(
    cuda: str | None, capability: tuple[int, int], sentence: str | None
) -> None:
    found = lstm_launch.missing(cuda, capability)
    assert (found is None) if sentence is None else sentence in str(found)


def forget() -> None:
    kernels = lstm_launch.forward_kernel, lstm_launch.backward_kernel, lstm_launch.prepare_kernel
    for remembered in (lstm_launch.unavailable, lstm_launch.clusters, *kernels):
        remembered.cache_clear()


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch):
    """A machine that says it has the right GPU under the right CUDA."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    forget()
    yield monkeypatch
    forget()


JOB = {
    "workload": "nmt",
    "model": "nmt000",
    "placement": "ddp",
    "batch_size": 4,
    "sequence_length": 5,
}
PERSISTENT = Run(**JOB, precision="bf16", recurrence="persistent")
GPU = torch.device("cuda", 0)


def test_a_record_says_why_the_library_computed(hopper: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise Unavailable("NVRTC is not installed")

    with hopper.context() as planted:
        planted.setattr(driver, "built", fail)
        assert (
            substituted(PERSISTENT, GPU)
            == "recurrence 'persistent' was left to the library: NVRTC is not installed"
        )
    assert substituted(PERSISTENT.model_copy(update={"recurrence": None}), GPU) is None
    assert substituted(PERSISTENT, torch.device("cpu")) is None
    none = (
        "recurrence 'persistent' was left to the library: this GPU holds no cluster of 16 thread"
        " blocks"
    )
    for most, sentence in ((0, none), (7, None)):
        hopper.setattr(
            lstm_launch,
            "Kernel",
            lambda *arguments, most=most: SimpleNamespace(most_clusters=lambda: most),
        )
        forget()
        assert substituted(PERSISTENT, GPU) == sentence and lstm_launch.clusters(0) == most


def test_doctor_says_which_lstm_runs(
    hopper: pytest.MonkeyPatch, compiled: list[str], tmp_path: Path
) -> None:
    hopper.setattr(lstm_launch, "devices", lambda: [GPU])
    hopper.setattr(lstm_launch, "library_instead", lambda device: "no NVRTC")
    assert [*doctor.persistent_lines()] == [
        "persistent  the library's LSTM runs where recurrence 'persistent' is asked for: no NVRTC"
    ]
    hopper.setattr(lstm_launch, "library_instead", lambda device: None)
    (line,) = doctor.persistent_lines()
    assert line.endswith(f"built by NVRTC 13.0 and kept in {tmp_path / 'multigpu' / 'kernels'}")
    (tmp_path / "file").touch()
    hopper.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (line,) = doctor.persistent_lines()
    assert "built anew by every process" in line and "cannot be written" in line
