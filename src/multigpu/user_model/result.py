"""Hold what `compare` found: the fastest placement, a table, why it is no faster, what more devices
would give.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from multigpu.analysis.compare import ratio_columns
from multigpu.analysis.estimate import Estimate
from multigpu.analysis.points import Missing
from multigpu.engines.common.checked import way_of
from multigpu.placements import find_placement
from multigpu.records.record import Equivalence, Record, RecordStore
from multigpu.spec.run import Run
from multigpu.user_model.ahead import forecast
from multigpu.user_model.kept import KEPT, kept_runs
from multigpu.user_model.page import lines, page
from multigpu.user_model.parts import parts
from multigpu.user_model.placed import Placed, called, changes_precision
from multigpu.user_model.race import RaceStanding, RaceWindow, standing
from multigpu.user_model.rates import base_of, on_ready, rates_of, windows_of
from multigpu.user_model.same_losses import other_losses
from multigpu.user_model.trust import Doubt, doubts_of, undisturbed
from multigpu.user_model.verdict import answer
from multigpu.workloads.own.description import Described, know
from multigpu.writing import write_whole


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A comparison. frame: a row a placement that was measured, one device first. refused:
    placement -> why it cannot be had. doubts: name -> why its figures are not believed.

    rate, speedup and step_time_s of the frame are of steps on batches that are on the device
    already, since a placement is no faster by waiting less for them; fed_rate, fed_speedup and
    fed_step_s of steps that take batches as the job gives them. Repeats that were disturbed are
    left out where others were not.
    """

    described: Described
    runs: list[Run]
    refused: dict[str, str]
    records: list[Record]
    folder: Path
    budget_s: float
    frame: pd.DataFrame
    doubts: dict[str, list[Doubt]]

    @classmethod
    def of(
        cls,
        described: Described,
        runs: Sequence[Run],
        refused: dict[str, str],
        records: Sequence[Record],
        folder: Path,
        budget_s: float,
    ) -> "Result":
        each: dict[str, list[Record]] = {called(run): [] for run in runs}
        for record in records:
            if record.status == "ok" and not record.run.traced_steps:
                each[called(record.run)].append(record)
        each = {name: undisturbed(own) for name, own in each.items() if own}
        every = [record for own in each.values() for record in own]
        ready = [on_ready(record, described.batch_s) for record in every]
        fed = rates_of(every)
        table = fed if ready == every else rates_of(ready)
        ends = ("", "_low", "_high")
        table = table.assign(
            **{f"fed_rate{end}": fed[f"rate{end}"] for end in ends}, fed_step_s=fed["step_time_s"]
        )
        base = base_of(table, each)
        for name, rates in (("speedup", table), ("fed_speedup", fed)):
            columns = [f"{name}{end}" for end in ends]
            table[columns] = math.nan
            if base is not None:
                table[columns] = ratio_columns(rates, rates.loc[base], name)[columns]
        doubts = {}
        for _, row in table.iterrows():
            # what a placement can reach is so many times one device in the same form
            own = each[str(row["name"])]
            alone = called(own[0].run.model_copy(update={"devices": 1}))
            one = next((r for _, r in table.iterrows() if r["name"] == alone), None)
            if one is not None:
                row = row.copy()
                beside = ratio_columns(row.to_frame().T, one, "speedup").iloc[0]
                row[list(beside.index)] = beside
            doubts[str(row["name"])] = doubts_of(row, own, one, each.get(alone, []))
        return cls(
            described, list(runs), dict(refused), list(records), folder, budget_s, table, doubts
        )

    def __getitem__(self, name: str) -> Placed:
        """A placement that was measured; a KeyError that says why where it was not."""
        if name not in self._placed:
            raise KeyError(
                self.failed.get(name) or self.refused.get(name) or f"{name} was not measured"
            )
        return self._placed[name]

    @cached_property
    def _placed(self) -> dict[str, Placed]:
        runs = {called(run): run for run in self.runs}
        return {
            str(row["name"]): Placed(runs[str(row["name"])], row, self.described, self.folder)
            for _, row in self.frame.iterrows()
        }

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
        """How a placement compared with one process, in whichever form it was; None: it was not."""
        way = way_of(self[name].run)
        return next(
            (
                record.measurement.equivalence
                for record in self.records
                if record.measurement
                and record.measurement.equivalence
                and way_of(record.run) == way
            ),
            None,
        )

    def measured(self, name: str, traced: bool = False) -> list[Record]:
        """A placement's measured Records, timed or traced, undisturbed ones where there are any."""
        ok = [r for r in self.records if r.status == "ok" and called(r.run) == name]
        return undisturbed([record for record in ok if bool(record.run.traced_steps) == traced])

    def trains_the_same(self, name: str) -> bool:
        """Whether a measured placement trains what one process on the global batch does."""
        compared = self.equivalence(name)
        run = self[name].run
        return (
            find_placement(run.placement).semantics.facts.is_equal_training
            and not changes_precision(run)
            and (compared is None or compared.holds)
            and not self.other_losses[name]
        )

    @cached_property
    def other_losses(self) -> dict[str, str]:
        """Of each measured way, where its losses leave those of launched steps ("": nowhere). A
        model that draws random numbers draws others in a captured step.
        """
        draws = self.described.draws is not False
        return {
            name: "" if draws else other_losses(name, self[name].run, self.records)
            for name in self.names
        }

    @property
    def best(self) -> Placed | None:
        """The fastest that trains what one process on the global batch does, one device among them;
        None where nothing was measured that can be believed, or one device alone where several were
        asked for. `verdict` says how sure this is.
        """
        best = self[self.believed.leader] if self.believed else None
        return None if best and best.run.devices == 1 and self.is_alone else best

    @property
    def fastest(self) -> Placed | None:
        """As `best`, of placements on several devices alone."""
        return self._first(name for name in self.names if self[name].run.devices > 1)

    @property
    def is_alone(self) -> bool:
        """Whether several devices were asked for and none was measured that trains the same."""
        several = [
            name for name in self.names if self[name].run.devices > 1 and self.trains_the_same(name)
        ]
        return any(run.devices > 1 for run in self.runs) and not several

    def _first(self, names: Iterable[str], among: Iterable[str] | None = None) -> Placed | None:
        """The leader of these that train the same, of `among` (None: of believed ones)."""
        fit = {name for name in self.names if not self.doubts[name]} if among is None else {*among}
        same = [name for name in names if name in fit and self.trains_the_same(name)]
        if (found := standing(self.windows, same)) is not None:
            return self[found.leader]
        return max(map(self.__getitem__, same), key=lambda one: one.rate.value, default=None)

    @property
    def ahead(self) -> Placed | None:
        """The fastest as measured, believed or not, that trains what one process does."""
        return self._first(self.names, among=self.names)

    @property
    def ahead_of_several(self) -> Placed | None:
        """As `ahead`, of placements on several devices alone."""
        several = [name for name in self.names if self[name].run.devices > 1]
        return self._first(several, among=several)

    @property
    def base(self) -> Placed | None:
        """One device at its best, which speedups are of; None: it was not measured."""
        ones = [name for name in self.names if self[name].run.devices == 1]
        at_best = self.frame[self.frame["name"].isin(ones) & self.frame["speedup"].eq(1.0)]
        return self[str(at_best["name"].iloc[0])] if len(at_best) else None

    @cached_property
    def windows(self) -> list[RaceWindow]:
        """All that was timed, disturbed or not, in the order of repeats."""
        return windows_of(
            [record for record in self.records if record.status == "ok"], self.described.batch_s
        )

    @cached_property
    def race(self) -> RaceStanding | None:
        """How the race stands of all that train what one process does, believed or not."""
        return standing(self.windows, filter(self.trains_the_same, self.names))

    @cached_property
    def believed(self) -> RaceStanding | None:
        """As `race`, of those whose figures are believed."""
        fit = [name for name in self.names if not self.doubts[name]]
        return standing(self.windows, filter(self.trains_the_same, fit))

    @property
    def rivals(self) -> list[str]:
        """Believed placements that are not told apart from the best, the fastest first."""
        return self.believed.near if self.best and self.believed else []

    @property
    def verdict(self) -> str:
        """Say what was found, in a few sentences, with how sure it is."""
        return " ".join(answer(self))

    def table(self) -> pd.DataFrame:
        """A row a placement, one device first, then the fastest, then those that are not believed:
        rates, speedups, step, memory, bytes, if it equals one process, and why its figures are
        doubted ("": they are not).
        """
        ends = ("", "_low", "_high")
        figures = [f"{name}{end}" for name in ("rate", "speedup", "fed_rate") for end in ends]
        found = self.frame[["name", "devices", *figures]].copy()
        found["step_ms"] = 1e3 * self.frame["step_time_s"]
        found["fed_step_ms"] = 1e3 * self.frame["fed_step_s"]
        found["peak_memory_gib"] = self.frame["peak_memory_gib"]
        found["moved_bytes"] = self.frame["moved_bytes"]
        found["repeats"] = self.frame["n"]
        found["launches"] = self.frame["launches"]
        found["equal"] = [self._says(name) for name in self.names]
        found["doubts"] = [
            ", ".join(doubt.short for doubt in self.doubts[name]) for name in self.names
        ]
        ordered = found.assign(doubted=found["doubts"].ne("")).sort_values(
            ["devices", "doubted", "rate"], ascending=[True, True, False], kind="stable"
        )
        return ordered.drop(columns="doubted").reset_index(drop=True)

    def _says(self, name: str) -> str:
        semantics = find_placement(self[name].run.placement).semantics
        compared = self.equivalence(name)
        run = self[name].run
        if not semantics.facts.is_equal_training and run.devices > 1:
            return f"{semantics.kind}: trains something else"
        if changes_precision(run):
            return f"{run.precision}: other numbers"
        if self.other_losses[name]:
            return f"NOT equal: {self.other_losses[name]}"
        if compared is None:
            return "not compared"
        if not compared.holds:
            return f"NOT equal: {compared.distance:.1g} apart"
        return "equal, with notes" if self.described.notes else "equal"

    def why_not_scaling(self, name: str | None = None) -> pd.DataFrame:
        """Where a step goes, in ms with their interval: cause, ms, ms_low, ms_high, known_by (see
        `parts`); None: of the fastest. Missing: not measured.
        """
        return parts(self, self.chosen(name))

    def chosen(self, name: str | None) -> Placed:
        """Return this placement, or the fastest measured, or one device; Missing: there is none."""
        ahead = self.fastest or self.ahead_of_several
        placed = self[name] if name else ahead or (self[self.names[0]] if self.names else None)
        if placed is None:
            raise Missing("nothing was measured within the budget: give more of it")
        return placed

    def forecast(self, devices: int = 8, name: str | None = None) -> Estimate:
        """Samples/s on more devices like these in one machine, with batches ready on them (see
        `ahead`); None: of the fastest. Missing: no fit.
        """
        return forecast(self, devices, name)

    def _repr_html_(self) -> str:
        return page(self, whole=False)

    def __repr__(self) -> str:
        return "\n".join(lines(self))

    def write_page(self, is_over: bool = True) -> Path:
        """Write the page as it stands, over the one before; is_over: nothing more is measured."""
        path = self.folder / "index.html"
        write_whole(path, page(self, is_over=is_over).encode(), replace=True, synced=False)
        return path


def compared(folder: str | Path) -> Result:
    """Read the comparison that a call of `compare` left in this folder; a ValueError where there is
    none. Nothing in the folder is run, whoever made it: a packed job (`jobs/*.job`, a pickle) is
    opened only to train it, and only if this user packed it on this machine.
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
