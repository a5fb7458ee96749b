"""What can be said on the command line: `python -m multigpu COMMAND ...`, and how its words are read."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from multigpu import paths
from multigpu.command import Parser, add_usual, count, name, seconds
from multigpu.grid import GRIDS, devices_here
from multigpu.hosts.arguments import add_arguments
from multigpu.run import Run

EXPERIMENTS = {
    "collectives": ("multigpu.collectives.command:main", "time all-reduces of this machine"),
    "synchrony": ("multigpu.synchrony.measure:main", "run a parameter server's protocols"),
    "hosts": ("multigpu.hosts.measure:main", "time all-reduces between hosts made on this machine"),
    "stages": ("multigpu.stages.measure:main", "find the best placement of a model's stages"),
    "train": ("multigpu.training.measure:main", "train runs to the end of a budget and keep their Records"),
    "interference": ("multigpu.measure.interference:main", "do Runs that share this machine disturb each other?"),
}
"""Commands whose own parsers read the rest of the line: the function that does it, loaded when it is asked for; and its help."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = Parser(prog="multigpu", description="A reproducible study of multi-GPU training.")
    parser.add_argument("--records", help="folder of the Records (default: data/runs)")
    commands = parser.add_subparsers(dest="command", required=True)

    commands.add_parser("doctor", help="what this machine can run and what is missing")

    commands.add_parser("ceilings", help="measure what this machine's GPUs, memory and links can do at best")

    one = commands.add_parser("measure", help="measure a grid by name, or one Run by its fields")
    one.add_argument(
        "fields",
        nargs="*",
        metavar="field=value",
        help="fields of one Run, e.g. workload=nmt model=nmt_small placement=ddp batch_size=16; with --grid: its Runs that have them",
    )
    one.add_argument("--grid", type=name, help=f"one of {', '.join(GRIDS)}, or several joined by commas")
    one.add_argument("--undecided", action="store_true", help="of all grids, or of those named, what it takes to decide more claims")
    one.add_argument("--devices", help="device counts of the grid, e.g. 1,2,4 (default: what is here)")
    one.add_argument("--budget-s", type=seconds, metavar="S", help="measure only what the grid's estimates allow, what matters most first")
    one.add_argument(
        "--peaks",
        action="store_true",
        help="once more, only what was measured here and has no peak memory that is read (`data/withdrawn.csv`)",
    )
    one.add_argument("--repeats", type=count(), default=1, help="repeats of the one Run")
    one.add_argument("--timeout", type=seconds, default=300.0, help="seconds one Run may take")
    add_usual(one, "--retry", "--dry-run", "--quiet")
    one.add_argument("--traces", metavar="DIR", help="also keep the full profiles of traced Runs (traced_steps above 0) in this folder")
    one.add_argument(
        "--tensorboard", type=Path, metavar="DIR", help="write TensorBoard's logs of what is measured now (TensorFlow in one process)"
    )
    one.add_argument("--forecast", type=Path, metavar="FILE", help="measure nothing: write what each Run should reach, as CSV")
    one.add_argument("--share", action="store_true", help="Runs known not to disturb each other are measured side by side, each in a lane")
    add_arguments(one)

    own = commands.add_parser("compare", help="a model of your own under every placement: which is fastest here, and why it is no faster")
    own.add_argument("job", metavar="FILE.py:NAME", help="a multigpu.Job and the file that makes it")
    own.add_argument("--devices", type=count(1), help="GPUs, or processes on CPUs (default: all GPUs, or 2 processes)")
    own.add_argument("--placements", default="all", metavar="A,B", help="of those that `doctor` lists (default: all)")
    own.add_argument("--budget-s", type=seconds, default=120.0, metavar="S", help="seconds for all of it (default: 120)")
    own.add_argument("--out", default="multigpu-compare", metavar="FOLDER", help="Records and index.html (default: multigpu-compare)")
    own.add_argument("--repeats", type=count(), default=5, help="of each placement, all once before any again (default: 5)")
    own.add_argument("--device-type", choices=("auto", "cuda", "cpu"), default="auto")
    add_usual(own, "--quiet")

    many = commands.add_parser("batch", help="execute the experiment notebook for every row of a YAML file")
    many.add_argument("points", metavar="POINTS.yaml", help="the rows, as `grids/headline.yaml` writes them; or the name of such a grid")
    many.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="what is done: index.html, rows/ and records/")
    many.add_argument("--devices", help="what `each`, `ends` and `most` mean in the file, e.g. 1,2,4 (default: what is here)")
    add_usual(many, "--dry-run", "--quiet")

    listing = commands.add_parser("records", help="list, filter and export Records")
    listing.add_argument("where", nargs="*", metavar="column=value")
    listing.add_argument("--export", metavar="FILE", help="write to a .csv, .json or .parquet file")
    listing.add_argument("--traced", action="store_true", help="list traced Runs, which no other listing holds")
    listing.add_argument("--trace-summary", metavar="KEY", help="copies and kernels of one traced Run, as CSV with --export FILE.csv")
    listing.add_argument(
        "--pack",
        action="store_true",
        help="put the loose Records of each machine into an archive: of every folder that the study keeps, or of --records alone",
    )
    listing.add_argument(
        "--share", metavar="FOLDER", help="copies for others: an archive a machine, with nothing that tells person or host"
    )

    why = commands.add_parser(
        "explain", help="why a measured point is as fast as it is: where a step's time goes, and what was seen to help"
    )
    why.add_argument(
        "words_asked", nargs="*", metavar="KEY | field=value", help="a Record's key, or fields of a Run as `measure` takes them"
    )
    why.add_argument(
        "--trace", nargs="+", type=Path, metavar="FILE", help="instead: traces of any script by PyTorch's profiler (.json, .gz), one a rank"
    )
    why.add_argument(
        "--details", action="store_true", help="also what it is compared with, the step's parts, its bounds, other faster ways"
    )
    which = commands.add_parser("advise", help="the placements of a job, ranked by what was measured")
    which.add_argument("fields", nargs="*", metavar="field=value", help="e.g. workload=nmt model=nmt000 devices=4 batch_size=128")
    for asked, most, what in ((why, 1, "points"), (which, 2, "jobs")):
        asked.add_argument(
            "--machine", metavar="NAME", help="of which machine (default: this one, or else the one with most repeats of it)"
        )
        asked.add_argument("--limit", type=count(), default=most, metavar="N", help=f"most {what} to speak of (default: {most})")
        asked.add_argument("--format", choices=("text", "json"), default="text")

    claims = commands.add_parser("claims", help="verdict of each claim, or all that is said of those named")
    claims.add_argument("number", nargs="*", metavar="C1", help="of these claims everything: figures, test, reasons, Records")
    claims.add_argument("--format", choices=("text", "json"), default="text")
    claims.add_argument("--hosts", default=str(paths.HOSTS), help="folder of the Records of all-reduces between hosts")
    claims.add_argument("--synchrony", default=str(paths.SYNCHRONY), help="folder of the protocols' Records")
    claims.add_argument("--training", default=str(paths.TRAINING), help="folder of the Records of training")

    checked = commands.add_parser("verify", help="can these Records be believed? Schema, physics, keys and commits of each")
    checked.add_argument("folder", nargs="?", help="folder of Records (default: all of the study's)")
    checked.add_argument("--measure", type=int, default=0, metavar="N", help="measure a random sample of N again on this machine")
    checked.add_argument("--seed", type=int, default=0, help="of that sample")

    for experiment, (_, does) in EXPERIMENTS.items():
        commands.add_parser(experiment, add_help=False, help=f"{does} (`{experiment} --help`)")

    report = commands.add_parser("report", help="execute the notebooks on committed Records and build the HTML report")
    report.add_argument(
        "--parameters", type=Path, metavar="FILE", help="a YAML file of `name: value` lines for every notebook that has the name"
    )

    report.add_argument(
        "--only", default="", metavar="PAGE", help="execute this page alone, such as 02-parameters, and keep the others as they are"
    )
    report.add_argument(
        "--publish", action="store_true", help="the published report: write figures/, and stop where a sentence is not true of its Records"
    )

    study = commands.add_parser("study", help="measure the default grid, execute every notebook, build the report")
    study.add_argument("--grid", type=name, help=f"one of {', '.join(GRIDS)} (default: by machine)")
    study.add_argument("--devices", help="device counts, e.g. 1,2,4 (default: what is here)")
    study.set_defaults(parameters=None, only="", publish=False)
    return parser


