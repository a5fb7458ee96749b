"""Document 001's image models eager, captured and left to torch.compile: how much of a step is the host's, how much the kernels'.

Capturing takes the host out of a step and leaves its kernels; compiling in a captured step changes kernels alone. So the two ratios part
what is the host's from what is the kernels'.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import COMPILED, in_blocks, of_today, usual_buckets
from multigpu.analysis.pairs import ratio_cell
from multigpu.analysis.picture import Shown, together
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import find_point, of_one_job, ratio_of
from multigpu.analysis.wording import MODEL_NAMES, joined, missing, plural, ratio_text
from multigpu.grid.cnns import cnn_compiled

FORMS = ("eager", "captured", "compiled", "compiled_captured")
GAINS = {
    "capturing": ("captured", "eager"),
    "compiling": ("compiled_captured", "captured"),
    "capturing_compiled": ("compiled_captured", "compiled"),
    "compiling_eager": ("compiled", "eager"),
}
"""Of each ratio of rates the form above and the form below. The first is the host's part, the second the kernels'."""
FORM_NAMES = dict(zip(FORMS, (*FORMS[:3], "both"), strict=True))
HEADINGS = {
    "capturing": "captured over eager",
    "compiling": "both over captured",
    "capturing_compiled": "both over compiled",
    "compiling_eager": "compiled over eager",
}

GRID = "cnn_compiled"
FOUND_S = 1.0
"""Compiling takes longer than this; a first form of a model that takes less found its kernels, compiled for another model of the launch."""


TELLS = 2.0
"""The upper end of an interval over its lower one, beyond which a ratio tells too little for a sentence."""


def _repeated(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows whose ratio is of repeats on both sides and has an interval that tells something."""
    return table[table[f"{name}_high"] <= TELLS * table[f"{name}_low"]]


def form_rows(frame: pd.DataFrame, devices: int = 1) -> pd.DataFrame:
    """The rows of the grid's models and batches in any of FORMS under `ddp`, which differ in their form alone; the whole model compiled."""
    jobs = {(entry.run.model, entry.run.batch_size) for entry in cnn_compiled([devices])}
    same = {"framework": "torch", "placement": "ddp", "processes": "per_device", "precision": "bf16", "optimizer": "default"}
    rows = of_today(usual_buckets(of_one_job(frame)))
    rows = rows[pd.concat([rows[name].eq(value) for name, value in same.items()], axis=1).all(axis=1) & rows["status"].eq("ok")]
    rows = rows[rows["devices"].eq(devices) & rows["execution"].isin(FORMS)]
    of_jobs = [pair in jobs for pair in zip(rows["model"], rows["batch_size"], strict=True)]
    return rows[pd.Series(of_jobs, rows.index, bool)]


def compiling_s(rows: pd.DataFrame) -> float:
    """Seconds that the first steps of one job's first compiled Run of a launch took beyond as many steady ones; of several launches the
    longest (a later one may find kernels on the disk). NaN without any.

    The second form in a launch finds the kernels of the first, so that it says nothing.
    """
    own = rows[rows["execution"].isin(COMPILED)].sort_values("measured_at")
    first = own.drop_duplicates(["machine", "launch_id"])
    return float((first["warmup_s"] - first["warmup_steps"] * first["step_time_s"]).max())


def forms(frame: pd.DataFrame, devices: int = 1) -> pd.DataFrame:
    """A row a model and batch of which two forms were measured, in the models' order.

    frame: each row under the machine that measured it (`cnn_page.as_measured`).

    Returns:
        model, batch_size, scaling, device_type, gpu; machine: the one that measured most compiled forms, then most forms and repeats;
        host: the machine of the eager steps, the same where it has any; <form>_s and <form>_n (a step's seconds, repeats; NaN and 0: not
        measured), of the machine, eager ones of the host; of each of GAINS the ratio of rates with _low and _high, of the machine, but
        capturing of the host; borrowed: the host captured none, so the captured steps are the machine's; compiling_s: as the function.
    """
    rows = form_rows(frame, devices)
    points = summary(rows)
    table = [_job(rows, own) for _, own in points.groupby(["model", "batch_size"], sort=False)] if len(points) else []
    found = pd.DataFrame([row for row in table if sum(row[f"{form}_n"] > 0 for form in FORMS) > 1])
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    by = ["model", "batch_size"]
    return found.sort_values(by, key=lambda own: own.map(order) if own.name == "model" else own, ignore_index=True) if len(found) else found


