"""Document 001's tables beside ours: nothing of them is dropped, and ours are the points that they say they are."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import cnn_document, cnn_statements
from multigpu.analysis.frame import frame_of
from multigpu.analysis.hardware import gpu_frame, gpu_points
from multigpu.measure.machine import DeviceState
from multigpu.paths import PUBLISHED
from multigpu.published import load_published
from multigpu.workloads import find_model
from tests.analysis.test_cnn_pages import NOTHING, point
from tests.factory import make_machine, make_record

WORDS = {"parameter_server": "parameter server", "gpu": "GPU", "cpu": "CPU", "TRUE": "NCCL", "FALSE": ""}
"""What stands for a word of a published table; a switch that is off is not said."""


def cells(html: str) -> list[list[str]]:
    """The table's rows as text, without its heading."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html[html.index("<tbody") :], re.DOTALL)
    return [[unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)] for row in rows]


def shown(printed: str, row: list[str]) -> bool:
    """Whether a cell of a published table stands in a row: a word within a cell, a number as a cell of its value."""
    try:
        value = float(printed)
    except ValueError:
        return any(WORDS.get(printed, printed) in cell for cell in row)
    return any(cell == text for cell in row for text in (f"{value:,.{places}f}{unit}" for places in range(5) for unit in ("", "%")))


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("001_scaling", cnn_document.scaling_twin),
        ("001_cifar10", cnn_document.cifar_twin),
        ("001_pix_phb", cnn_document.pairs_twin),
        ("001_memory_clock", cnn_document.clocks_twin),
    ],
)
def test_no_figure_of_a_published_table_is_left_out(name: str, twin: Any) -> None:
    published = pd.read_csv(PUBLISHED / f"{name}.csv", dtype=str, keep_default_na=False)
    rows = cells(twin(NOTHING).html)
    assert len(rows) == len(published)
    for (_, wanted), row in zip(published.iterrows(), rows, strict=True):
        for column, printed in wanted.items():
            if (name, column) == ("001_cifar10", "model"):  # told by our name of it
                printed = cnn_document.MODEL_NAMES[cnn_document.CIFAR.get(printed, printed)]
            assert printed == "" or shown(printed, row), f"{column} {printed} is not in {row}"


def test_no_single_figure_is_left_out_and_each_has_an_answer() -> None:
    published = load_published("001_statements")
    assert set(published["name"]) == set(cnn_statements.ANSWERS)
    rows = cells(cnn_statements.statements_twin(NOTHING).html)
    for _, one in published.iterrows():
        assert sum(one["printed"] in row[0] and one["scope"] in row[1] for row in rows) == 1, f"{one['printed']} has one row"
    assert all(row[2] for row in rows)
    assert "C50" in told(rows, "best scaling: 4.487x") and told(rows, "best scaling: 4.487x") == told(rows, "1.615x speed-up")
    assert "NVLink" in told(rows, "20% faster PIX than PHB") and "C19" in told(rows, "85-98% speed")
    assert "C49" in told(rows, published["printed"][0])
    assert told(rows, "+50%") == told(rows, "30 images/sec on InceptionV3") == "not measured"
    layouts = [row for row in rows if "NCHW" in row[1]]
    assert [row[0] for row in layouts] == ["+22%; +73%; +25%; +50%; (10-25 % in TensorFlow benchmarks)"], "one answer stands once"


def told(rows: list[list[str]], printed: str) -> str:
    """What stands beside a single figure of the document."""
    (answer,) = [row[2] for row in rows if printed in row[0].split("; ")]
    return answer


def single(frame: pd.DataFrame, printed: str, **more: Any) -> str:
    return told(cells(cnn_statements.statements_twin(frame, **more).html), printed)


def scaled(model: str, one: float, two: float, **more: Any) -> list[Any]:
    """A model on one and on two GPUs."""
    return [*point(one, model=model, devices=1, **more), *point(two, model=model, **more)]


