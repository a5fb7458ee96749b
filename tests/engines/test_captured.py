"""A captured step is the eager one, launched otherwise."""

from dataclasses import replace
from pathlib import Path

import pytest

from multigpu.engines.errors import Unsupported
from multigpu.engines.torch.captured import WIDTH, CapturedTrainer, is_ragged, shape_of, with_few_shapes
from multigpu.engines.torch.feed import Feed
from multigpu.run import Run
from tests.equivalence.cases import make_context, replica
from tests.refusals import refused


def tiny(**fields: object) -> Run:
    common = {"workload": "nmt", "model": "nmt_tiny", "placement": "ddp", "batch_size": 4, "sequence_length": 6}
    return Run(**(common | fields))  # type: ignore[arg-type]


def feed_of(run: Run) -> Feed:
    context, source = make_context(run, 0, Path())
    return Feed(source, 0, context.device)


def test_a_cpu_has_no_graph() -> None:
    trainer, feed = replica(tiny(device_type="cpu", placement="independent"), 0, Path())
    refused("which a CPU does not have", CapturedTrainer, trainer, error=Unsupported)
    feed.close()


def test_a_graph_belongs_to_shapes_lengths_and_counts_but_not_to_the_words() -> None:
    feed = feed_of(tiny(device_type="cpu"))
    longer = feed_of(tiny(device_type="cpu", sequence_length=7))
    ragged = feed_of(tiny(device_type="cpu", sequence_length=None, inputs="lengths_000"))
    first = feed.shard(0)
    other_words = replace(first, device={name: value.flip(0) for name, value in first.device.items()})
    assert shape_of(first) == shape_of(other_words)
    assert len({shape_of(each.shard(0)) for each in (feed, longer, ragged)}) == 3
    assert shape_of(ragged.shard(0)) != shape_of(ragged.shard(1))


def test_a_graph_for_lengths_on_the_device_belongs_to_shapes_alone() -> None:
    feed = feed_of(tiny(device_type="cpu", sequence_length=None, inputs="lengths_000", recurrence="persistent"))
    ragged = [feed.shard(step) for step in range(30)]
    assert all(is_ragged(shard) for shard in ragged) and not is_ragged(feed_of(tiny(device_type="cpu")).shard(0))
    fitted = [with_few_shapes(shard, feed.device.torch) for shard in ragged]
    assert len({shape_of(shard) for shard in ragged}) > len({shape_of(shard) for shard in fitted})
    for before, after in zip(ragged, fitted, strict=True):
        assert after.terms is not None and int(after.terms[0]) == before.batch.loss_terms[0] == int(before.host["target_length"].sum())
        for name in ("source", "target_input", "target_output"):
            width = before.device[name].shape[1]
            assert after.device[name].shape[1] % WIDTH == 0 and after.device[name].shape[1] - width < WIDTH
            assert after.device[name][:, :width].equal(before.device[name])


def stepped(run: Run, captured: bool) -> tuple[list[float], int | None]:
    """Losses of eight steps, and how many of them were left out."""
    trainer, feed = replica(run, 0, Path())
    trainer = CapturedTrainer(trainer) if captured else trainer
    losses = [float(*trainer.step([feed.shard(step)])) for step in range(8)]
    left_out = trainer.skipped_steps()
    trainer.close()
    return losses, left_out


IMAGES = {"workload": "cnn", "model": "resnet_tiny", "sequence_length": None}
each_job = pytest.mark.parametrize("job", [{"cross_entropy": "fused"}, IMAGES], ids=["nmt", "cnn"])


@pytest.mark.gpu
@pytest.mark.parametrize("placement", ["independent", "replicated_allreduce", "exp4", "ps_gpu0", "staged_gpu0"])
@each_job
def test_captured_steps_train_as_eager_ones(placement: str, job: dict[str, object]) -> None:
    eager, captured = (stepped(tiny(placement=placement, execution=form, **job), form == "captured")[0] for form in ("eager", "captured"))
    assert captured == pytest.approx(eager, rel=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("loss_scale", [None, 128])
@pytest.mark.parametrize("placement", ["ddp", "replicated_allreduce"])
def test_captured_steps_scale_their_loss_as_eager_ones(placement: str, loss_scale: int | None) -> None:
    """`ddp` written out in buckets in both forms; what overflows is left out in the same steps."""
    run = tiny(placement=placement, execution="captured", precision="fp16", loss_scale=loss_scale, **IMAGES)
    (eager, left_out), (captured, also) = (stepped(run, as_graph) for as_graph in (False, True))
    assert captured == pytest.approx(eager, rel=1e-2) and left_out == also


@pytest.mark.gpu
@each_job
def test_captured_steps_train_alike_however_buckets_are_sent_and_updated(job: dict[str, object]) -> None:
    ways = ({}, {"bucket_update": "in_backward"}, {"bucket_send": "grouped"}, {"bucket_send": "grouped_small_last"})
    losses = [stepped(tiny(execution="captured", bucket_mib=1, **way, **job), captured=True)[0] for way in ways]
    assert losses == [losses[0]] * 4
