"""Write what merging costs the computing beside it, as the committed Records tell it.

`src/multigpu/analysis/merge_cost.yaml` holds it, by form of execution. Run this after new Records
are committed: `PYTHONPATH=src python workflow/merge_cost.py`.
"""

import yaml

from multigpu import paths
from multigpu.analysis import merge_cost


def main() -> None:
    """Write the table, and say how many pairs lie in the band that all other models give."""
    pairs = merge_cost.committed(paths.RUNS)
    held = merge_cost.held_without_itself(pairs, ratios := merge_cost.left_out(pairs))
    for form, own in pairs.groupby("form"):
        off = (1 / ratios[own.index] - 1).abs().mean()
        print(f"{form}: {len(own)} pairs, mean error {off:.1%}, held {held[own.index].mean():.1%}")
    print(f"{held.sum()} of {len(held)} are held")
    found = merge_cost.cost_table(pairs)
    rounded = {
        form: {name: round(value, 6) for name, value in one._asdict().items()}
        for form, one in found.items()
    }
    merge_cost.TABLE.write_text(yaml.safe_dump(rounded))


if __name__ == "__main__":
    main()
