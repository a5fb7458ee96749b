"""The command `compare`."""

from __future__ import annotations

import argparse

import pandas as pd

from multigpu.analysis.estimate import Estimate
from multigpu.analysis.points import Missing
from multigpu.own.compare import compare
from multigpu.own.page import answer, remarks
from multigpu.own.result import Result


def lines(result: Result) -> list[str]:
    """The comparison as text: the answer, the table, where a step goes, and what to know of it."""
    told = result.table()
    rows = [
        {
            "placement": row["name"],
            "samples/s": format(Estimate(row["rate"], row["rate_low"], row["rate_high"]), "rate interval"),
            "times one device": format(Estimate(row["speedup"], row["speedup_low"], row["speedup_high"]), "times interval"),
            "step": format(Estimate(row["step_ms"] / 1e3), "ms"),
            "moved": format(Estimate(row["moved_bytes"]), "bytes"),
            "beside one process": row["equal"],
        }
        for _, row in told.iterrows()
    ]
    found = [answer(result), "", pd.DataFrame(rows).to_string(index=False), ""]
    try:
        causes = result.why_not_scaling()
        found += [
            f"{format(Estimate(row['ms'] / 1e3, row['ms_low'] / 1e3, row['ms_high'] / 1e3), 'ms interval')}  {row['cause']}"
            for _, row in causes.iterrows()
        ]
    except Missing as missing:
        found.append(str(missing))
    return [*found, "", *remarks(result), f"Page: {result.folder / 'index.html'}"]


def compare_command(arguments: argparse.Namespace) -> int:
    """Compare the placements of a user's job; the exit code."""
    names = "all" if arguments.placements == "all" else arguments.placements.split(",")
    result = compare(
        arguments.job,
        arguments.devices,
        names,
        arguments.budget_s,
        arguments.out,
        arguments.device_type,
        arguments.repeats,
        not arguments.quiet,
    )
    print("\n".join(lines(result)))
    return 0
