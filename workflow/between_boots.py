"""Write how far points differ between boots of a host, among the committed Records.

`src/multigpu/analysis/between_boots.yaml` holds it, by form of execution. Run this after new
Records are committed: `PYTHONPATH=src python workflow/between_boots.py`.
"""

import yaml

from multigpu import paths
from multigpu.analysis import boots
from multigpu.analysis.read import frames


def main() -> None:
    """Write the table, and say how wide intervals across boots then are."""
    pairs = boots.repeated_points(frames(paths.RUNS)[1]["sample"].dropna())
    found = {}
    for form, spread in boots.estimated(pairs).items():
        own = pairs[pairs["form"] == form]
        found[form] = {
            "spread": round(spread, 5),
            "pairs": len(own),
            "points": int(own["point"].nunique()),
        }
        half = boots.width(spread, own["within"].to_numpy(), own["freedom"].to_numpy())
        print(f"{form}: {found[form]}, half of an interval: {sorted(half)[len(half) // 2]:.1%}")
    held = boots.held_without_itself(pairs)
    print(f"each point left out of its own estimate: {held.sum()} of {len(held)} are held")
    boots.TABLE.write_text(yaml.safe_dump(found))


if __name__ == "__main__":
    main()