def test_large_models_are_compared_at_the_claims_batch_captured_before_eager() -> None:
    records = scaled("resnet50_v1.5", 100, 196, execution="captured") + scaled("resnet50_v1.5", 90, 90)
    records += scaled("vgg16", 100, 180) + scaled("inception3", 100, 160, n=1)
    records += scaled("inception4", 100, 110, batch_size=32)  # another batch
    records += scaled("alexnet", 100, 120, execution="compiled") + scaled("resnet152_v1.5", 100, 101, placement="exp4")
    records += point(300, model="vgg16", execution="captured")  # without its one GPU, no speedup
    frame = frame_of(records)
    table = cnn_document.at_claims_batch(frame).set_index("model")
    assert dict(table["efficiency"]) == pytest.approx({"resnet50_v1.5": 0.98, "inception3": 0.8, "vgg16": 0.9})
    assert dict(table["execution"]) == {"resnet50_v1.5": "captured", "inception3": "eager", "vgg16": "eager"}
    row = cells(cnn_document.scaling_twin(frame).html)[0]
    assert row[5:7] == ["1.80", "90.00% (3)"] and "Inception-v3 80%, once (bf16, eager)" in row[7]
    assert row[3:5] == ["1.88", "94.00% (2)"], "without what was measured once: 98% and 90%"
    once = cells(cnn_document.scaling_twin(frame_of(scaled("inception3", 100, 160, n=1) + scaled("vgg16", 100, 180, n=1))).html)[0]
    assert once[3:6] == ["1.70", "85.00% (2)", "Inception-v3 80%, once (bf16, eager); VGG-16 90%, once (bf16, eager)"], (
        "no column of dashes"
    )


def test_single_figures_lead_with_what_no_host_set() -> None:
    """Captured: 98% at batch 64 and, once, 90% of Inception-v3 at 32, whose eager step once kept 60%, and its host set it."""
    form = {"execution": "captured"}
    records = scaled("resnet50_v1.5", 100, 196, **form) + scaled("resnet50_v1.5", 90, 162, batch_size=32, **form)
    records += scaled("inception3", 100, 180, n=1, batch_size=32, **form) + scaled("inception3", 100, 120, n=1)
    records += scaled("resnet50_v1.5", 50, 90, n=1) + scaled("resnet50_v1.5", 50, 60, n=1, batch_size=32)
    frame = frame_of(records)
    assert single(frame, "still over 90%") == (
        "the least of 3 captured points of large models under ddp: Inception-v3 90%, once (2 GPUs, batch 32, bf16); 3 eager points that "
        "hosts set: not compared"
    )
    assert single(frame, "almost 2x scaling for 2 GPUs").startswith(
        "Inception-v3: 1.80 times one GPU (ddp, batch 32 a GPU, captured, once); eager, which hosts set: 1.20 times in 1 setting, 1 with a "
    )
    assert single(frame, "batch size 64 or 32") == (
        "captured: 64 keeps 1.09 times the efficiency of 32 in 1 setting: 98% against 90% (ResNet-50 v1.5, ddp, 2 GPUs); eager, which "
        "hosts set: 64 keeps 1.50 times the efficiency of 32 in 1 setting: 90% against 60% (ResNet-50 v1.5, ddp, 2 GPUs, once)"
    )
    assert single(frame_of(scaled("inception3", 100, 120, n=1)), "still over 90%") == "1 eager point that hosts set: not compared"


def test_a_captured_point_that_is_slower_than_its_eager_twin_says_so() -> None:
    records = scaled("vgg16", 100, 170, n=1, execution="captured") + point(187, model="vgg16", n=1)
    row = cells(cnn_document.scaling_twin(frame_of(records)).html)[0]
    assert row[-1] == "VGG-16 85%, once (bf16, captured; the eager step was 1.10 times as fast)"
    repeated = scaled("vgg16", 100, 170, execution="captured") + point(187, model="vgg16")
    assert "eager step" not in cells(cnn_document.scaling_twin(frame_of(repeated)).html)[0][-1], "five repeats speak for themselves"


