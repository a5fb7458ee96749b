"""Build data/corpus from the German message catalogs of the programs installed on a Debian machine.

    python data/extract_corpus.py [--catalogs FOLDER]

Writes catalogs.en.gz and catalogs.de.gz (one sentence a line, line n of one translates line n of
the other), catalogs.csv (which lines came from which catalog, its package, version and licence),
COPYRIGHT with the packages' notices and the long licences they name, and the tables between the
marks in data/README.md. The same installed packages give the same contents, and with the same zlib
the same bytes of the packed files too. Needs polib, and Debian's dpkg-query and /usr/share/doc.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import re
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import polib

from multigpu.inputs.sentences import words
from multigpu.paths import CORPUS, REPOSITORY

CATALOGS = Path("/usr/share/locale/de/LC_MESSAGES")
DOCUMENTATION = Path("/usr/share/doc")
COMMON_LICENCES = Path("/usr/share/common-licenses")
LICENCE_TEXTS = ("GPL-2", "GPL-3", "LGPL-2", "LGPL-2.1")
"""Their words travel with the corpus; those of shorter licences stand in its COPYRIGHT."""
SHORTEST, LONGEST = 3, 100
"""Words a side: labels of one or two words are no sentences, and one page-long help text would pad
its whole batch.
"""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufeff]")
ADDRESS = re.compile(r"@\w+\.|/(?:tmp|home)\b")
"""E-mail addresses, temporary and home folders: nobody should be written to, and nothing looked
for, because of a corpus.
"""

FREE = {
    "BSD-2-clause",
    "BSD-3-clause",
    "Expat",
    "GPL-2",
    "GPL-2+",
    "GPL-2.0+",
    "GPL-3",
    "GPL-3+",
    "LGPL-2+",
    "LGPL-2.0+",
    "LGPL-2.1",
    "LGPL-2.1+",
    "LGPL-3+",
    "LGPL-3.0+",
    "PostgreSQL",
}
"""Licences as Debian's copyright files name them; a catalog under any other is left out."""

NOT_WANTED = {
    "iso-codes": "names only",
    "gtk+3.0": "its notice would bring hundreds of translators' addresses",
}
"""Source packages that are free and left out all the same, and why."""


@dataclass(frozen=True)
class Package:
    """The package that a catalog came with, as dpkg names its source, and what its copyright file
    says of translations.
    """

    name: str
    version: str
    licence: str
    notice: str


def query(*arguments: str) -> str:
    """What dpkg-query prints, or "" if it knows nothing."""
    return subprocess.run(
        ["dpkg-query", *arguments], capture_output=True, text=True, check=False
    ).stdout.strip()


def copyright_notice(copyright_file: Path) -> tuple[str, str] | None:
    """Licence and notice of po/de.po by a copyright file in Debian's machine-readable format; the
    last paragraph that matches holds.

    The notice is that paragraph, and the one with the licence's own words if they stand apart.
    Without such a file, or without such a paragraph, the licence cannot be told: None.
    """
    if not copyright_file.is_file():
        return None
    text = copyright_file.read_text(encoding="utf-8", errors="replace")
    if not text.startswith("Format:"):
        return None
    found: tuple[str, str] | None = None
    texts: dict[str, str] = {}
    for paragraph in (part.strip("\n") for part in re.split(r"\n\s*\n", text)):
        files = re.search(r"^Files:((?:.*\n(?:[ \t].*\n?)*))", paragraph, re.MULTILINE)
        licence = re.search(r"^License:[ \t]*(\S.*?)[ \t]*$", paragraph, re.MULTILINE)
        if licence and not files:
            texts[licence[1]] = paragraph
        elif (
            files
            and licence
            and any(fnmatchcase("po/de.po", pattern) for pattern in files[1].split())
        ):
            found = licence[1], paragraph
    return found and (
        found[0],
        "\n\n".join(part for part in (found[1], texts.get(found[0])) if part),
    )


def package_of(catalog: Path) -> Package | None:
    """The package that installed `catalog`, or None if that or its licence cannot be told."""
    owner = query("--search", str(catalog)).split(":")[0]
    stated = copyright_notice(DOCUMENTATION / owner / "copyright") if owner else None
    if stated is None:
        return None
    name, _, version = query(
        "--show", "--showformat=${source:Package} ${source:Version}", owner
    ).partition(" ")
    return Package(name, version, *stated)


def clean(message: str) -> str:
    """One line: every run of white space and control characters becomes one space. Mnemonics and
    formats stay as they are.
    """
    return " ".join(CONTROL.sub(" ", message).split())


def read_pairs(catalog: Path) -> list[tuple[str, str]]:
    """English and German messages in the catalog's order; of plurals the singular.

    Fuzzy and obsolete messages need no test: msgfmt leaves them out of compiled catalogs.
    """
    pairs = []
    for entry in polib.mofile(str(catalog)):
        translation = entry.msgstr_plural.get(0, "") if entry.msgid_plural else entry.msgstr
        if entry.msgid and translation:
            pairs.append((clean(entry.msgid), clean(translation)))
    return pairs