def _job(rows: pd.DataFrame, points: pd.DataFrame) -> dict[str, Any]:
    """The row of one model and batch."""
    rows = rows[rows["model"].eq(points["model"].iloc[0]) & rows["batch_size"].eq(points["batch_size"].iloc[0])]
    machine = _fullest(points)
    eager = points[points["execution"].eq("eager")]
    host = machine if machine in set(eager["machine"]) or eager.empty else _fullest(eager)
    own = {form: _point(points, machine if form != "eager" else host, form) for form in FORMS}
    ratios: dict[str, Any] = {}
    borrowed = False
    for name, (above, below) in GAINS.items():
        over, under = own[above], own[below]
        if name == "capturing" and host != machine:
            theirs = _point(points, host, above)
            borrowed = theirs is None
            over = theirs if theirs is not None else over
        elif below == "eager" and host != machine:
            under = None  # both are the hosts', and these are two
        ratio, (low, high) = ratio_of(rows, over, under) if over is not None else (math.nan, (math.nan, math.nan))
        ratios |= {name: ratio, f"{name}_low": low, f"{name}_high": high}
    steps = {f"{form}_s": math.nan if point is None else point["step_time_s"] for form, point in own.items()}
    repeats = {f"{form}_n": 0 if point is None else int(point["n"]) for form, point in own.items()}
    first = points.iloc[0]
    named = {name: first[name] for name in ("model", "batch_size", "scaling", "device_type", "gpu")}
    spent = {"compiling_s": compiling_s(rows[rows["machine"].eq(machine)]), "borrowed": borrowed and not math.isnan(ratios["capturing"])}
    return named | {"machine": machine, "host": host if len(eager) else ""} | steps | repeats | ratios | spent


def _fullest(points: pd.DataFrame) -> str:
    """The machine that measured most compiled forms, of equals the one with most forms, then repeats."""
    held = points.assign(compiled=points["execution"].isin(COMPILED)).groupby("machine")
    found = held.agg(compiled=("compiled", "sum"), forms=("execution", "nunique"), repeats=("n", "sum"))
    return str(found.sort_values(["compiled", "forms", "repeats"], kind="stable").index[-1])


def _point(points: pd.DataFrame, machine: str, form: str) -> pd.Series | None:
    """The machine's point of this form that was repeated most, with as many timed steps as its others where there are such."""
    own = points[points["machine"].eq(machine)]
    chosen = own[own["execution"].eq(form)].sort_values("n", ascending=False, kind="stable")
    if chosen.empty:
        return None
    most = own.sort_values("n", ascending=False, kind="stable").iloc[0]
    alike = find_point(own, most, execution=form)
    return chosen.iloc[0] if alike is None else alike


def form_table(frame: pd.DataFrame, devices: int = 1) -> Shown:
    """`forms` in words, a row a model and batch: the steps of each form, then what one gives over another."""
    table = forms(frame, devices)
    if table.empty:
        return table_html(table, note=f"Not measured yet: python -m multigpu measure --grid {GRID},cnn_captured,cnn_models does.")
    steps = [
        {
            "model, batch": job_name(row),
            **{f"{FORM_NAMES[form]} (ms)": _ms(row[f"{form}_s"]) for form in FORMS},
            "repeats": "/".join(str(row[f"{form}_n"]) for form in FORMS),
            "machine": row["machine"],
            "eager on": row["host"],
        }
        for _, row in table.iterrows()
    ]
    ratios = [
        {
            "model, batch": job_name(row),
            **{heading: ratio_cell(row, name) for name, heading in HEADINGS.items()},
            "compiling (s)": _seconds(row["compiling_s"]),
        }
        for _, row in table.iterrows()
    ]
    for row, borrowed in zip(ratios, table["borrowed"], strict=True):
        row[HEADINGS["capturing"]] += "†" if borrowed else ""
    marked = " †: of both, since the eager steps' machine captured none and a captured step needs the GPU alone."
    first = (
        "PyTorch, ddp, one GPU, bf16, channels last (NHWC); steps of so many images. Captured: the whole step as one CUDA "
        "graph; both: compiled "
        "and captured. Repeats: in the order of the columns; what was measured once is screening."
    )
    then = (
        "Ratios of images/s, with 95% intervals where both sides were repeated, of the table's machine; captured over eager of the machine "
        f"of the eager steps.{marked if table['borrowed'].any() else ''} Compiling: what the first steps took beyond as many steady ones, "
        "in the model's first compiled Run of its launch; “found”: kernels compiled for another model of the launch served."
    )
    below = table_html(pd.DataFrame(ratios), note=then, right=[*HEADINGS.values(), "compiling (s)"])
    return together(table_html(pd.DataFrame(steps), note=first, right=[f"{FORM_NAMES[form]} (ms)" for form in FORMS]), below)


def job_name(row: Any) -> str:
    """The model with its batch: "ResNet-50 v1.5, 64"."""
    return f"{_name(row)}, {row['batch_size']}"


def _ms(seconds: float) -> str:
    return "–" if missing(seconds) else f"{1e3 * seconds:.2f}"


def _seconds(value: float) -> str:
    return "–" if missing(value) else "found" if value < FOUND_S else f"{value:.0f}"


def form_finding(frame: pd.DataFrame, devices: int = 1) -> list[str]:
    """What compiling gives where no host sets the pace, what capturing gives, which is more, and what a host does to compiled steps."""
    table = forms(frame, devices)
    if table.empty:
        return ["No image model was measured in two forms of execution yet."]
    said = [_compiling(table), _capturing(table), _launched(table)]
    return [text for text in said if text]


