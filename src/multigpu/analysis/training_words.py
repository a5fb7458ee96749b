"""What the page on training says of its Records: whether placements follow one curve, which do not, what rules for the rate reach."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.figure_training_rates import rule_points
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.style import in_order, look
from multigpu.analysis.training import ALLOWED, LEAVES, job_name
from multigpu.analysis.training_page import NOT_TOLD, Seen
from multigpu.analysis.wording import devices_text, joined, plural
from multigpu.placements import find_placement


def answer(seen: Seen) -> Shown:
    """A few sentences, each only where Records support it."""
    sentences = [*_curves(seen.same, seen.frame), *_time_to_level(seen), *_rules(seen.frame)]
    text = sentences or ["No Record supports an answer yet: `python -m multigpu train` trains the default grid."]
    return paragraphs(*text)


def exceptions(seen: Seen) -> Shown:
    """Which runs the comparison of curves does not count, and which miss their tolerance; nothing where all follow."""
    return paragraphs(*_uncounted(seen.same[seen.same["role"] == "compared"]), *_leaving(seen.same), kind="said")


def _curves(same: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    """One comparison, then all of them: of image models before others, on GPUs before CPUs, the one that tells most."""
    compared, judged = same[same["role"] == "compared"], same[same["same"].notna()]
    if judged.empty:
        return []
    panels = compared.groupby("panel", sort=False)
    telling = (panels["replicas"].min() / panels["tolerance"].max()).fillna(0.0)[list(dict.fromkeys(judged["panel"]))]
    kinds = judged.drop_duplicates("panel").merge(frame[["key", "unit", "device_type"]], on="key").set_index("panel")
    leading = max(telling.index, key=lambda name: (*kinds.loc[name, ["unit", "device_type"]].eq(["images", "cuda"]), telling[name]))
    first = judged[judged["panel"] == leading]
    others = first.loc[first["placement"] != "ddp", "placement"].nunique()
    whole = len(judged) == int(judged["same"].sum())
    sentences = [
        f"{leading}: {_share(first)} joined {'run' if len(first) == 1 else 'runs'} compared with ddp "
        f"({plural(others, 'other placement')}, {joined(sorted(set(first['precision'])))}) "
        f"{'follows' if int(first['same'].sum()) == 1 else 'follow'} its loss curve to the last of {first['steps'].iloc[0]:,.0f} steps, "
        f"within {ALLOWED:g} times what rounding alone does{_in_fp64(first[first['same'].astype(bool)])}."
        f"{' Where parts live changes the time and not the result.' if whole else ''}"
    ]
    if len(telling) > 1:
        sentences.append(f"Of all comparisons together {_share(judged)} runs follow their reference so.{_away(judged)}")
    else:
        sentences[0] += _away(judged)
    return sentences


def _share(judged: pd.DataFrame) -> str:
    same = int(judged["same"].sum())
    return f"all {same}" if same == len(judged) else f"{same} of {len(judged)}"


def _away(judged: pd.DataFrame) -> str:
    """How far beyond the tolerance independent replicas lie, least and most over jobs; nothing where there are none."""
    plain = judged[judged["precision"] == "fp32"]  # a tolerance in fp64 is 2^29 times as small, and so tells nothing more
    panels = (plain if len(plain) else judged).groupby("panel", sort=False)
    times = (panels["replicas"].min() / panels["tolerance"].max()).dropna().sort_values()
    if times.empty or not math.isfinite(times.iloc[-1]) or times.iloc[0] <= 1:
        return ""
    said = [f"{float(f'{value:.2g}'):,g} times" for value in (times.iloc[0], times.iloc[-1])]
    if len(times) == 1:
        return f" Independent replicas lie at {said[0]} the tolerance."
    least, most = said
    return f" Independent replicas lie at {least} the tolerance in the job that tells least, at {most} in the one that tells most."


def _time_to_level(seen: Seen) -> list[str]:
    """Time to accuracy of the job that most placements trained on GPUs: captured runs, then eager ones, on most devices and on one."""
    ok = seen.frame[seen.frame["status"].eq("ok") & seen.frame["scaling"].eq("strong") & seen.frame["precision"].eq("fp32")]
    ok = ok[ok["device_type"].eq("cuda") & ok["semantics"].eq("joined")].merge(seen.reach, on="key", suffixes=("", "_to"))
    ok = ok[ok["seconds"].notna()]
    if ok.empty:
        return []
    jobs = [own for _, own in ok.groupby(["machine", "model", "inputs", "joined_batch", "base_rate"], sort=False)]
    job = max(jobs, key=lambda own: (own["placement"].nunique(), len(own)))
    said: list[str] = []
    last = 0
    for devices, execution in sorted(set(zip(job["devices"], job["execution"], strict=True)), key=lambda one: (-one[0], one[1])):
        own = job[job["devices"].eq(devices) & job["execution"].eq(execution)].sort_values("seconds")
        ends = [own.iloc[0]] if len(own) == 1 else [own.iloc[0], own.iloc[-1]]
        told = " to ".join(f"{row['seconds']:.1f} s ({look(row['placement']).label})" for row in ends)
        where = f"on {devices_text(int(devices), 'cuda')} " if devices != last else ""
        said.append(f"{'; ' if said and where else ', ' if said else ''}{where}{execution} in {told}")
        last = devices
    first = job.iloc[0]
    once = " Each is one run" if not job.duplicated(["placement", "devices", "execution", "processes"]).any() else " Some are one run each"
    eager = "; eager steps wander with their host" if job["execution"].eq("eager").any() else ""
    named = job_name(str(first["model"]), str(first["inputs"]))
    return [f"Time to accuracy: {named} reaches {first['level']:.1%} {''.join(said)}.{once}{eager}."]


def _uncounted(compared: pd.DataFrame) -> list[str]:
    """Runs that lie within a tolerance that tells nothing, by panel and precision, with the reason."""
    rows: Any = compared[compared["same"].isna()].groupby(["panel", "precision"], sort=False)
    said = [
        f"{plural(len(table), 'run')} in {precision} of {panel}, since "
        + ("no independent replicas were trained there" if table["replicas"].isna().all() else f"{NOT_TOLD.removesuffix(' here')} there")
        for (panel, precision), table in rows
    ]
    return [f"Not counted: {'; '.join(said)}."] if said else []


def _rules(frame: pd.DataFrame) -> list[str]:
    """What every rule for the rate reached, of the first job on GPUs, or else the first; the table of rules holds all."""
    named = {"small": (1, "none", "constant"), "warm": (8, "linear", "warmup"), "bare": (8, "linear", "constant")}
    named["plain"] = (8, "none", "constant")
    said: list[tuple[str, str]] = []
    jobs: Any = rule_points(frame).groupby(["machine", "model", "inputs"], sort=False)
    for (machine, model, inputs), own in jobs:
        at = own.groupby(["multiple", "rate_scaling", "schedule"])["accuracy"].mean()
        if all(key in at.index for key in named.values()):
            values = {name: f"{at[key]:.1%}" for name, key in named.items()}
            text = (
                f"At 8 times the batch and equal epochs, {job_name(str(model), str(inputs))} ({machine}) reaches {values['warm']} with a "
                f"rate scaled with the batch after a warm-up and {values['bare']} without one, {values['plain']} with an unscaled rate; "
                f"the small batch itself {values['small']}."
            )
            said.append((str(machine), text))
    gpus = set(frame.loc[frame["device_type"].eq("cuda"), "machine"])
    return [text for _, text in sorted(said, key=lambda one: one[0] not in gpus)][:1]


def _in_fp64(judged: pd.DataFrame) -> str:
    double = judged[judged["precision"] == "fp64"]
    if double["placement"].nunique() < 2:
        return ""
    most = double["distance"].max()
    return f" (in fp64 {f'no further than {most:.1e}' if most else 'equal in every digit that a Record keeps'})"


def _leaving(same: pd.DataFrame) -> list[str]:
    """Of each job with runs that do not follow: which, from which step on, from which step fp32's rounding parts ddp from itself, and
    what the runs have in common as far as Records tell.
    """
    said = []
    for panel, table in same.groupby("panel", sort=False):
        apart = table[table["same"].eq(False)]
        if apart.empty:
            continue
        names = joined([look(name).label for name in in_order(apart["placement"])])
        precisions = joined(list(dict.fromkeys(apart["precision"])))
        plain = table[(table["placement"] == "ddp") & (table["precision"] == "fp32") & (table["execution"] == "eager")]
        far = [
            (f"{names} in {precisions} {'does' if len(apart) == 1 else 'do'} not follow", apart["leaves_at"].min()),
            ("rounding alone takes ddp in fp32", plain["leaves_at"].min()),
        ]
        by = [f"by step {step:.0f} of {apart['steps'].iloc[0]:.0f}" if not pd.isna(step) else "nowhere" for _, step in far]
        said.append(
            f"{panel}: {far[0][0]}, and {'lies' if len(apart) == 1 else 'lie'} {LEAVES:.2%} of the loss or more from it {by[0]}; "
            f"{far[1][0]} that far {by[1]}.{_followed(same, str(panel), set(apart['placement']))}"
            f"{_from_digits(apart, plain)}{_with_rows(table, apart)}"
        )
    return said


def _from_digits(apart: pd.DataFrame, plain: pd.DataFrame) -> str:
    """Where the first digit differs: late, it speaks for rounding; nothing where it is at once, or where ddp in fp32 shows no drift."""
    first, drifts = apart["differs_at"].min(), plain["differs_at"].min()
    if pd.isna(first) or pd.isna(drifts) or first <= drifts:
        return ""
    return (
        f" Before step {first:.0f} every digit that a Record keeps is equal, as ddp's are in fp32 before step {drifts:.0f}: what parts "
        "them begins below those digits, as rounding does, and grows."
    )


def _with_rows(table: pd.DataFrame, apart: pd.DataFrame) -> str:
    """Whether those that miss are just those that send rows of tables, while all with copies of the tables equal the reference."""
    beside = table[(table["role"] == "compared") & table["precision"].isin(set(apart["precision"]))]
    rows = {name for name in beside["placement"] if find_placement(str(name)).travels == "rows"}
    kept = beside[~beside["placement"].isin(rows)]
    if rows != set(apart["placement"]) or kept.empty or kept["distance"].max() > 0:
        return ""
    count = kept["placement"].nunique()
    who = "It is the one placement that sends" if len(rows) == 1 else f"They are the {len(rows)} placements that send"
    return (
        f" {who} rows of the tables; the {plural(count, 'other')} with copies of the tables {'equals' if count == 1 else 'equal'} the "
        "reference in every digit."
    )


def _followed(same: pd.DataFrame, panel: str, placements: set[str]) -> str:
    """Whether the same placements follow where the same job was trained at another rate."""
    job, found, _ = panel.partition(", rate ")
    others = same[same["panel"].str.startswith(job + ", rate ") & same["panel"].ne(panel) & same["placement"].isin(placements)]
    others = others[others["same"].notna()]
    if not found or others.empty or not others["same"].astype(bool).all():
        return ""
    return f" At a rate of {joined([f'{rate:g}' for rate in sorted(set(others['base_rate']))])} they all do."
