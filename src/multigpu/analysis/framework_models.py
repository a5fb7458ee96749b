"""Document 001's image models on one GPU in both frameworks, and what each of its variable updates costs there in TensorFlow."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.frameworks import Way, of_way
from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import usual_buckets
from multigpu.analysis.pairs import ratio_cell
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import of_one_job, ratio_of
from multigpu.analysis.wording import MODEL_NAMES, joined, missing, percent_text, plural, ratio_text
from multigpu.grid.cnns import CNNS_OF_INTEREST
from multigpu.workloads import find_model

GRAPH = Way("tensorflow", "one", "graph", "bf16")
FORMS = {"eager": Way("torch", "per_device", "eager", "bf16"), "captured": Way("torch", "per_device", "captured", "bf16")}
"""PyTorch's, under `ddp`, which on one GPU merges nothing."""
HOME, HOST = "exp4", "exp2"
"""TensorFlow's placements of a variable on its one GPU, and on the CPU, as in most of document 001's Runs."""
UPDATES = (HOME, "ps_gpu0", "replicated_copy", "replicated_allreduce", HOST)
LARGE = 10e6
"""Parameters from which on a model's cost on the host is told by the million."""
ABSENT = "The image models were not measured in both frameworks on one GPU yet: python -m multigpu measure --grid"
GRIDS = "tensorflow_models,tensorflow_cnn,cnn_captured,cnn_models"


def model_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows on one GPU of document 001's models at their own batches, bf16: TensorFlow's graph under any of UPDATES, PyTorch's FORMS.

    frame: each row under the machine that measured it (`cnn_page.as_measured`).
    """
    jobs = {(name, find_model("cnn", name).config.default_batch) for name in CNNS_OF_INTEREST}
    rows = usual_buckets(of_one_job(frame))
    rows = rows[rows["status"].eq("ok") & rows["devices"].eq(1) & rows["device_type"].eq("cuda") & rows["optimizer"].eq("default")]
    of_jobs = [pair in jobs for pair in zip(rows["model"], rows["batch_size"], strict=True)]
    rows = rows[pd.Series(of_jobs, rows.index, bool)]
    ours = of_way(rows[rows["placement"].isin(UPDATES)], GRAPH)
    return pd.concat([ours, *(of_way(rows[rows["placement"].eq("ddp")], way) for way in FORMS.values())])


def models(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a model that TensorFlow trained under Exp4, in the models' order.

    Returns:
        model, batch_size, machine (TensorFlow's: of several the one that also captured, then the one with most repeats), tensorflow_s and
        tensorflow_n; of each of FORMS <form>_s, <form>_n and <form>_on, the machine: the same, or else the one with most repeats on the
        same kind of GPU (NaN, 0 and "" without any); over_<form> (and bounds): TensorFlow's rate over it (NaN for an eager step of another
        machine: both are their hosts'); lent: the captured step, which needs the GPU alone, is of another machine.
    """
    rows = model_rows(frame)
    points = summary(rows)
    found = []
    for _, own in points.groupby(["model", "batch_size"], sort=False) if len(points) else []:
        ours = of_way(own[own["placement"].eq(HOME)], GRAPH)
        if len(ours):
            found.append(_beside(rows, ours, {form: of_way(own, way) for form, way in FORMS.items()}))
    return _in_order(pd.DataFrame(found))


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    return table.sort_values("model", key=lambda own: own.map(order), ignore_index=True, kind="stable") if len(table) else table


def _beside(rows: pd.DataFrame, ours: pd.DataFrame, theirs: dict[str, pd.DataFrame]) -> dict[str, Any]:
    captured = theirs["captured"]
    row = ours.assign(_both=ours["machine"].isin(captured["machine"])).sort_values(["_both", "n"], kind="stable").iloc[-1]
    found: dict[str, Any] = {name: row[name] for name in ("model", "batch_size", "machine")}
    found |= {"tensorflow_s": row["step_time_s"], "tensorflow_n": int(row["n"])}
    for form, points in theirs.items():
        alike = points[points["gpu"].eq(row["gpu"])]
        alike = alike.assign(_same=alike["machine"].eq(row["machine"])).sort_values(["_same", "n"], kind="stable")
        point = alike.iloc[-1] if len(alike) else None
        divided = point if point is not None and (form == "captured" or point["machine"] == row["machine"]) else None
        ratio, (low, high) = ratio_of(rows, row, divided)
        found |= {f"over_{form}": ratio, f"over_{form}_low": low, f"over_{form}_high": high}
        found |= {f"{form}_s": math.nan, f"{form}_n": 0, f"{form}_on": ""}
        if point is not None:
            found |= {f"{form}_s": point["step_time_s"], f"{form}_n": int(point["n"]), f"{form}_on": point["machine"]}
    return found | {"lent": found["captured_on"] not in ("", row["machine"])}


