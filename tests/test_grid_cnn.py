"""The grids over document 001's models: what repeats, that claims still find their repeats, and that none is planned twice."""

from __future__ import annotations

from collections import Counter

import pytest

from multigpu.claims import all_claims
from multigpu.claims.core import Predicate
from multigpu.claims.deciding import cheapest, planned_rows
from multigpu.claims.pairs import admitted
from multigpu.grid import OTHER_PLACEMENTS, SPINE_PLACEMENTS, find_grid
from multigpu.grid.cnn_study import (
    COARSE_LADDER,
    ENDS_OF_LADDERS,
    FURTHER,
    LADDER,
    LARGE,
    ONCE,
    SMALL,
    cnn_formats,
    cnn_formats_captured,
    cnn_ladders,
    cnn_updates,
    ladder_price_s,
)
from multigpu.grid.cnns import (
    CAPTURED_MODELS,
    CNN_UPDATES,
    CNNS_OF_INTEREST,
    JOINED,
    REPEATED_UPDATES,
    cnn_batches,
    cnn_captured,
    cnn_compiled,
    cnn_models,
    cnn_strong,
)
from multigpu.grid.entries import Planned
from multigpu.grid.family import family
from multigpu.grid.hardware import energy, hardware, memory_speed
from multigpu.grid.inputs import inputs
from multigpu.grid.pytorch import captured
from multigpu.run import Run
from multigpu.workloads import find_model
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET


def often(planned: list[Planned], predicate: Predicate) -> list[Planned]:
    """What has repeats enough for the predicate."""
    return [e for e in planned if len(e.points()) >= predicate.min_n and len(set(e.launches)) >= predicate.min_launches]


@pytest.mark.parametrize(
    ("number", "grids"),
    [
        ("C13", "inputs"),
        ("C15", "equal_batches"),
        ("C16", "cnn_formats"),
        ("C17", "cnn_pairs"),
        ("C18", "cnn_pairs"),
        ("C30", "cnn_formats,headline"),
        ("C46", "cnn_batches"),
    ],
)
@pytest.mark.parametrize("devices", [(1, 2, 4), (1, 2, 4, 8)])
def test_repeats_that_remain_are_enough_for_every_claim(number: str, grids: str, devices: tuple[int, ...]) -> None:
    (claim,) = [claim for claim in all_claims() if claim.number == number]
    predicate = claim.predicate
    assert isinstance(predicate, Predicate)
    planned = often(find_grid(grids, devices), predicate)
    rows = admitted(planned_rows(entry for entry in planned if not entry.run.traced_steps), predicate, ("torch",))
    for contrast in predicate.contrasts:
        models = {model for one in cheapest(contrast, rows, dict.fromkeys(rows.frame["key"], 1.0)) for model in one.models}
        assert len(models) >= contrast.models_at_least, contrast.label


def test_models_at_their_batches_repeat_at_both_ends_only() -> None:
    planned = cnn_models((1, 2, 8))
    assert {entry.run.model for entry in planned} == {model.name for model in (*FOR_IMAGENET, *FOR_CIFAR)}
    assert all(entry.run.batch_size == entry.run.description.config.default_batch for entry in planned)
    for entry in planned:
        known = entry.run.model in CNNS_OF_INTEREST
        repeated = known and entry.run.devices in (1, 8) and entry.run.placement in REPEATED_UPDATES and entry.run.execution == "eager"
        assert (entry.tier == "headline") == repeated
        assert {point.launch for point in entry.points()} == ({0, 1, 2, 3} if repeated else {0})
        assert entry.run.placement in (CNN_UPDATES if known else REPEATED_UPDATES)
    graphs = Counter((entry.run.model, entry.run.devices) for entry in planned if entry.run.execution == "captured")
    assert graphs == Counter((model, count) for model in CAPTURED_MODELS for count in (1, 8))
    assert len({entry.run.digest for entry in planned}) == len(planned) == 3 * (12 * 6 + 12 * 2) + 2 * 4


def test_captured_models_are_compared_in_the_same_launches() -> None:
    every = cnn_captured((1, 2, 4))
    claimed = [entry for entry in every if entry.run.batch_size == 64 and entry.run.description.config.default_batch != 64]
    assert {(e.run.model, e.run.devices) for e in claimed} == {(n, c) for n in ("inception3", "alexnet", "resnet152_v1.5") for c in (1, 4)}
    assert all(entry.tier == "headline" and entry.run.bucket_send is None for entry in claimed) and len(claimed) == 6
    planned = [entry for entry in every if entry not in claimed]
    forms = Counter((entry.run.model, entry.run.devices) for entry in planned)
    assert forms == dict.fromkeys(((name, count) for name in CNNS_OF_INTEREST[1:] for count in (1, 4)), 3)
    assert {(entry.run.execution, entry.tier) for entry in planned} == {("captured", "headline")}
    assert all(type(entry.run).model_validate(entry.run.model_dump()) == entry.run for entry in planned), "copied with other buckets"
    for entry in planned:
        assert Counter(point.launch for point in entry.points()) == {0: 2, 1: 1, 2: 1, 3: 1}
        assert entry.run.batch_size == entry.run.description.config.default_batch
    ways = {(entry.run.placement, entry.run.bucket_send) for entry in planned}
    assert ways == {("ddp", None), ("ddp", "grouped_small_last"), ("independent", None)}


