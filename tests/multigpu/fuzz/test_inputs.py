"""Corpora and images, damaged in every way: a batch of them comes out, or one sentence
that names the file.
"""

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from multigpu.build import build_run
from multigpu.workloads import description_of, workloads
from tests.multigpu.fuzz.strategies import WORDS, examples, little_memory, one_sentence

RUNS: dict[str, dict[str, Any]] = {
    "text_files": {"workload": "nmt", "model": "nmt_small"},
    **{
        name: {"workload": "cnn", "model": "resnet_tiny"}
        for name in ("image_folder", "jpeg_folder", "cifar10")
    },
}


def picture(kind: str, mode: str = "RGB") -> bytes:
    data = io.BytesIO()
    Image.fromarray(np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3)).convert(mode).save(
        data, kind
    )
    return data.getvalue()


WHOLE: dict[str, dict[str, bytes]] = {
    "text_files": {
        "a.txt": b"one two three\nfour five\nsix\nseven eight\n",
        "b.txt": b"eins zwei drei\nvier\nsechs\nsieben\n",
    },
    "image_folder": {
        "cats/a.png": picture("PNG"),
        "cats/b.png": picture("PNG", "L"),
        "dogs/c.png": picture("PNG", "P"),
    },
    "jpeg_folder": {
        "cats/a.jpg": picture("JPEG"),
        "cats/b.jpg": picture("JPEG", "L"),
        "dogs/c.jpeg": picture("JPEG", "CMYK"),
    },
    "cifar10": {f"data_batch_{n}.bin": bytes([n]) + bytes(3072) for n in range(1, 6)},
}


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, dict[str, bytes], bool]:
    """Which input, its files, and whether they are packed by gzip."""
    name = draw(st.sampled_from(list(WHOLE)))
    files = dict(WHOLE[name])
    for file in draw(st.lists(st.sampled_from(list(files)), min_size=1, max_size=2)):
        if draw(st.integers(0, 9)) == 0:
            del files[file]
            break
        data = files[file]
        start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        words = st.sampled_from([word.encode("utf-8", "surrogatepass") for word in WORDS])
        middle = draw(st.one_of(st.binary(max_size=12), words, st.just(data[start:end][::-1])))
        files[file] = data[:start] + middle + data[end if draw(st.booleans()) else start :]
    return name, files, draw(st.booleans()) and name == "text_files"


def first_batch(name: str, folder: Path, files: dict[str, bytes], packed: bool) -> None:
    """Write the files and read what a launch would, or raise ValueError."""
    for file, data in files.items():
        path = folder / (f"{file}.gz" if packed else file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if packed else data)
    paths = (
        [f"{folder}/{file}{'.gz' * packed}" for file in WHOLE[name]]
        if name == "text_files"
        else [str(folder)]
    )
    run = build_run(
        **RUNS[name],
        placement="ddp",
        batch_size=2,
        device_type="cpu",
        inputs=name,
        data=tuple(paths),
    )
    source = workloads()[run.workload].inputs[name](run, description_of(run))
    assert source.label and source.fingerprint
    batch = source.batch(0, 0)
    assert batch.units >= 0 and all(
        array.shape[0] for array in batch.arrays.values() if isinstance(array, np.ndarray)
    )


@examples(150)
@given(found=damaged())
def test_what_is_damaged_is_read_or_named(
    found: tuple[str, dict[str, bytes], bool], tmp_path_factory: pytest.TempPathFactory
) -> None:
    name, files, packed = found
    first_batch(name, tmp_path_factory.mktemp("whole"), WHOLE[name], packed=False)
    folder = tmp_path_factory.mktemp("input")
    try:
        with little_memory():
            first_batch(name, folder, files, packed)
    except ValueError as error:
        one_sentence(str(error))
        assert str(folder) in str(error)
