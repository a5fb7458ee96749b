"""Write what four and eight H100s should reach, as nobody has measured them here:
`data/predictions/h100.csv`.

Each forecast rests on the step of one H100, on what merging costs (`merge_cost.yaml`), and on links
as measured between H200s, since both kinds have NVLink 4. It says whether a step foretells other
kinds of GPU. A file with a forecast stays as it is: `PYTHONPATH=src python workflow/other_kind.py`
"""

from datetime import UTC, datetime

import pandas as pd

from multigpu import paths
from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.expected import from_one_device
from multigpu.analysis.fields import LENGTH
from multigpu.analysis.forecast_lines import NETWORK, measured_links
from multigpu.analysis.forecast_reduction import Links
from multigpu.analysis.merge_cost import kind_of
from multigpu.analysis.points import as_it_comes, where
from multigpu.analysis.query import command_of, run_of
from multigpu.analysis.read import frames
from multigpu.build import build_run

FILE = paths.REPOSITORY / "data" / "predictions" / "h100.csv"
KIND, LINKED = "NVIDIA H100 80GB HBM3", "NVIDIA H200"
SENT = ("bucket_mib", "bucket_update", "bucket_send", "nccl_ctas", "wire_dtype", "all_reduce_spec")
PLACEMENTS, COUNTS = ("ddp", "replicated_allreduce", "independent"), (4, 8)


def known() -> tuple[pd.DataFrame, Links]:
    """Return the measured points of H100s, and links as measured between H200s."""
    every = frames(paths.RUNS)[1]
    links = measured_links(LINKED, collectives_frame(paths.RUNS.parent / "collectives"), NETWORK)
    assert links is not None
    return every[every["gpu"].eq(KIND) & every["n"].gt(0)], links


def foretold() -> pd.DataFrame:
    """Return a row for every captured job of one H100, placement and count, in the columns of
    `multigpu measure --forecast`.
    """
    own, links = known()
    jobs = as_it_comes(own, devices=1, placement="ddp", execution="captured", precision="bf16")
    rows, today = [], datetime.now(UTC).date().isoformat()
    for fields in (run_of(row).model_dump(exclude_defaults=True) for _, row in jobs.iterrows()):
        for changed in ({"placement": name, "devices": n} for name in PLACEMENTS for n in COUNTS):
            run = build_run(**fields | changed)
            found = from_one_device(run, own, links)
            if found is not None:
                told = {name: value for name, value in fields.items() if name not in LENGTH}
                words = " ".join(command_of(told | changed).split()[4:])
                asked = {"fields": words, "run": run.digest, "foretold_on": today}
                told = found.as_dict() | {"efficiency": found.scaling}
                told["basis"] = told["basis"].replace("its links", "an H200's links")
                rows.append(asked | told)
    columns = ["fields", "run", "rate", "rate_low", "rate_high", "efficiency", "basis"]
    return pd.DataFrame(rows).drop_duplicates("run")[[*columns, "foretold_on"]]


def beside_measured() -> pd.DataFrame:
    """Return the same forecasts of two H100s, whose Records taught no cost of merging, beside what
    was measured there: error (of the rate), inside (its band).
    """
    own, links = known()
    rows = []
    two = where(own, devices=2, execution="captured", **dict.fromkeys(SENT))
    for _, row in two[two["placement"].ne("independent")].iterrows():
        found = from_one_device(run_of(row), own, links)
        if found is not None and kind_of(row["placement"]) != "homes":
            told, rate = found.rate, row["rate"]
            rows.append((told.value / rate - 1, told.low <= rate <= told.high))
    return pd.DataFrame(rows, columns=["error", "inside"])


if __name__ == "__main__":
    two = beside_measured()
    off, inside = two["error"].abs().mean(), int(two["inside"].sum())
    print(f"{len(two)} points on two H100s: mean error {off:.1%}, {inside} in their bands")
    if FILE.exists():
        raise SystemExit(f"{FILE} was foretold: it is not written again")
    foretold().to_csv(FILE, index=False, float_format="%.6g")
