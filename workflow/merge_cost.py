"""Write what merging costs the computing beside it, as the committed Records tell it.

`src/multigpu/analysis/merge_cost.yaml` holds it, by form of execution. Run this after new Records
are committed: `PYTHONPATH=src python workflow/merge_cost.py`.
"""

import pandas as pd
import yaml

from multigpu import paths
from multigpu.analysis.merge_cost import TABLE, MergeCost
from multigpu_study.analysis import merge_cost

FEWEST = 8
"""Jobs of a form from which its costs are learned."""


def cost_table(pairs: pd.DataFrame) -> dict[str, MergeCost]:
    """Return every form's costs and band, of forms with at least FEWEST pairs on two devices."""
    ratios = merge_cost.left_out(pairs)
    found = {}
    for form, own in pairs.groupby("form"):
        if own["devices"].eq(2).sum() >= FEWEST:
            band = merge_cost.band_of(ratios[own.index])
            beside, after, homes, share, meeting_s = map(
                float, merge_cost.learned_of(str(form), pairs)
            )
            found[str(form)] = MergeCost(
                beside, after, homes, share, meeting_s, *band, pairs=len(own)
            )
    return found


def main() -> None:
    """Write the table, and say how many pairs lie in the band that all other models give."""
    pairs = merge_cost.committed(paths.RUNS)
    held = merge_cost.held_without_itself(pairs, ratios := merge_cost.left_out(pairs))
    for form, own in pairs.groupby("form"):
        off = (1 / ratios[own.index] - 1).abs().mean()
        print(f"{form}: {len(own)} pairs, mean error {off:.1%}, held {held[own.index].mean():.1%}")
    print(f"{held.sum()} of {len(held)} are held")
    found = cost_table(pairs)
    rounded = {
        form: {name: round(value, 6) for name, value in one._asdict().items()}
        for form, one in found.items()
    }
    TABLE.write_text(yaml.safe_dump(rounded))


if __name__ == "__main__":
    main()
