"""What `make lock` writes: every package with its version and the hashes of its files, for Python
3.11 on Linux with x86-64.

`all.txt` goes into every environment, beside one of `torch-cpu.txt` and `torch-cuda.txt`;
`tensorflow-cpu.txt`, `tensorflow-gpu.txt` and `lab.txt` hold what those extras add. Versions are
those of `constraints.txt`. Needs uv, and the index of PyTorch's CPU builds (or, as `--find-links`,
a folder with one).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
COMPILE = [
    "uv",
    "pip",
    "compile",
    "pyproject.toml",
    "--constraint",
    "constraints.txt",
    "--generate-hashes",
]
COMPILE += ["--no-header", "--no-annotate", "--quiet"]
PLATFORM = ["--python-version", "3.11.7", "--python-platform", "x86_64-manylinux_2_28"]
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
EXTRAS = ("lab", "tensorflow-cpu", "tensorflow-gpu")
OWN = ("--extra", "study", "--extra", "dev")
"""Of every environment that `make` builds."""


def resolved(*words: str) -> dict[str, str]:
    """Package -> its entry, as uv resolves the project with these words; no index is named in
    it.
    """
    found = subprocess.run(
        [*COMPILE, *PLATFORM, *words], cwd=HERE.parent, capture_output=True, text=True
    )
    if found.returncode:
        sys.exit(f"uv: {found.stderr.strip()}")
    entries = re.findall(r"^(?=\w)[^\n]+(?:\n +--hash[^\n]+)+", found.stdout, re.MULTILINE)
    return {entry.partition("==")[0]: entry for entry in entries}


def main() -> None:
    """Write the files beside this one."""
    parser = argparse.ArgumentParser(description="Write locks/*.txt.")
    parser.add_argument(
        "--find-links",
        metavar="FOLDER",
        help="where a CPU build of PyTorch lies, instead of on its index",
    )
    folder = parser.parse_args().find_links
    cpu_builds = ["--find-links", folder] if folder else ["--extra-index-url", CPU_BUILDS]
    plain = resolved(*OWN)
    cpu = resolved(*OWN, *cpu_builds, "--index-strategy", "unsafe-best-match")
    own = {name for name in plain if plain[name] != cpu.get(name)}
    files = {"all": plain.keys() - own, "torch-cuda": own}
    found = {
        name: {package: plain[package] for package in packages} for name, packages in files.items()
    }
    found["torch-cpu"] = {
        package: cpu[package] for package in cpu if cpu[package] != plain.get(package)
    }
    for extra in EXTRAS:
        more = resolved(*OWN, "--extra", extra)
        found[extra] = {
            package: more[package] for package in more if more[package] != plain.get(package)
        }
    for name, entries in found.items():
        (HERE / f"{name}.txt").write_text(
            "".join(f"{entries[package]}\n" for package in sorted(entries))
        )
        print(f"{name}: {len(entries)} packages")


if __name__ == "__main__":
    main()
