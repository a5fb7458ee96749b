"""Cost formulas against the prediction that every Record asserts, and against arithmetic by
hand.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from multigpu.placements import find_placement, placements
from multigpu.placements.row import Placement
from multigpu.placements.traffic import ID_BYTES, assign, cut_elements, predicted_bytes
from multigpu.spec.model import Variable
from multigpu.workloads import find_model
from multigpu_study.placements.formula import Formula, formula, formula_lines, latex, times

JOBS = (("nmt", "nmt000"), ("cnn", "resnet50_v1.5"))


def quantities(
    placement: Placement, variables: Sequence[Variable], lookups: Sequence[Mapping[str, int]]
) -> dict[str, int]:
    """The symbols' values in bytes for these variables of float32 and look-ups (of each replica,
    table -> rows).
    """
    sums = Counter(S_laid=4 * cut_elements(placement, variables, 4, len(lookups)))
    for a in assign(placement, variables, len(lookups)):
        sums["T" if a.variable.kind == "embedding" else "V"] += 4 * a.variable.elements
        where = a.update if a.update >= 0 else a.lookup
        for replica, rows in enumerate(lookups):
            count = rows.get(a.variable.name, 0)
            width = 4 * a.variable.shape[1] if count else 0
            sums += Counter(
                E=count * width,
                **(
                    {}
                    if replica == where
                    else {"E_other": count * width, "I_other": count * ID_BYTES}
                ),
            )
    return {**sums, "S": sums["V"] + sums["T"]}


def evaluated(found: Formula, values: Mapping[str, int], replicas: int) -> dict[str, int]:
    """The formula's bytes by kind, kinds that move nothing left out; a collective among one moves
    nothing.
    """
    moved = {
        kind: sum(
            times(coefficient, replicas) * values.get(quantity, 0)
            for quantity, coefficient in terms.items()
        )
        for kind, terms in found.items()
        if replicas > 1 or kind not in ("all_reduce", "all_gather", "reduce_scatter")
    }
    return {kind: count for kind, count in moved.items() if count}


@pytest.mark.parametrize("job", JOBS, ids=[name for _, name in JOBS])
@pytest.mark.parametrize(
    "name", sorted(name for name, row in placements().items() if row.travels != "activations")
)
def test_the_formula_gives_the_predicted_bytes_with_unequal_replicas(name, job):
    placement, model = find_placement(name), find_model(*job)
    tables = [v.name for v in model.variables if v.kind == "embedding"]
    for replicas in range(1, 9):
        lookups = [
            {table: 1000 + 37 * rank + 11 * index for index, table in enumerate(tables)}
            for rank in range(replicas)
        ]
        values = quantities(placement, model.variables, lookups)
        assert evaluated(formula(placement), values, replicas) == predicted_bytes(
            placement, model.variables, lookups
        )


def test_formulas_by_hand():
    assert {kind: latex(terms) for kind, terms in formula(find_placement("exp2")).items()} == {
        "host_to_device": "P V + E",
        "device_to_host": "P V + E",
    }
    assert {kind: latex(terms) for kind, terms in formula(find_placement("exp4")).items()} == {
        "device_to_device": r"2 (P - 1) V + 2 (E - E_{\mathrm{own}}) + (I - I_{\mathrm{own}})"
    }
    assert {kind: latex(terms) for kind, terms in formula(find_placement("exp1")).items()} == {
        "host_to_device": "P V + T + E",
        "device_to_host": "S",
        "device_to_device": r"(P - 1) V + (E - E_{\mathrm{own}}) + (I - I_{\mathrm{own}})",
    }
    assert latex(formula(find_placement("replicated_copy"))["device_to_device"]) == "P (P - 1) S"
    assert formula(find_placement("independent")) == {} and formula_lines(
        find_placement("independent")
    ) == ["nothing: $0$"]


def test_a_row_without_a_formula_says_so():
    row = find_placement("exp4").model_dump() | {
        "name": "apart",
        "update": "gpu0",
        "reduction": "gpu0",
    }
    with pytest.raises(
        ValueError,
        match="apart: no formula follows from variables at 'balanced' and update at 'gpu0'",
    ):
        formula(Placement(**row))