def replicas(rates: dict[int, float], execution: str = "captured", **more: Any) -> list[Any]:
    """Two Records of independent replicas, one a GPU with its own rate; the second GPU's clock is 1,900 MHz."""
    states = [
        DeviceState(sm_clock_mhz=1900 if gpu == 1 else 1980, memory_clock_mhz=3201, power_w=600.0 + gpu, temperature_c=50) for gpu in rates
    ]
    fields = {"workload": "cnn", "execution": execution, "batch_size": 256} | more
    units = 256 * 40  # images of one GPU in 40 timed steps
    measurement = {"event_time_s": [units / rate for rate in rates.values()], "device_states": states, "units": units * len(rates)}
    return [make_record("independent", len(rates), repeat=r, launch_id="ab"[r], measurement=measurement, **fields) for r in (0, 1)]


def test_our_gpus_stand_beside_the_documents_with_their_clocks() -> None:
    """Of most GPUs, captured: two of 4,800 and 4,704 images/s; eager steps, which the host may slow, do not stand for them."""
    records = replicas({0: 4800.0, 1: 4704.0}) + replicas({0: 3000.0, 1: 1500.0}, "eager", batch_size=512)
    html = cnn_document.clocks_twin(NOTHING, gpu_points(gpu_frame(records))).html
    assert "ResNet-50 v1.5 (the document's AlexNet was not measured so), batch 256, bf16" in html
    own = replicas({0: 90.0, 1: 80.0}, "eager", model="alexnet")
    assert "Ours, 8x-nvidia-h200: AlexNet, batch 256" in cnn_document.clocks_twin(NOTHING, gpu_points(gpu_frame(records + own))).html
    rows = cells(html)
    assert rows[0][5:] == ["4,800", "100.00", "3.201", "1.980", "600"] and rows[1][5:] == ["4,704", "98.00", "3.201", "1.900", "601"]
    assert rows[5][0] == "5" and rows[5][5:] == ["–"] * 5 and len(rows) == 6
    assert "bf16, captured, all at once" in html and "n = 2" in html
    more = cells(cnn_document.clocks_twin(NOTHING, gpu_points(gpu_frame(replicas(dict.fromkeys(range(8), 100.0))))).html)
    assert len(more) == 8 and more[7][:2] == ["7", "–"] and more[7][6] == "100.00", "none of ours is left out either"
    assert all(len(row) == 5 for row in cells(cnn_document.clocks_twin(NOTHING, gpu_points(gpu_frame([]))).html)), (
        "no column of ours without Records"
    )


def test_layouts_of_another_machine_count_among_the_single_figures() -> None:
    both = point(130, precision="fp32", layout="channels_first") + point(100, precision="fp32")
    ours = frame_of(point(100, machine=make_machine(4)))
    assert single(ours, "+22%") == "not measured"
    both += point(90, precision="fp32", layout="channels_first", model="resnet20", n=1) + point(
        100, precision="fp32", model="resnet20", n=1
    )
    assert single(ours, "+22%", measured=frame_of(both)) == (
        "in fp32, large images +30.0% of 1 point (ResNet-50 v1.5); small images -10.0% of 1 point (ResNet-20; 1 measured once); see C16"
    )


def test_models_are_compared_under_ddp_at_one_batch() -> None:
    """Captured 187 images/s over 100 on one GPU; eager, once, 164 over 100 on one and 240 over 200 on two; another placement or batch is
    another question.
    """
    records = point(187, devices=1, execution="captured") + point(100, devices=1, execution="captured", model="inception3")
    records += scaled("resnet50_v1.5", 164, 240, n=1) + scaled("inception3", 100, 200, n=1)
    for other in ({"placement": "exp4"}, {"batch_size": 256}):
        records += scaled("resnet50_v1.5", 900, 900, **other) + scaled("inception3", 100, 100, **other)
    printed = "training resnet50 is 1.61x faster (median) than inception3"
    said = single(frame_of(records), printed)
    assert said.startswith("1.87 times (1.8") and said.endswith(
        ") on 1 GPU (bf16, captured); eager, which hosts set: 1.20 to 1.64 times in 2 settings, 2 with a side measured once; ddp, batch 64"
    )
    other = {"execution": "captured", "machine": make_machine(4), "devices": 1}
    two = single(frame_of([*records, *point(180, **other), *point(100, model="inception3", **other)]), printed)
    assert "on 1 GPU of 8x-nvidia-h200 (" in two and "on 1 GPU of 4x-nvidia-h200 (" in two, "each ratio is of one machine, which is named"
    assert single(frame_of(records), "50 images/sec on Resnet50").startswith("at best 900 images/s (")