def parse_fields(texts: Sequence[str], known: Mapping[str, FieldInfo] = Run.model_fields) -> dict[str, Any]:
    """`name=value` words as fields, each in its own type.

    Args:
        known: the fields there are, by name; those of a Run unless others are given.

    Raises:
        ValueError: a word without "=", an unknown name, or a value that is not of the field's type.
    """
    fields: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not of the form field=value")
        if name not in known:
            raise ValueError(f"unknown field {name!r}: choose among {', '.join(known)}")
        fields[name] = tuple(value.split(",")) if name == "data" else _typed(name, value, known[name].annotation)
    return fields


def _typed(name: str, value: str, annotation: Any) -> bool | int | float | str:
    """A word in the type of a field: true or false, a number, or else the text itself."""
    kinds = {annotation, *get_args(annotation)}
    try:
        if bool in kinds:
            return {"true": True, "false": False}[value.lower()]
        if int in kinds:
            return int(value)
        return float(value) if float in kinds else value
    except (ValueError, KeyError):
        needed = "true or false is" if bool in kinds else "an integer is" if int in kinds else "a number is"
        raise ValueError(f"{name} = {value!r}: {needed} needed") from None


def parse_counts(text: str | None) -> list[int]:
    """Device counts from "1,2,4"; without a text, 1, 2, 4, 8 up to what this machine has (its CPUs stand in, up to 2).

    Raises:
        ValueError: a count is not a positive integer.
    """
    if text is None:
        return devices_here()
    counts = []
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < 1:
            raise ValueError(f"devices {part!r} is not a positive integer: give counts such as 1,2,4")
        counts.append(int(part))
    return counts