def test_batches_are_swept_under_every_placement() -> None:
    repeated = [entry for entry in cnn_batches((1, 2, 4)) if entry.tier == "headline"]
    assert {(e.run.devices, e.run.batch_size, e.run.execution) for e in repeated} == {(n, b, "captured") for n in (1, 4) for b in (16, 512)}
    planned = [entry for entry in cnn_batches((1, 4)) if entry.tier == "screening"]
    assert len({entry.run.digest for entry in planned}) == len(planned) == 2 * (3 * 3 + 1) * len(SPINE_PLACEMENTS + OTHER_PLACEMENTS)
    assert {entry.run.batch_size for entry in planned if entry.run.model == "alexnet"} == {512}


def test_ladders_join_what_other_grids_measure() -> None:
    """Equal digests are equal Runs: ResNet-50's captured batches, and the captured models at their own batch."""
    ladder = {entry.run.digest for entry in cnn_ladders((1, 4))}
    others = [*captured((1,)), *cnn_batches((1,)), *cnn_models((1,))]
    joined = {(e.run.model, e.run.batch_size) for e in others if e.run.digest in ladder and e.run.execution == "captured"}
    assert joined == {("resnet50_v1.5", batch) for batch in (16, 32, 64, 256, 512)} | {
        (name, find_model("cnn", name).config.default_batch) for name in CAPTURED_MODELS
    }
    eager = {e.run.batch_size for e in cnn_batches((1,)) if e.run.digest in ladder and e.run.execution == "eager"}
    assert eager == {32, 64, 256}
    batches: dict[str, set[int]] = {}
    for entry in cnn_ladders((1,)):
        batches.setdefault(entry.run.model, set()).add(entry.run.batch_size)
    assert set(batches) == {model.name for model in (*FOR_IMAGENET, *FOR_CIFAR)}, "every model of the document"
    ends = {name: set(ENDS_OF_LADDERS.get(name, ())) for name in batches}
    assert all(batches[name] == {*LADDER} | ends[name] for name in (*LARGE, *SMALL))
    assert all(batches[name] == {*COARSE_LADDER} | ends[name] for name in (*FURTHER, *ONCE))
    assert all(not own & {*LADDER} or name in (*FURTHER, *ONCE) for name, own in ends.items()), "no rung is planned twice"
    assert not cnn_ladders((2, 4))


def test_captured_ladders_are_measured_in_two_launches() -> None:
    """Screening all the same: two repeats are not the five of a headline point."""
    planned = find_grid("cnn_ladders", (1,))
    single = {(model, batch) for model, batches in ENDS_OF_LADDERS.items() for batch in batches}
    single |= {(model, batch) for model in ONCE for batch in COARSE_LADDER}
    counts = Counter((e.run.model, e.run.batch_size) for e in planned if e.run.execution == "captured")
    assert all(count == (1 if rung in single else 2) for rung, count in counts.items())
    seen = {(entry.run.execution, entry.tier, *((point.repeat, point.launch) for point in entry.points())) for entry in planned}
    assert seen == {("captured", "screening", (0, 0)), ("captured", "screening", (1, 1)), ("eager", "screening", (0, 0))}
    assert [entry.first_repeat for entry in planned] == sorted(entry.first_repeat for entry in planned), "first repeats first"


def test_the_price_of_a_ladder_grows_with_its_batches_until_memory_ends() -> None:
    model = find_model("cnn", "resnet50_v1.5")
    prices = [ladder_price_s(model, batch) for batch in LADDER]
    assert prices[:-1] == sorted(prices[:-1]) and prices[-1] == 4.0 < prices[-2]
    # 40 steps of 1,024 images at 4,938 images/s, as measured at 512, are 8.3 s
    assert 8.3 <= prices[LADDER.index(1024)] <= 1.6 * 8.3


def test_formats_repeat_what_claims_compare_and_updates_what_one_model_shows() -> None:
    repeated = {(e.run.model, e.run.precision, e.run.layout, e.run.devices) for e in cnn_formats((1, 2, 4)) if e.tier == "headline"}
    layouts = ("channels_first", "channels_last")
    models = ("resnet50_v1.5", "alexnet_cifar")
    assert repeated == {(model, "fp32", layout, count) for model in models for layout in layouts for count in (1, 4)}
    updates = [entry.run for entry in cnn_updates((1, 2, 4))]
    assert {run.model for run in updates if run.all_reduce_spec == "central_server:32k:ring"} == {"vgg16"}
    assert {run.model for run in updates if run.wire_dtype and run.execution == "eager"} == {"vgg16"}
    sizes = {(run.model, run.batch_size, run.devices, run.bucket_mib) for run in updates if run.bucket_mib}
    assert sizes == {("resnet50_v1.5", batch, 4, size) for batch in (64, 256) for size in (10, 100)}
    assert not any(entry.run.bucket_mib for entry in cnn_updates((1,)))