def test_small_models_stand_at_their_own_batch_with_their_efficiency() -> None:
    records = scaled("resnet20", 3000, 4500, placement="exp2", batch_size=128) + scaled(
        "resnet20", 3000, 6000, placement="exp2", batch_size=64
    )
    records += scaled("densenet40_k12", 100, 198, placement="exp2", n=1) + scaled("resnet20", 10, 17, placement="ddp", batch_size=128)
    frame = frame_of(records)
    rows = {row[0]: row for row in cells(cnn_document.cifar_twin(frame).html)}
    assert rows["ResNet-20"][5].startswith("1.50 (") and rows["ResNet-20"][5].endswith("), 75%")
    assert rows["DenseNet-40 (k = 12)"][5] == "1.98, 99%, once" and rows["ResNet-32"][5] == "not measured"
    small = single(NOTHING, "less than ~400k parameters", small=frame)
    assert small.startswith("ResNet-20 75% (") and "DenseNet" not in small
    assert single(NOTHING, "even smaller models with 500k parameters", small=frame) == "DenseNet-40 (k = 12) 99%, once on 2 GPUs, Exp2"
    other = {"placement": "exp2", "batch_size": 128, "precision": "fp32"}
    html = cnn_document.cifar_twin(frame_of([*records, *scaled("resnet20", 9, 9, **other)])).html
    assert "own batch, PyTorch in bf16, where the document's are TensorFlow in fp32." in html, "what is shown, and no other precision"


def test_the_documents_counts_are_explained_by_what_they_hold() -> None:
    """Its ResNet-20 by hand: 19 norms of 16, 32 and 64 channels, seven, six and six, a mean and a variance each, and the step counter."""
    statistics = 2 * (7 * 16 + 6 * 32 + 6 * 64)
    assert find_model("cnn", "resnet20").parameters + statistics + 1 == 271_164
    said = cnn_document.counting_sentence()
    assert f"(ResNet-20: 269,787 + {statistics:,} + 1)" in said
    assert "pass on 24 channels" in said and "so 357,491 and 2,217,411 parameters are trained" in said and "miscount" not in said


def test_pairs_are_of_one_job_which_is_told() -> None:
    more = {"model": "alexnet", "batch_size": 512}
    records = point(7000, "ps_gpu0", **more) + point(2500, "exp2", n=1, **more) + point(9000, "independent", **more)
    records += point(99, "ps_gpu0", n=8, **more | {"precision": "fp32"}) + point(8000, "exp4", **more | {"precision": "fp32"})
    html = cnn_document.pairs_twin(frame_of(records)).html
    rows = {row[0]: row for row in cells(html)}
    assert rows["parameter server, GPU"][6].startswith("7,000 (") and rows["parameter server, GPU"][7] == "5 over 2"
    assert rows["parameter server, CPU"][6:] == ["2,500", "1, screening"] and rows["replicated, GPU"][6] == "not measured"
    assert "batch 512 a GPU, bf16, channels last, eager" in html and "1,830.20" in html and "1,233.27" in html
    other = make_machine(name="another")
    once = [r for name in ("ps_gpu0", "exp2", "independent") for r in point(1, name, n=1, **more, machine=other)]
    assert cnn_document.pairs_twin(frame_of([*once, *records])).html == html, "as many updates, fewer repeats, and never a mix of machines"
