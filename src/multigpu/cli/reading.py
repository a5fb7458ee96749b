"""Say what commands take that read Records: `records`, `table`, `explain`, `advise`, `verify`."""

from collections.abc import Callable
from pathlib import Path

from multigpu.cli.command import Parser, add_usual, count


def takes_devices(parser: Parser, words: str, usual: str = "what is here") -> None:
    """Give a command its option for numbers of devices."""
    parser.add_argument("--devices", help=f"{words}, e.g. 1,2,4 (default: {usual})")


def add_reading(add_parser: Callable[..., Parser]) -> None:
    """Add these commands. add_parser: makes a command's parser of name, function and help."""
    listing = add_parser(
        "records", "multigpu.cli.read:records_command", "list, filter and export Records"
    )
    listing.add_argument("where", nargs="*", metavar="column=value")
    listing.add_argument("--export", metavar="FILE", help="write to a .csv, .json or .parquet file")
    listing.add_argument(
        "--traced", action="store_true", help="list traced Runs, which no other listing holds"
    )
    listing.add_argument(
        "--trace-summary",
        metavar="KEY",
        help="copies and kernels of one traced Run, as CSV with --export FILE.csv",
    )
    listing.add_argument(
        "--pack",
        action="store_true",
        help="put loose Records into an archive a machine: of every folder of the study, or of"
        " --records alone",
    )
    listing.add_argument(
        "--share",
        metavar="FOLDER",
        help="copies for others: an archive a machine, with nothing that tells person or host",
    )

    whole = add_parser(
        "table",
        "multigpu.cli.read:table_command",
        "one job under every placement in both frameworks: rates, or why there is none",
    )
    whole.add_argument(
        "fields",
        nargs="*",
        metavar="field=value",
        help="of the job, e.g. workload=nmt precision=tf32 (default: the job of most placements)",
    )
    takes_devices(whole, "its columns", "what was measured")

    why = add_parser(
        "explain",
        "multigpu.cli.read:explain_command",
        "why a measured point is no faster: where a step's time goes, and what helped",
    )
    why.add_argument(
        "words_asked",
        nargs="*",
        metavar="KEY | field=value",
        help="a Record's key, or fields as `measure` takes them",
    )
    why.add_argument(
        "--trace",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="instead: traces of any script by PyTorch's profiler (.json, .gz), one a rank",
    )
    why.add_argument(
        "--against",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="with --trace: traces of the same script before a change, one a rank",
    )
    why.add_argument(
        "--stuck",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="instead: a hang, by its flight recorder's dumps or its stacks, one a rank",
    )
    why.add_argument(
        "--details",
        action="store_true",
        help="also what it is compared with, the step's parts, its bounds, other faster ways",
    )
    which = add_parser(
        "advise",
        "multigpu.cli.read:advise_command",
        "the placements of a job, ranked by what was measured",
    )
    which.add_argument(
        "fields",
        nargs="*",
        metavar="field=value",
        help="e.g. workload=nmt model=nmt000 devices=4 batch_size=128",
    )
    for asked, most, what in ((why, 1, "points"), (which, 2, "jobs")):
        asked.add_argument(
            "--machine",
            metavar="NAME",
            help="(default: this one, or else the one with most repeats of what is asked)",
        )
        asked.add_argument(
            "--limit",
            type=count(),
            default=most,
            metavar="N",
            help=f"most {what} to speak of (default: {most})",
        )
        add_usual(asked, "--format")

    checked = add_parser(
        "verify",
        "multigpu.cli.verify:verify_command",
        "can these Records be believed? Schema, physics, keys and commits of each",
    )
    checked.add_argument(
        "folder", nargs="?", help="folder of Records (default: all of the study's)"
    )
    checked.add_argument(
        "--measure",
        type=int,
        default=0,
        metavar="N",
        help="measure a random sample of N again on this machine",
    )
    checked.add_argument("--seed", type=int, default=0, help="of that sample")