def models_table(frame: pd.DataFrame) -> Shown:
    """`models` in words."""
    table = models(frame)
    rows = [
        {
            "model, batch": job_name(row),
            "TensorFlow (ms)": _ms(row["tensorflow_s"]),
            "PyTorch, captured (ms)": _ms(row["captured_s"]),
            "TensorFlow over captured": ratio_cell(row, "over_captured") + ("†" if row["lent"] else ""),
            "PyTorch, eager (ms)": _ms(row["eager_s"]),
            "over eager": ratio_cell(row, "over_eager"),
            "repeats": f"{row['tensorflow_n']}/{row['captured_n']}/{row['eager_n']}",
        }
        for _, row in table.iterrows()
    ]
    lent = " †: of another machine with these GPUs." if len(table) and table["lent"].any() else ""
    note = (
        "A step of so many images on one GPU, bf16, channels last (NHWC): TensorFlow one process and one graph, variables on "
        "the GPU (Exp4), its "
        f"own batch norm; PyTorch `ddp`. Ratios of images/s, with 95% intervals where both sides were repeated.{lent} An eager step of "
        "another host is not divided: both frameworks' hosts take part in it. Repeats: in the order of the columns of steps; once is "
        f"screening. {hosts_text(table)}"
    )
    right = [name for name in (rows[0] if rows else {}) if name not in ("model, batch", "repeats")]
    return table_html(pd.DataFrame(rows), note=note if rows else f"{ABSENT} {GRIDS} does.", right=right)


def job_name(row: Any) -> str:
    """The model with its batch: "ResNet-50 v1.5, 64"."""
    return f"{MODEL_NAMES[row['model']]}, {row['batch_size']}"


def hosts_text(table: pd.DataFrame) -> str:
    """Where the steps of `models` were measured."""
    eager = table[table["eager_n"] > 0] if len(table) else table
    return f"{_hosts(table, 'machine')}" + (f"; eager steps: {_hosts(eager, 'eager_on')}." if len(eager) else ".")


def _hosts(table: pd.DataFrame, column: str) -> str:
    """The machine of most rows, and of the others which: "1x-nvidia-h200; ResNet-50 v1.5: 2x-nvidia-h200"."""
    counts = list(table[column].value_counts().index) if len(table) else []
    others = [f"{joined([MODEL_NAMES[model] for model in table.loc[table[column].eq(name), 'model']])}: {name}" for name in counts[1:]]
    return "; ".join([*counts[:1], *others])


def _ms(seconds: float) -> str:
    return "–" if missing(seconds) else f"{1e3 * seconds:.2f}"


def models_sentence(frame: pd.DataFrame) -> str:
    """How much of a captured step's rate TensorFlow's graph reaches, which model comes closest, and whose steps are shorter than eager."""
    table = models(frame)
    own = table[table["over_captured"].notna()].sort_values("over_captured") if len(table) else table
    if own.empty:
        return f"{ABSENT} {GRIDS} does."
    shares = [percent_text(share) for share in own["over_captured"]]
    names = [MODEL_NAMES[name] for name in own["model"]]
    said = f"{shares[-1]} with {names[-1]}"
    if len(own) > 1:
        rest = " to ".join(dict.fromkeys([f"{shares[0]} ({names[0]})", f"{shares[-2]} ({names[-2]})"]))
        said += f", and {rest} with {plural(len(own) - 1, 'other', 'others')}"
    once = int((own["tensorflow_n"] == 1).sum())
    text = f"Of the rate of PyTorch's captured step TensorFlow's graph reaches {said}{_once(once, len(own))}."
    eager = table[table["eager_s"].notna()]
    short = eager[eager["tensorflow_s"] < eager["eager_s"]]
    if eager.empty:
        return text
    shorter = f"shorter with {joined([MODEL_NAMES[name] for name in short['model']])}" if len(short) else "shorter with none"
    hosts = int(eager["eager_on"].ne(eager["machine"]).sum())
    where = f"; {hosts} of these {'is' if hosts == 1 else 'are'} of another host, which launches at its own pace" if hosts else ""
    return f"{text} Beside {len(eager)} eager steps TensorFlow's are {shorter}{where}."


def _once(once: int, of: int) -> str:
    return f" ({'all' if once == of else once} measured once in TensorFlow: screening)" if once else ""


