"""What `make lock` writes: every package with its version and the hashes of its files, for Python
3.11 on Linux with x86-64.

`all.txt` goes into every environment, beside one of `torch-cpu.txt` and `torch-cuda.txt`;
`tensorflow-cpu.txt`, `tensorflow-gpu.txt` and `lab.txt` hold what those extras add; `tools.txt`
holds what `make lock` and `make audit` use themselves, which `tools.in` names. Versions are those
of `constraints.txt`. `licences.csv` lists the licence of each package that is installed. Needs uv,
and the index of PyTorch's CPU builds (or, as `--find-links`, a folder with one).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
COMPILE = ["uv", "pip", "compile", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
PROJECT = ["pyproject.toml", "--constraint", "constraints.txt"]
PLATFORM = ["--python-version", "3.11.7", "--python-platform", "x86_64-manylinux_2_28"]
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
EXTRAS = ("lab", "tensorflow-cpu", "tensorflow-gpu")
OWN = ("--extra", "study", "--extra", "dev")
"""Of every environment that `make` builds."""
LICENCES = ["pip-licenses", "--from", "mixed", "--ignore-packages", "multigpu", "--format", "csv"]
LOOKED_UP = {"namex": "Apache-2.0"}
"""Licences of packages whose metadata names none, as the file LICENSE in them says."""


def said(*words: str) -> str:
    """What a tool prints, or the end with its own words."""
    found = subprocess.run(words, cwd=HERE.parent, capture_output=True, text=True)
    if found.returncode:
        sys.exit(f"{words[0]}: {found.stderr.strip()}")
    return found.stdout


def resolved(*words: str) -> dict[str, str]:
    """Package -> its entry, as uv resolves these words; no index is named in it."""
    told = said(*COMPILE, *PLATFORM, *words)
    entries = re.findall(r"^(?=\w)[^\n]+(?:\n +--hash[^\n]+)+", told, re.MULTILINE)
    return {entry.partition("==")[0]: entry for entry in entries}


def licences(environment: Path) -> str:
    """The licence of every package of an environment, as CSV."""
    told = said(*LICENCES, "--python", str(environment / "bin" / "python"))
    for package, licence in LOOKED_UP.items():
        told = re.sub(rf'^("{package}",.*,)"UNKNOWN"$', rf'\1"{licence}"', told, flags=re.MULTILINE)
    return told.rstrip("\n") + "\n"


def main() -> None:
    """Write the files beside this one."""
    parser = argparse.ArgumentParser(description="Write locks/*.txt.")
    parser.add_argument(
        "--find-links",
        metavar="FOLDER",
        help="where a CPU build of PyTorch lies, instead of on its index",
    )
    parser.add_argument(
        "--environment", type=Path, metavar="FOLDER", help="whose packages' licences to list"
    )
    asked = parser.parse_args()
    folder = asked.find_links
    cpu_builds = ["--find-links", folder] if folder else ["--extra-index-url", CPU_BUILDS]
    plain = resolved(*PROJECT, *OWN)
    cpu = resolved(*PROJECT, *OWN, *cpu_builds, "--index-strategy", "unsafe-best-match")
    own = {name for name in plain if plain[name] != cpu.get(name)}
    files = {"all": plain.keys() - own, "torch-cuda": own}
    found = {
        name: {package: plain[package] for package in packages} for name, packages in files.items()
    }
    found["torch-cpu"] = {
        package: cpu[package] for package in cpu if cpu[package] != plain.get(package)
    }
    for extra in EXTRAS:
        more = resolved(*PROJECT, *OWN, "--extra", extra)
        found[extra] = {
            package: more[package] for package in more if more[package] != plain.get(package)
        }
    found["tools"] = resolved("locks/tools.in")
    for name, entries in found.items():
        (HERE / f"{name}.txt").write_text(
            "".join(f"{entries[package]}\n" for package in sorted(entries))
        )
        print(f"{name}: {len(entries)} packages")
    if asked.environment:
        (HERE / "licences.csv").write_text(licences(asked.environment))


if __name__ == "__main__":
    main()