def keep(pair: tuple[str, str]) -> bool:
    """A sentence that was translated, neither too short nor too long, without an address."""
    return (
        pair[0] != pair[1]
        and not any(ADDRESS.search(side) for side in pair)
        and all(SHORTEST <= len(words(side)) <= LONGEST for side in pair)
    )


@dataclass
class Extract:
    """All pairs, a row for each catalog that gave any, their packages' notices, and why each other
    catalog gave none.
    """

    pairs: list[tuple[str, str]]
    rows: list[dict[str, object]]
    notices: dict[str, str]
    left_out: dict[str, str]


def extract(folder: Path) -> Extract:
    """Read every catalog in a folder, by name."""
    notices: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    seen: set[tuple[str, str]] = set()
    rows: list[dict[str, object]] = []
    left_out: dict[str, str] = {}
    for catalog in sorted(folder.glob("*.mo")):
        if catalog.is_symlink():
            continue
        package = package_of(catalog)
        if package is None:
            left_out[catalog.stem] = "no machine-readable statement of its licence"
        elif package.licence not in FREE:
            left_out[catalog.stem] = f"licence {package.licence}"
        elif package.name in NOT_WANTED:
            left_out[catalog.stem] = NOT_WANTED[package.name]
        else:
            try:
                found = read_pairs(catalog)
            except (UnicodeDecodeError, OSError):
                left_out[catalog.stem] = "does not decode"
                continue
            new = [pair for pair in dict.fromkeys(found) if keep(pair) and pair not in seen]
            if not new:
                left_out[catalog.stem] = "no sentence left"
                continue
            seen.update(new)
            lines = {"first_line": len(pairs) + 1, "last_line": len(pairs) + len(new)}
            source = {
                "package": package.name,
                "version": package.version,
                "licence": package.licence,
            }
            rows.append(
                {
                    "catalog": catalog.stem,
                    **source,
                    "messages": len(found),
                    "pairs": len(new),
                    **lines,
                }
            )
            notices[f"{package.name} {package.version}"] = package.notice
            pairs += new
    return Extract(pairs, rows, notices, left_out)


def packed(content: bytes) -> bytes:
    """`content` packed by gzip without a name and a time, so that it gives the same bytes again.

    Not by `gzip.compress`: the header that it writes differs between versions of Python.
    """
    file = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as writer:
        writer.write(content)
    return file.getvalue()


def rewrite(readme: str, mark: str, content: str) -> str:
    """`readme` with what stands between `<!-- mark -->` and `<!-- end mark -->` replaced."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end {mark} -->"
    head, _, rest = readme.partition(begin)
    tail = rest.partition(end)[2]
    if not tail:
        raise ValueError(f"data/README.md has no marks {begin.strip()} and {end}")
    return f"{head}{begin}{content}{end}{tail}"


def main() -> None:
    """Write the corpus and bring the tables in data/README.md up to date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--catalogs",
        type=Path,
        default=CATALOGS,
        help=f"folder of the .mo files (default: {CATALOGS})",
    )
    found = extract(parser.parse_args().catalogs)
    rows, left_out = found.rows, found.left_out
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    contents = {
        "catalogs.en.gz": "".join(f"{source}\n" for source, _ in found.pairs),
        "catalogs.de.gz": "".join(f"{target}\n" for _, target in found.pairs),
        "catalogs.csv": table.getvalue(),
        "COPYRIGHT": (
            "\n\n".join(
                f"=== {name} ===\n\n{notice}" for name, notice in sorted(found.notices.items())
            )
            + "\n"
        ),
    }
    for name in LICENCE_TEXTS:
        contents[f"{name}.txt"] = (COMMON_LICENCES / name).read_text(encoding="utf-8")
    CORPUS.mkdir(parents=True, exist_ok=True)
    sums = ""
    for name, content in contents.items():
        data = content.encode()
        stored = packed(data) if name.endswith(".gz") else data
        (CORPUS / name).write_bytes(stored)
        sums += (
            f"| corpus/{name} | {len(stored):,} | {len(data):,} |"
            f" `{hashlib.sha256(data).hexdigest()}` |\n"
        )

    listed = "| catalog | package and version | licence | pairs |\n| --- | --- | --- | ---: |\n"
    listed += "".join(
        f"| {r['catalog']} | {r['package']} {r['version']} | {r['licence']} | {r['pairs']:,} |\n"
        for r in rows
    )
    listed += f"| **{len(rows)} catalogs** | | | **{len(found.pairs):,}** |\n\nLeft out: "
    reasons = sorted(set(left_out.values()))
    listed += (
        "; ".join(
            f"{reason} ({', '.join(sorted(n for n in left_out if left_out[n] == reason))})"
            for reason in reasons
        )
        + ".\n"
    )
    readme = REPOSITORY / "data" / "README.md"
    text = rewrite(readme.read_text(encoding="utf-8"), "catalogs", listed)
    text = rewrite(
        text,
        "checksums",
        f"| file | bytes | bytes unpacked | sha256 unpacked |\n| --- | ---: | ---: | --- |\n{sums}",
    )
    readme.write_text(text, encoding="utf-8")
    print(
        f"{len(found.pairs):,} pairs from {len(rows)} catalogs; {len(left_out)} catalogs left out"
    )


if __name__ == "__main__":
    main()
