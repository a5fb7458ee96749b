"""Draw the house: the folders of `multigpu` and which of them imports which, as CONTRIBUTING shows
it. An arrow that others imply is left out.

    python workflow/house.py            # print the figure
    python workflow/house.py --write    # put it into CONTRIBUTING.md
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "```mermaid\n", "```\n"


def rooms(package: Path) -> dict[str, set[str]]:
    """Return each folder, and each module beside the folders, with those that its files import."""
    found: dict[str, set[str]] = {}
    names = {path.stem for path in package.iterdir() if not path.name.startswith("_")}
    for path in sorted(package.rglob("*.py")):
        own = path.relative_to(package).parts[0].removesuffix(".py")
        if own not in names:
            continue
        others = found.setdefault(own, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                whole = [alias.name for alias in node.names]
            else:
                continue
            for top, _, rest in (name.partition(".") for name in whole):
                other = rest.partition(".")[0]
                if top == package.name and other in names - {own}:
                    others.add(other)
    return found


def direct(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows without those that a longer way implies."""

    def reached(start: str) -> set[str]:
        return edges[start].union(*(reached(each) for each in edges[start]))

    return {
        own: {each for each in others if not any(each in reached(via) for via in others)}
        for own, others in edges.items()
    }


def figure(package: Path = ROOT / "src" / "multigpu") -> str:
    """Return the figure in Mermaid's words, which GitHub and the report's pages draw."""
    lines = ["flowchart TD"]
    for own, others in direct(rooms(package)).items():
        lines += [f"    {own} --> {other}" for other in sorted(others)]
    lines.append("    multigpu_study -. adds itself by entry points .-> plugins")
    return "\n".join(lines) + "\n"


def shown(page: str) -> str:
    """Return the figure as a page shows it."""
    return page.partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(text.replace(shown(text), figure(), 1), encoding="utf-8")
    else:
        print(figure(), end="")
