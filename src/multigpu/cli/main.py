"""The command line, `python -m multigpu COMMAND ...`, and which function, loaded late, does it."""

import argparse
import pkgutil
from collections.abc import Sequence
from pathlib import Path

from multigpu.cli.command import (
    COMMANDS,
    OWN_RECORDS,
    Parser,
    add_arguments,
    add_everywhere,
    add_usual,
    answered,
    count,
    name,
    seconds,
    size_gib,
)
from multigpu.cli.reading import add_reading, takes_devices
from multigpu.grids import GRIDS
from multigpu.machine.process import end_with_parent


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; `run` of what it parses names the function that does it."""
    parser = Parser(prog="multigpu", description="A reproducible study of multi-GPU training.")
    add_everywhere(parser, default=None)
    commands = parser.add_subparsers(dest="command", required=True)

    def add_parser(called: str, run: str, does: str, own_help: bool = True) -> Parser:
        made: Parser = commands.add_parser(called, help=does, add_help=own_help)
        made.set_defaults(run=run, own_parser=not own_help)
        add_everywhere(made, default=argparse.SUPPRESS)
        return made

    add_parser(
        "doctor",
        "multigpu.cli.doctor:doctor_command",
        "what this machine can run and what is missing",
    )
    add_parser(
        "ceilings",
        "multigpu.cli.measure:ceilings_command",
        "measure what this machine's GPUs, memory and links can do at best",
    )

    one = add_parser(
        "measure",
        "multigpu.cli.measure:measure_command",
        "measure a grid by name, or one Run by its fields",
    )
    one.add_argument(
        "fields",
        nargs="*",
        metavar="field=value",
        help="of one Run, e.g. workload=nmt model=nmt_small placement=ddp; of --grid: its Runs"
        " that have them",
    )
    one.add_argument(
        "--grid", type=name, help=f"one of {', '.join(GRIDS)}, or several joined by commas"
    )
    takes_devices(one, "device counts of the grid")
    one.add_argument("--timeout", type=seconds, default=300.0, help="seconds one Run may take")
    add_usual(one, "--budget-s", "--repeats", "--retry", "--dry-run", "--quiet")
    one.add_argument(
        "--traces",
        metavar="DIR",
        help="also keep the full profiles of traced Runs (traced_steps above 0) in this folder",
    )
    one.add_argument(
        "--tensorboard",
        type=Path,
        metavar="DIR",
        help="write TensorBoard's logs (TensorFlow in one process)",
    )
    one.add_argument(
        "--forecast",
        type=Path,
        metavar="FILE",
        help="measure nothing: write what each Run should reach, as CSV",
    )
    one.add_argument(
        "--share",
        action="store_true",
        help="Runs known not to disturb each other are measured side by side, each in a lane",
    )
    add_arguments(one)

    own = add_parser(
        "compare",
        "multigpu.user_model.compare:compare_command",
        "a model of your own under every placement: which is fastest here, and why",
    )
    own.add_argument(
        "job", metavar="FILE.py:NAME", help="a multigpu.Job and the file that makes it"
    )
    own.add_argument(
        "--devices",
        type=count(1),
        help="GPUs, or processes on CPUs (default: all GPUs, or 2 processes)",
    )
    own.add_argument(
        "--placements",
        default="all",
        metavar="A,B",
        help="of those that `doctor` lists (default: all)",
    )
    own.add_argument(
        "--levers",
        metavar="A,B",
        help="compiled, captured, recompute, micro_steps, precision; or all (but precision)",
    )
    own.add_argument(
        "--out",
        default="multigpu-compare",
        metavar="FOLDER",
        help="Records and index.html (default: multigpu-compare)",
    )
    own.add_argument("--device-type", choices=("auto", "cuda", "cpu"), default="auto")
    add_usual(own, "--budget-s", "--repeats", "--quiet", budget_s=120.0, repeats=5)

    room = add_parser(
        "fits",
        "multigpu.user_model.fits:fits_command",
        "the memory that a model of your own needs under every placement, before anything runs",
    )
    room.add_argument("job", metavar="FILE.py:NAME", help="a PyTorch multigpu.Job")
    room.add_argument(
        "--memory", type=size_gib, metavar="GIB", help="of a GPU (default: of this machine's)"
    )
    room.add_argument("--devices", type=count(1), help="GPUs (default: all, or 2)")
    room.add_argument("--placements", default="all", metavar="A,B", help="(default: all)")

    many = add_parser(
        "batch",
        "multigpu.cli.batch:batch_command",
        "execute the experiment notebook for every row of a YAML file",
    )
    many.add_argument(
        "points",
        metavar="POINTS.yaml",
        help="the rows, as `grids/headline.yaml` writes them; or the name of such a grid",
    )
    many.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="what is done: index.html, rows/ and records/",
    )
    takes_devices(many, "what `each`, `ends` and `most` mean in the file")
    many.add_argument(
        "--row",
        metavar="NAME",
        help="do this row alone, as --dry-run names it, without an index; '': the index alone",
    )
    add_usual(many, "--dry-run", "--quiet")

    add_reading(add_parser)

    for added in COMMANDS.values():
        with_help = added.arguments is not None
        does = added.does if with_help else f"{added.does} (`{added.name} --help`)"
        made = add_parser(added.name, added.run, does, own_help=with_help)
        if added.arguments is not None:
            added.arguments(made)

    report = add_parser(
        "report",
        "multigpu.report.site:report_command",
        "execute the notebooks on committed Records and build the HTML report",
    )
    report.add_argument(
        "--parameters",
        type=Path,
        metavar="FILE",
        help="YAML lines of `name: value` for every notebook that has the name",
    )
    report.add_argument(
        "--only",
        type=name,
        metavar="PAGE",
        help="this page alone, such as 02-parameters; the others stay as they are",
    )
    report.add_argument(
        "--publish",
        action="store_true",
        help="the published report: write figures/, and stop where a sentence is not true of its"
        " Records",
    )

    page = add_parser(
        "page",
        "multigpu.report.notebooks:page_command",
        "execute one notebook, as jobs of the workflow do",
    )
    page.add_argument("notebook", type=Path)
    page.add_argument("output", type=Path)
    page.add_argument("parameters", nargs="*", metavar="name=value")

    study = add_parser(
        "study",
        "multigpu.cli.measure:study_command",
        "measure the default grid, execute every notebook, build the report",
    )
    study.add_argument("--grid", type=name, help=f"one of {', '.join(GRIDS)} (default: by machine)")
    takes_devices(study, "device counts")
    study.set_defaults(parameters=None, only=None, publish=False)
    return parser


@answered
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    parsed, words = parser.parse_known_args(arguments)
    if parsed.end_with_parent:
        end_with_parent()
    if words and not parsed.own_parser:
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    if parsed.records is not None and parsed.command in OWN_RECORDS:
        parser.error(f"{parsed.command} takes no --records: {OWN_RECORDS[parsed.command]}")
    if parsed.own_parser and parsed.records is not None:
        words = ["--records", parsed.records, *words]
    code: int = pkgutil.resolve_name(parsed.run)(words if parsed.own_parser else parsed)
    return code
