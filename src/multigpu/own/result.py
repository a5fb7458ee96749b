"""What `compare` found: the fastest placement, a table, why it is no faster, what more devices
would give.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from multigpu import paths
from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.compare import ratio_columns, verdict
from multigpu.analysis.estimate import Estimate
from multigpu.analysis.explain import step_parts, wait_of
from multigpu.analysis.explain_text import PART_NAMES
from multigpu.analysis.forecast import Points, forecast, launch_residuals
from multigpu.analysis.forecast_lines import NETWORK, hidden_by_half, measured_links
from multigpu.analysis.forecast_merge import Links, demand_of, merge_seconds
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import Missing, points, where
from multigpu.analysis.traces import causes_frame
from multigpu.own.page import page
from multigpu.own.placed import ONE, USUAL, Placed, called, less, no_more
from multigpu.placements import find_placement
from multigpu.record import Equivalence, Record, RecordStore
from multigpu.run import Run, build_run
from multigpu.workloads.own.description import Described, know

KEPT = "comparison.json"


@dataclass(frozen=True, eq=False)
class Result:
    """A comparison. frame: a row a placement that was measured, one device first. refused:
    placement -> why it cannot be had.
    """

    described: Described
    runs: list[Run]
    refused: dict[str, str]
    records: list[Record]
    folder: Path
    budget_s: float
    frame: pd.DataFrame

    @classmethod
    def of(
        cls,
        described: Described,
        runs: Sequence[Run],
        refused: dict[str, str],
        records: Sequence[Record],
        folder: Path,
        budget_s: float,
    ) -> Result:
        table = points(frame_of(records))
        table = table[table["n"] > 0].reset_index(drop=True)
        order = [called(run) for run in runs]
        table["name"] = pd.Series(
            [called(row) for _, row in table.iterrows()], table.index, dtype="string"
        )
        table = table.sort_values(
            "name", key=lambda names: names.map(order.index), kind="stable"
        ).reset_index(drop=True)
        ones = table[table["devices"] == 1].sort_values("rate", ascending=False)  # at its best
        if len(ones):
            base = pd.DataFrame([ones.iloc[0]] * len(table), index=table.index).astype(table.dtypes)
            table = pd.concat([table, ratio_columns(table, base, "speedup")], axis=1)
        else:
            table[["speedup", "speedup_low", "speedup_high"]] = np.nan
        return cls(described, list(runs), dict(refused), list(records), folder, budget_s, table)

    def __getitem__(self, name: str) -> Placed:
        """A placement that was measured; a KeyError that says why where it was not."""
        found = self.frame[self.frame["name"] == name]
        if found.empty:
            raise KeyError(
                self.failed.get(name) or self.refused.get(name) or f"{name} was not measured"
            )
        return Placed(
            next(run for run in self.runs if called(run) == name),
            found.iloc[0],
            self.described,
            self.folder,
        )

    @property
    def names(self) -> list[str]:
        return list(self.frame["name"])

    @property
    def failed(self) -> dict[str, str]:
        return {
            called(r.run): r.reason.removeprefix("JobError: ")
            for r in self.records
            if r.status != "ok" and called(r.run) not in self.names
        }

    @property
    def left_out(self) -> list[str]:
        return [
            name
            for name in map(called, self.runs)
            if name not in self.names and name not in self.failed
        ]

    def equivalence(self, name: str) -> Equivalence | None:
        """How a placement compared with one process; None: it was not compared."""
        return next(
            (record.measurement.equivalence for record in self._ok(name) if record.measurement),
            None,
        )

    def _ok(self, name: str, traced: bool = False) -> list[Record]:
        own = [
            record
            for record in self.records
            if record.status == "ok" and called(record.run) == name
        ]
        return [record for record in own if bool(record.run.traced_steps) == traced]

    def _equal(self, name: str) -> bool:
        compared = self.equivalence(name)
        return find_placement(self[name].run.placement).semantics.facts.is_equal_training and (
            compared is None or compared.holds
        )

    @property
    def best(self) -> Placed | None:
        """The fastest that trains what one process on the joined batch does, one device among them;
        None where nothing was measured.
        """
        return self._first(self.names)

    @property
    def fastest(self) -> Placed | None:
        """As `best`, of placements on several devices alone."""
        return self._first(name for name in self.names if self[name].run.devices > 1)

    def _first(self, names: Iterable[str]) -> Placed | None:
        return max(
            (self[name] for name in names if self._equal(name)),
            key=lambda placed: placed.rate.value,
            default=None,
        )

    @property
    def rivals(self) -> list[str]:
        """Placements that the intervals do not tell from the best."""
        if (best := self.best) is None:
            return []
        others = self.frame[
            [name != best.name and self._equal(name) for name in self.names]
        ].reset_index(drop=True)
        if others.empty:
            return []
        base = pd.DataFrame([best.row] * len(others), index=others.index).astype(others.dtypes)
        says = verdict(ratio_columns(others, base, "ratio"))
        return list(others.loc[says.isin(["not told apart", "faster"]), "name"])

    def table(self) -> pd.DataFrame:
        """A row a placement, one device first, then the fastest: rates, speedups, step, memory,
        bytes, and if it equals one process.
        """
        found = self.frame[
            [
                "name",
                "devices",
                "rate",
                "rate_low",
                "rate_high",
                "speedup",
                "speedup_low",
                "speedup_high",
            ]
        ].copy()
        found["step_ms"] = 1e3 * self.frame["step_time_s"]
        found["peak_memory_gib"] = self.frame["peak_memory_gib"]
        found["moved_bytes"] = self.frame["moved_bytes"]
        found["repeats"] = self.frame["n"]
        found["equal"] = [self._says(name) for name in self.names]
        return found.sort_values(
            ["devices", "rate"], ascending=[True, False], kind="stable"
        ).reset_index(drop=True)

    def _says(self, name: str) -> str:
        semantics, compared = (
            find_placement(self[name].run.placement).semantics,
            self.equivalence(name),
        )
        if not semantics.facts.is_equal_training and self[name].run.devices > 1:
            return f"{semantics.kind}: trains something else"
        if compared is None:
            return "not compared"
        return "equal" if compared.holds else f"NOT equal: {compared.distance:.1g} apart"

    def why_not_scaling(self, name: str | None = None) -> pd.DataFrame:
        """Where a step goes, in ms with their interval: cause, ms, ms_low, ms_high, known_by; None:
        of the fastest. Missing: not measured.

        By steps alone: what one device takes, what independent replicas take more (they share this
            machine and nothing else), and what
        the placement takes more than these. Where a step was traced, the last is divided by what
        devices waited for.
        """
        placed = self._asked(name)
        alone = called(placed.run.model_copy(update={"devices": 1}))
        if alone not in self.names:
            raise Missing(f"{alone} was not measured within the budget: give more of it")
        one, own = self._step(alone), self._step(placed.name)
        if placed.name == alone and (parts := self._parts(placed)):
            rows = [
                (PART_NAMES[part], own / (sum(parts.values()) / value), "trace")
                for part, value in parts.items()
                if value > 0
            ]
        else:
            one = no_more(one, own)
            rows = [("computing, as on one device", one, "one device's step")]
        rest, told = one, "the step, less one device's"
        if (
            "independent" in self.names
            and placed.name not in ("independent", alone)
            and placed.run.execution in USUAL
        ):
            shared = no_more(self._step("independent"), own)
            rows.append(
                (
                    "devices share this machine",
                    less(shared, one),
                    "independent replicas, less one device",
                )
            )
            rest, told = (
                max(shared, one, key=lambda step: step.value),
                "the step, less independent replicas'",
            )
        if placed.name != alone:
            more = less(own, rest)
            rows += [(cause, part, "trace") for cause, part in self._traced(placed, more)] or [
                ("gradients and variables travel and merge", more, told)
            ]
        table = pd.DataFrame(
            [(cause, 1e3 * e.value, 1e3 * e.low, 1e3 * e.high, how) for cause, e, how in rows]
        )
        return table.set_axis(["cause", "ms", "ms_low", "ms_high", "known_by"], axis=1)

    def _step(self, name: str) -> Estimate:
        rate, step_s = self[name].rate, float(self[name].row["step_time_s"])
        return Estimate(
            step_s, step_s * rate.value / rate.high, step_s * rate.value / rate.low, rate.keys
        )

    def _asked(self, name: str | None) -> Placed:
        placed = self[name] if name else self.fastest or (self[ONE] if ONE in self.names else None)
        if placed is None:
            raise Missing("nothing was measured within the budget: give more of it")
        return placed

    def _parts(self, placed: Placed) -> dict[str, float] | None:
        traced, timed = (self._ok(placed.name, traced) for traced in (True, False))
        return (
            step_parts(causes_frame(traced), float(placed.row["step_time_s"]), wait_of(timed))
            if traced
            else None
        )

    def _traced(self, placed: Placed, more: Estimate) -> list[tuple[str, Estimate]]:
        waits = {
            name: value
            for name, value in (self._parts(placed) or {}).items()
            if name != "compute" and value > 0
        }
        whole = sum(waits.values())
        if not whole or more.value <= 0:
            return []
        parts = sorted(waits.items(), key=lambda pair: -pair[1])
        return [(PART_NAMES[name], more / (whole / value)) for name, value in parts]

    def forecast(self, devices: int = 8, name: str | None = None) -> Estimate:
        """Samples/s on more devices like these in one machine, fitted to its steps; of one GPU by
        published links. Missing: no fit.
        """
        placed = self._asked(name) if name or self.fastest else self.best or self._asked(name)
        run = placed.run
        alone = called(run.model_copy(update={"devices": 1}))
        if alone not in self.names:
            raise Missing(f"a forecast needs {alone} beside {placed.name}: measure both")
        tables = self.described.tables
        rows = sum(table.ids for table in tables.values()) * run.batch_size / max(1, len(tables))
        try:
            demand = demand_of(find_placement(run.placement), run.description.variables, rows)
        except ValueError as error:
            raise Missing(str(error)) from None
        if run.devices == 1:
            gpu = run.device_type == "cuda" and self.records[0].machine.gpus[0]
            links = (
                measured_links(
                    gpu,
                    where(collectives_frame(paths.COLLECTIVES), status="ok", dtype="fp32"),
                    NETWORK,
                )
                if gpu
                else None
            )
            if links is None:
                raise Missing("no links between such devices were measured: compare on two of them")
            one_s = self._step(placed.name)
            merge_s = sum(merge_seconds(demand, devices, links))
            ends = (one_s.high, one_s.low) if one_s.known else (one_s.value, one_s.value)
            return hidden_by_half(
                run.batch_size, devices, (one_s.value, *ends), merge_s, "samples/s"
            )
        steps = [self._steps(alone), self._steps(placed.name)]
        fitted = Points((1, run.devices), (steps[0], steps[1]), demand)
        found = forecast(fitted, [devices], Links(1.0, node=devices), launch_residuals(steps)).iloc[
            0
        ]
        rate, low, high = (
            run.batch_size * devices / float(found[name])
            for name in ("step_s", "step_s_high", "step_s_low")
        )
        return Estimate(rate, low, high, placed.rate.keys, "samples/s")

    def _steps(self, name: str) -> tuple[float, ...]:
        return tuple(
            record.measurement.wall_s / record.run.timed_steps
            for record in self._ok(name)
            if record.measurement
        )

    def _repr_html_(self) -> str:
        return page(self, whole=False)

    def write_page(self) -> Path:
        path = self.folder / "index.html"
        path.write_text(page(self))
        return path


def keep(
    folder: Path,
    described: Described,
    runs: Sequence[Run],
    refused: dict[str, str],
    budget_s: float,
) -> None:
    """Write what `compared` wants beside the Records: comparison.json of the folder."""
    told = {"model": described.name, "refused": refused, "budget_s": budget_s}
    (folder / KEPT).write_text(
        json.dumps(
            {**told, "runs": [run.model_dump(exclude_defaults=True) for run in runs]}, indent=1
        )
    )


def kept_runs(folder: Path, model: str) -> list[Run]:
    """The Runs of the comparison of this model that is in a folder; none where there is none."""
    told = json.loads((folder / KEPT).read_text()) if (folder / KEPT).is_file() else {}
    return [build_run(**fields) for fields in told["runs"]] if told.get("model") == model else []


def compared(folder: str | Path) -> Result:
    """The comparison that a call of `compare` left in this folder; a ValueError where there is
    none.
    """
    place = Path(folder).resolve()
    if not (place / KEPT).is_file():
        raise ValueError(
            f"{folder} holds no comparison: name the folder that `compare` wrote to, or compare"
            " first"
        )
    know(place / "jobs")
    told = json.loads((place / KEPT).read_text())
    runs = kept_runs(place, told["model"])
    described = Described.model_validate_json(
        (place / "jobs" / f"{told['model']}.json").read_text()
    )
    own = {run.digest for run in runs}
    kept = [
        r
        for r in RecordStore(place / "records")
        if r.run.model_copy(update={"traced_steps": 0}).digest in own
    ]
    return Result.of(described, runs, told["refused"], kept, place, told["budget_s"])