def updates(frame: pd.DataFrame) -> pd.DataFrame:
    """What each of UPDATES takes on one GPU in TensorFlow: a row a model with Exp4 and another, of the machine that measured most of them.

    Returns:
        model, batch_size, machine, parameters; of each of UPDATES <name>_s and <name>_n (NaN and 0: not measured); longer (and bounds):
        how many times as long a step takes with variables on the CPU (`exp2`) as on the GPU (`exp4`); host_s: seconds more.
    """
    rows = model_rows(frame)
    rows = rows[rows["framework"].eq("tensorflow")]
    points = summary(rows)
    found: list[dict[str, Any]] = []
    for (model, batch), own in points.groupby(["model", "batch_size"], sort=False) if len(points) else []:
        held = own.groupby("machine").agg(updates=("placement", "nunique"), repeats=("n", "sum"))
        machine = held.sort_values(["updates", "repeats"], kind="stable").index[-1]
        of = {name: _most(own[own["machine"].eq(machine) & own["placement"].eq(name)]) for name in UPDATES}
        if of[HOME] is None or sum(point is not None for point in of.values()) < 2:
            continue
        longer, (low, high) = (math.nan, (math.nan, math.nan)) if of[HOST] is None else ratio_of(rows, of[HOME], of[HOST])
        row = {"model": model, "batch_size": batch, "machine": machine, "parameters": find_model("cnn", str(model)).parameters}
        row |= {f"{name}_s": math.nan if point is None else point["step_time_s"] for name, point in of.items()}
        row |= {f"{name}_n": 0 if point is None else int(point["n"]) for name, point in of.items()}
        found.append(row | {"longer": longer, "longer_low": low, "longer_high": high, "host_s": row[f"{HOST}_s"] - row[f"{HOME}_s"]})
    return _in_order(pd.DataFrame(found))


def _most(points: pd.DataFrame) -> pd.Series | None:
    return points.sort_values("n", kind="stable").iloc[-1] if len(points) else None


def updates_table(frame: pd.DataFrame) -> Shown:
    """`updates` in words."""
    table = updates(frame)
    rows = [
        {
            "model, batch": job_name(row),
            "parameters (M)": f"{row['parameters'] / 1e6:.1f}",
            **{f"{look(name).label} (ms)": _ms(row[f"{name}_s"]) for name in UPDATES},
            f"{look(HOST).label} over {look(HOME).label}": ratio_cell(row, "longer"),
            "repeats": "/".join(str(row[f"{name}_n"]) for name in UPDATES),
        }
        for _, row in table.iterrows()
    ]
    note = (
        f"TensorFlow, one process and one graph, one GPU, bf16, channels last (NHWC). {look(HOST).label}: all variables on the "
        "CPU, updated "
        f"there; {look(HOME).label} and the server on GPU 0: on the GPU. The ratio is of a step's time, with its 95% interval where both "
        f"were repeated. Repeats: in the order of the columns; once is screening. {_hosts(table, 'machine')}."
    )
    right = [name for name in (rows[0] if rows else {}) if name not in ("model, batch", "repeats")]
    empty = "Not measured yet: python -m multigpu measure --grid tensorflow_models,tensorflow_cnn --devices 1 does."
    return table_html(pd.DataFrame(rows), note=note if rows else empty, right=right)


def updates_sentence(frame: pd.DataFrame) -> str:
    """How much longer a step is with variables on the CPU, by the million of parameters for large models, and how far others lie apart."""
    table = updates(frame)
    own = table[table["longer"].notna()].sort_values("longer") if len(table) else table
    if own.empty:
        return "What variables on the CPU cost TensorFlow on one GPU was not measured yet."
    ends = [own.iloc[0], own.iloc[-1]] if len(own) > 1 else [own.iloc[0]]
    told = " to ".join(f"{ratio_text(row['longer'])} ({MODEL_NAMES[row['model']]})" for row in ends)
    large, small = own[own["parameters"] >= LARGE], own[own["parameters"] < LARGE]
    each = (1e3 * large["host_s"] / (large["parameters"] / 1e6)).sort_values()
    parts = []
    if len(large):
        parts.append(f"{_span(each, '.2f')} ms more a million parameters with models of 10 M or more ({len(large)})")
    if len(small):
        parts.append(f"{_span(1e3 * small['host_s'], '+.1f')} ms with {plural(len(small), 'smaller one')}")
    onces = int(own["longer_low"].isna().sum())
    text = (
        f"With variables on the CPU ({look(HOST).label}) a step takes {told} as long as with variables on the GPU ({look(HOME).label}): "
        f"{joined(parts)}{_once(onces, len(own))}."
    )
    beside = []
    for models_of, words in ((table["parameters"].ge(LARGE), "large models"), (table["parameters"].lt(LARGE), "smaller ones")):
        chosen = table[models_of]
        known = pd.concat([chosen[f"{name}_s"] / chosen[f"{HOME}_s"] for name in UPDATES if name not in (HOME, HOST)]).dropna()
        beside += [f"{_span(known, '.2f')} times as long with {words}"] if len(known) else []
    return f"{text} The other updates on the GPU take {joined(beside)}." if beside else text


def _span(values: pd.Series, form: str) -> str:
    """The least and the largest: "0.62 to 0.88"; what rounds to nothing has no sign."""
    said = [f"{value:{form}}" for value in (values.min(), values.max())]
    return " to ".join(dict.fromkeys(text if float(text) else text.lstrip("+-") for text in said))