def test_what_no_claim_reads_is_measured_once_or_three_times() -> None:
    assert {len(entry.points()) for entry in family((1, 2, 4, 8))} == {1}
    widths = {entry.run.model for entry in family((1, 2, 4)) if entry.run.execution == "eager" and entry.run.placement == "ddp"}
    assert len(widths) == 6 and len({entry.run.model for entry in family((1,))}) == 15
    thrice = {(e.run.device_ids, e.run.devices) for e in hardware((1, 2, 4)) if len(e.points()) > 1}
    assert thrice == {(str(gpu), 1) for gpu in range(4)} | {("0,1", 2), (None, 1)}
    joules = [e for e in energy((1, 4)) if len(e.points()) > 1]
    assert len(joules) == 4 and {(e.run.devices, e.run.energy_window_s) for e in joules} == {(1, 12)}
    assert {len(entry.points()) for entry in hardware((1, 2, 4))} == {1, 3}
    assert {(e.run.workload, e.run.energy_window_s) for e in energy((1, 4))} == {("cnn", 12)}


def test_inputs_are_fed_at_both_ends() -> None:
    planned = inputs((1, 2, 4))
    assert {entry.run.devices for entry in planned} == {1, 4}
    swept = Counter((e.run.model, e.run.devices) for e in planned if e.run.input_workers in (1, 2, 4, 8) and e.run.framework == "torch")
    assert swept == {("resnet50_v1.5", 1): 4, ("resnet50_v1.5", 4): 4, ("resnet152_v1.5", 1): 4}
    assert {e.run.input_workers for e in planned if e.run.framework == "tensorflow"} <= {None, 16}


def test_every_model_of_interest_is_compiled_in_both_forms_and_the_expensive_one_comes_first() -> None:
    planned = cnn_compiled((1, 2, 4))
    assert {entry.run.devices for entry in planned} == {1, 4}
    for count in (1, 4):
        own = [entry.run for entry in planned if entry.run.devices == count]
        assert {run.model for run in own} == set(CNNS_OF_INTEREST)
        forms = [run.execution for run in own]
        assert forms == ["compiled_captured", "compiled"] * (len(CNNS_OF_INTEREST) + 1)


def test_a_strong_point_has_a_step_of_one_gpu_to_be_compared_with() -> None:
    planned = cnn_strong((1, 2, 4, 8))
    for entry in planned:
        Run(**entry.run.model_dump())  # valid
        assert entry.run.scaling == ("strong" if entry.run.devices > 1 else "weak")
        assert sum(entry.run.shard_sizes) in JOINED[entry.run.model]
    ladder = {entry.run.digest for entry in cnn_ladders((1,))}
    assert all(entry.run.digest in ladder for entry in planned if entry.run.devices == 1)
    assert all(entry.tier == "headline" for entry in planned[:4])


def test_memory_speed_needs_one_gpu_and_no_host_and_holds_every_model() -> None:
    """Two kinds of GPU can be compared in it: nothing of a host, of a second GPU or of a page of its own."""
    planned = memory_speed([1, 2])
    runs = [entry.run for entry in planned]
    assert all(run.devices == 1 and run.execution == "captured" and run.inputs == "synthetic" for run in runs)
    assert {run.model for run in runs} == {model.name for model in (*FOR_IMAGENET, *FOR_CIFAR)} | {"nmt000"}
    assert len({run.digest for run in runs}) == len(runs)
    assert {(run.model, run.precision) for run in runs} >= {("alexnet", "fp32"), ("alexnet", "tf32"), ("resnet50_v1.5", "fp32")}
    assert all(len(entry.points()) == (1 if entry.run.traced_steps else 3) for entry in planned)
    for run in (run for run in runs if run.traced_steps):
        assert run.model_copy(update={"traced_steps": 0, "timed_steps": 30}) in runs, "its step is timed without a profiler too"
    assert memory_speed([2, 4]) == []


def test_captured_formats_hold_every_layout_and_precision_of_each_model() -> None:
    """What the eager grid holds on one GPU, with no host in it; the dearest searches last, so that a budget leaves these out."""
    traced, *planned = cnn_formats_captured([1, 2])
    assert traced.run.traced_steps and (traced.run.model, traced.run.precision) == ("resnet50_v1.5", "fp16")

    def facts(run: Run) -> tuple[object, ...]:
        return run.model, run.batch_size, run.precision, run.layout, run.loss_scale

    assert {facts(e.run) for e in planned} == {facts(e.run) for e in cnn_formats([1])}
    assert all(e.run.execution == "captured" and e.run.inputs == "synthetic" for e in planned)
    assert len({e.run.digest for e in planned}) == len(planned) == 8 * 7
    assert [e.cost_s for e in planned] == sorted(e.cost_s for e in planned) and planned[-1].run.model == "alexnet"
    assert cnn_formats_captured([2]) == []
