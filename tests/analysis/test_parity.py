"""Losses beside the fp32 reference: what is the same training and what is not; captured steps of Records train as eager ones do."""

import pandas as pd
import pytest

from multigpu.analysis.parity import JOB, STEPS, WAY, learning_losses, parity
from multigpu.record import Record
from tests.factory import make_record


def trained(loss: list[float], skipped_steps: tuple[int, int] | None = None, **fields: object) -> Record:
    return make_record(measurement={"loss": loss, "skipped_steps": skipped_steps}, **fields)


PLAIN = trained([10.0 - step / 10 for step in range(40)], precision="fp32")


def test_the_difference_is_of_the_first_steps_means() -> None:
    late = trained([10.0 - step / 10 if step < STEPS else 1.0 for step in range(40)])
    off = trained([1.02 * (10.0 - step / 10) for step in range(40)], execution="captured")
    table = parity([PLAIN, late, off])
    assert list(table["difference"]) == pytest.approx([0.0, 0.0, 0.02])


def test_steps_that_left_their_update_out_are_passed_over() -> None:
    """Two of fp16's first steps overflowed, the first and the fourth: the same batch has the same loss once more."""
    plain = PLAIN.measurement.loss
    skipping = [plain[0], plain[0], plain[1], plain[2], plain[2], *plain[3:38]]

    def in_fp16(counted: tuple[int, int] | None) -> Record:
        return trained(skipping, counted, workload="cnn", devices=1, batch_size=64, precision="fp16")

    reference = trained(plain, workload="cnn", devices=1, batch_size=64, precision="fp32")
    assert learning_losses(in_fp16((2, 0))) == plain[:38] and learning_losses(in_fp16((1, 1))) == plain[:38]
    assert learning_losses(in_fp16((1, 0))) == skipping[1:], "no more are passed over than were counted"
    assert learning_losses(in_fp16((0, 0))) == learning_losses(in_fp16(None)) == skipping
    late, same = parity([reference, in_fp16(None)])["difference"].iloc[1], parity([reference, in_fp16((2, 0))])["difference"].iloc[1]
    assert late > 0.01 and same == pytest.approx(0)


def test_other_jobs_independent_replicas_and_short_runs_are_left_out() -> None:
    records = [
        PLAIN,
        trained([1.0] * 40, devices=4),
        trained([1.0] * 40, batch_size=360),
        trained([1.0] * 40, placement="independent"),
        trained([1.0] * (STEPS - 1)),
    ]
    assert list(parity(records)["key"]) == [PLAIN.key]


@pytest.mark.parametrize(("workload", "model", "compared"), [("nmt", "nmt000", 2), ("cnn", "resnet50_v1.5", 1), ("stacks", "mlp42m", 1)])
def test_what_tensorflow_draws_by_itself_is_left_out(workload: str, model: str, compared: int) -> None:
    job = {"workload": workload, "model": model, "precision": "fp32", "devices": 1}
    twin = {"framework": "tensorflow", "placement": "exp4", "processes": "one", "execution": "graph"}
    assert len(parity([trained([1.0] * 40, **job), trained([1.0] * 40, **job, **twin)])) == compared


TOLERANCE = 0.01
"""By how much a loss may differ from the reference's."""
BY_GRAPH = {"ddp", "exp4", "ps_gpu0", "replicated_copy", "replicated_allreduce"}


def test_captured_records_train_as_eager_ones_do(committed: list[Record]) -> None:
    """As page 05 compares: mean loss of the first steps beside the same job's plain Run, for both forms of execution of a placement."""
    table = parity(committed)
    table = table[~table["staged"] & table["framework"].eq("torch")]
    plain = table[table["execution"].eq("eager") & table["precision"].ne("fp16")]  # fp16's scale is found or fixed
    repeats = plain.groupby([*JOB, *WAY, "placement"], dropna=False)["difference"]
    wide = (repeats.transform("max") - repeats.transform("min")).gt(2 * TOLERANCE).reindex(table.index, fill_value=False)
    chaotic = wide.groupby(table.groupby(list(JOB), dropna=False).ngroup()).transform("any").astype(bool)
    assert set(table[chaotic]["model"]) <= {"resnet110"}, "a job whose plain repeats part in ten steps tells nothing"
    table = table[~chaotic]
    captured, eager = table[table["execution"].str.contains("captured")], table[table["execution"].eq("eager")]
    assert set(captured["model"]) >= {"nmt000", "resnet50_v1.5"} and set(captured["placement"]) >= BY_GRAPH
    assert (captured["difference"].abs() < 2 * TOLERANCE).all(), "one Record parts from plain training"
    far = captured.groupby([*JOB, *WAY, "placement"], dropna=False)["difference"].median()  # of repeats: kernels may add in other orders
    assert (far.abs() <= TOLERANCE).all(), far[far.abs() > TOLERANCE].to_string()
    same = [*JOB, "precision", "placement"]
    means = eager.groupby(same, dropna=False)["difference"].median().rename("eager").reset_index()
    both = pd.merge(captured, means, on=same)
    assert len(both) > 50 and set(both["placement"]) >= BY_GRAPH
    apart = both[((1 + both["difference"]) / (1 + both["eager"]) - 1).abs() > TOLERANCE]
    assert apart.empty, ", ".join(apart["key"])
