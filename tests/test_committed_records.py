"""What the committed Records say of themselves: captured steps train as eager ones do (`tests/test_verify.py` checks the rest)."""

import pandas as pd

from multigpu.analysis.parity import JOB, WAY, parity
from multigpu.record import Record

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
