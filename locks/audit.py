"""What `make audit` prints: packages of locks/*.txt with known vulnerabilities, as pip-audit finds
them in PyPI's records.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

AUDIT = [
    sys.executable,
    "-m",
    "pip_audit",
    "--disable-pip",
    "--require-hashes",
    "--progress-spinner",
    "off",
    "--format",
    "json",
]


def main() -> int:
    """1 where something is known, 2 where nothing could be asked."""
    asked, unknown, known = 0, [], []
    for file in sorted(Path(__file__).parent.glob("*.txt")):
        found = subprocess.run([*AUDIT, "-r", str(file)], capture_output=True, text=True)
        try:
            packages = json.loads(found.stdout)["dependencies"]
        except (ValueError, KeyError):
            why = (found.stderr.strip() or "it said nothing").splitlines()[-1][:300]
            print(f"{file.name} could not be audited: {why}", file=sys.stderr)
            return 2
        asked += len(packages)
        unknown += [package["name"] for package in packages if "skip_reason" in package]
        known += [(package, one) for package in packages for one in package.get("vulns", ())]
    if len(unknown) == asked:
        print(
            "PyPI's records of vulnerabilities cannot be reached from here: nothing was audited",
            file=sys.stderr,
        )
        return 2
    for package, one in known:
        print(
            f"{package['name']} {package['version']}: {one['id']}, mended in"
            f" {', '.join(one['fix_versions']) or 'no version yet'}"
        )
    print(
        f"{asked - len(unknown)} packages audited, {len(known)} known vulnerabilities; not to be"
        f" had: {', '.join(unknown) or 'none'}"
    )
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