def _ends(table: pd.DataFrame, name: str) -> str:
    """The least and the largest of a ratio with their models: "1.15 times (AlexNet) to 1.60 times (Inception-v3)"."""
    own = table.sort_values(name)
    ends = [own.iloc[0]] if len(own) == 1 else [own.iloc[0], own.iloc[-1]]
    return " to ".join(f"{ratio_text(row[name])} ({_name(row)})" for row in ends)


def _name(row: Any) -> str:
    return MODEL_NAMES.get(row["model"], str(row["model"]))


def _names(table: pd.DataFrame) -> str:
    return joined(list(dict.fromkeys(_name(row) for _, row in table.iterrows())))


def _compiling(table: pd.DataFrame) -> str:
    own = table[table["compiling"].notna()]
    if own.empty:
        return "No whole model was compiled and captured beside the same captured alone."
    more, less = own[own["compiling"] > 1], own[own["compiling"] < 1]
    few = int(own["compiling_low"].isna().sum())
    once = f" (screening: {'all' if few == len(own) else few} compiled once)" if few else ""
    lost = f"; slower: {_names(less)}" if len(less) else ""
    lacking = table[~table["model"].isin(own["model"])]
    absent = f" Not compiled and captured: {_names(lacking)}." if len(lacking) else ""
    return (
        f"Kernels: in a step that is one CUDA graph, compiling gives {_ends(own, 'compiling')} the rate, median "
        f"{own['compiling'].median():.2f}; {len(more)} of {plural(len(own), 'model')} {'gains' if len(more) == 1 else 'gain'}{lost}{once}."
        f"{absent}"
    )


def _capturing(table: pd.DataFrame) -> str:
    """What a host costs eager steps: of points that were repeated, where there are such, since eager steps differ between launches."""
    every = table[table["capturing"].notna()]
    if every.empty:
        return ""
    told = _repeated(every, "capturing")
    own = told if len(told) else every
    both = own[own["compiling"].notna()]
    host = both[both["capturing"] > both["compiling"]]
    said = f"Host: capturing gives {_ends(own, 'capturing')} the rate of the eager step"
    if len(own) < len(every):
        said += f" ({len(own)} of {plural(len(every), 'model and batch', 'models and batches')}; the others were not repeated or scatter)"
    elif told.empty:
        said += " (none repeated)"
    if both.empty:
        return f"{said}."
    rest = both.drop(host.index)
    parts = [f"more than compiling does for {_names(host)}"] if len(host) else []
    parts += [f"less for {_names(rest)}"] if len(rest) else []
    return f"{said}, {', '.join(parts)}."


def _launched(table: pd.DataFrame) -> str:
    """What a host does to compiled steps that it launches: beside the same in one graph, and, repeated, beside eager ones of its own."""
    own, beside = table[table["capturing_compiled"].notna()], _repeated(table, "compiling_eager")
    beside = beside.assign(eager_over=1 / beside["compiling_eager"])
    once = ", all compiled once" if len(own) and own["capturing_compiled_low"].isna().all() else ""
    parts = [f"capturing a compiled step makes it {_ends(own, 'capturing_compiled')} as fast{once}"] if len(own) else []
    parts += [f"where one host has both, an eager step is {_ends(beside, 'eager_over')} as fast as a compiled one"] if len(beside) else []
    return f"Together: {'; '.join(parts)}." if parts else ""


def form_answer(frame: pd.DataFrame, devices: int = 1) -> str | None:
    """One sentence for the page's lead; None without a captured model that was compiled too."""
    table = forms(frame, devices)
    own = table[table["compiling"].notna()] if len(table) else table
    if own.empty:
        return None
    once = ", compiled once" if own["compiling_low"].isna().all() else ""
    return f"Compiling a captured step gives {_ends(own, 'compiling')} its rate{once}."


def blocks_sentence(frame: pd.DataFrame, left_out: bool = True) -> str | None:
    """Of which models and machines compiled steps are of a time when blocks alone were compiled, and where the whole model was since; None
    without any such.

    frame: each row under the machine that measured it. left_out: what the page does with these steps.
    """
    rows = frame[frame["workload"].eq("cnn") & frame["execution"].isin(COMPILED) & frame["status"].eq("ok")]
    old = rows[in_blocks(rows)]
    parts = []
    for model, own in old.groupby("model", sort=False):
        name = MODEL_NAMES.get(str(model), str(model))
        parts.append(f"{name}'s compiled steps on {joined(sorted(set(own['machine'])))} were measured when its blocks alone were compiled")
        new = of_today(rows[rows["model"].eq(model)])
        where = joined(
            [f"on {machine} at batch {batch}" for machine, batch in dict.fromkeys(zip(new["machine"], new["batch_size"], strict=True))]
        )
        parts[-1] += f"; the whole model was compiled {where} since" if where else ""
    if not parts:
        return None
    done = "These steps are left out of this page." if left_out else "Tables name these steps “blocks alone”."
    return f"{'. '.join(parts)}. What is no block, its first convolution and its classifier, ran eagerly. {done}"
