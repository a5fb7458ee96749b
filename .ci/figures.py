#!/usr/bin/env python3
"""Compare figures/ as the report just drew it with what is committed: each file that differs.

Run it after `make report PUBLISH=1`, which draws every figure of the published report. Words must
be equal. Numbers may differ in their last digit, for sums are rounded otherwise on another
processor: coordinates (points, two decimals) by 0.02, values (six digits) by 2 in 100,000.
"""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = "figures"
NUMBER = re.compile(r"(?<![\w.#-])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")
NEAR = {".svg": (0.0201, 0.0), ".csv": (0.0, 2e-5)}
"""By the kind of file, how far two numbers may be apart: in their unit, and as a share."""


def difference(old: str, new: str, kind: str) -> str:
    """The first line in which two files differ, as it was and as it is; "" where they are alike."""
    absolute, share = NEAR[kind]
    before, after = old.splitlines(), new.splitlines()
    if len(before) != len(after):
        return f"{len(before)} lines were, {len(after)} are"
    for number, (one, other) in enumerate(zip(before, after, strict=True), 1):
        if one == other:
            continue
        pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
        near = all(abs(float(a) - float(b)) <= absolute + share * abs(float(a)) for a, b in pairs)
        if NUMBER.sub("#", one) != NUMBER.sub("#", other) or not near:
            return f"line {number} was {one.strip()[:90]!r} and is {other.strip()[:90]!r}"
    return ""


def differing(root: Path) -> list[str]:
    """A sentence for each figure of a checkout that differs from the last commit's."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=True
        ).stdout

    said = []
    for name in git("ls-files", FOLDER).split():
        file = root / name
        if not file.is_file():
            said.append(f"{name}: is committed, and no page draws it any more")
        elif why := difference(git("show", f"HEAD:{name}"), file.read_text(), file.suffix):
            said.append(f"{name}: {why}")
    new = git("ls-files", "--others", "--exclude-standard", FOLDER).split()
    return said + [f"{name}: a page draws it, and it is not committed" for name in new]


def main() -> int:
    """1 where a figure differs."""
    said = differing(Path.cwd())
    print("\n".join(said) or "figures/ is as the report draws it")
    if said:
        print(
            "commit what `make report PUBLISH=1` wrote, once you have looked at it", file=sys.stderr
        )
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
