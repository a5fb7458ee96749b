#!/usr/bin/env python3
"""How large the study is, beside what it may be: budget.py [--site build/html] [--check NAME ...]; run at the project's root.

Prints a line a figure: name, value, budget, and "over" where it is. With --check only those named count, and the exit status is 1 if one is over.
"""

import argparse, ast, glob, html, json, os, re, subprocess, sys

BUDGETS = {
    "src_lines": 64000,
    "core_lines": 54000,
    "long_lines": 0,
    "what_docstrings": 40,
    "root_modules": 5,
    "folders_in_a_circle": 0,
    "names_shared": 4,
    "analysis_lines": 12000,
    "analysis_prose": 40,
    "tests_lines": 44000,
    "yaml_lines": 4600,
    "cuda_lines": 1500,
    "modules_over_350": 0,
    "prose_strings": 260,
    "import_circles": 0,
    "inner_imports": 20,
    "notebooks": 26,
    "notebook_code_lines": 2200,
    "notebook_defs": 0,
    "plots_by_hand": 4,
    "site_mb": 20,
    "site_words": 35000,
    "page_words_max": 1600,
    "table_words": 20000,
    "site_tables": 100,
    "sentences_over_35": 0,
}


def tracked(pattern):
    return [
        f
        for f in subprocess.run(
            ["git", "ls-files", pattern], capture_output=True, text=True
        ).stdout.split("\n")
        if f and os.path.isfile(f)
    ]


def lines(files):
    return sum(open(f, encoding="utf8").read().count("\n") for f in files)


def words(text):
    return len(re.findall(r"[A-Za-z]{2,}", re.sub(r"\b[0-9a-f]{12,}\b|<[^>]*>", " ", text)))


def markup(text):
    return bool(
        re.search(
            r"</?(svg|g|path|rect|text|div|span|table|style)\b|\bip (netns|link|addr)\b|^[.#][\w-]+ *\{",
            text,
        )
    )


def prose(tree):
    """String literals of ten words and more that are neither docstrings nor parts of errors."""
    skip = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            skip |= {
                id(s.value)
                for s in body
                if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)
            }
        if isinstance(node, ast.Raise) or (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", ""))
            in (
                "add_argument",
                "add_parser",
                "Field",
                "ArgumentParser",
                "help",
                "Option",
                "Argument",
                "warn",
            )
        ):
            skip |= {id(n) for n in ast.walk(node)}
        if isinstance(node, ast.JoinedStr) and id(node) not in skip:
            skip |= {id(n) for n in ast.walk(node) if n is not node}
    found = 0
    for node in ast.walk(tree):
        if id(node) in skip:
            continue
        if isinstance(node, ast.JoinedStr):
            text = " ".join(
                v.value
                for v in node.values
                if isinstance(v, ast.Constant) and isinstance(v.value, str)
            )
            found += words(text) >= 10 and not markup(text)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += words(node.value) >= 10 and not markup(node.value)
    return found


def graph(files, root="src", everything=False):
    """Module -> modules of the package that it imports, wherever in the file, and how many of these imports stand inside functions."""
    name = lambda f: re.sub(r"\.__init__$", "", os.path.relpath(f, root)[:-3].replace("/", "."))
    known, edges, inner = {name(f) for f in files}, {}, 0
    for f in files:
        tree, me = ast.parse(open(f, encoding="utf8").read()), name(f)
        checked = {
            id(n)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            for n in ast.walk(node)
        }
        inside = {
            id(n)
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for n in ast.walk(node)
            if n is not node
        }
        edges[me] = set()
        for node in ast.walk(tree):
            if id(node) in checked and not everything:
                continue
            base = getattr(node, "module", None) or ""
            if isinstance(node, ast.ImportFrom) and node.level:
                parts = me.split(".")
                parts = parts if f.endswith("__init__.py") else parts[:-1]
                base = ".".join(parts[: len(parts) - node.level + 1] + ([base] if base else []))
            wanted = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [f"{base}.{a.name}" for a in node.names]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for w in wanted:
                target = w if w in known else w.rpartition(".")[0]
                if target in known and target != me:
                    inner += id(node) in inside
                    edges[me].add(target)
    return edges, inner


def circles(edges):
    """Strongly connected groups of more than one module (Tarjan, without recursion)."""
    index, low, on, stack, found, counter = {}, {}, set(), [], 0, 0
    for start in edges:
        if start in index:
            continue
        work = [(start, iter(edges[start]))]
        index[start] = low[start] = counter
        counter += 1
        stack.append(start)
        on.add(start)
        while work:
            node, rest = work[-1]
            step = next((n for n in rest if n in edges and (n not in index or n in on)), None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    size = 0
                    while True:
                        top = stack.pop()
                        on.discard(top)
                        size += 1
                        if top == node:
                            break
                    found += size > 1
            elif step in index:
                low[node] = min(low[node], index[step])
            else:
                index[step] = low[step] = counter
                counter += 1
                stack.append(step)
                on.add(step)
                work.append((step, iter(edges[step])))
    return found


EVIDENCE = {"claims", "explorer", "glossary", "method", "machines", "faults"}
"""Pages of these names, and those that begin with "appendix-" or "document-", have no limit of words of their own."""


def site(folder):
    out = {
        "site_mb": round(
            sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(folder) for f in fs)
            / 2**20,
            1,
        )
    }
    total = tables = longest = most = inside = 0
    for page in sorted(
        os.path.join(d, f) for d, _, fs in os.walk(folder) for f in fs if f.endswith(".html")
    ):
        base = re.sub(r"^\d+-", "", os.path.basename(page)[:-5])
        if base in ("genindex", "search") or "_static" in page or "_sources" in page:
            continue
        text = open(page, encoding="utf8").read()
        body = re.search(r"<article.*?</article>", text, re.S)
        body = body.group() if body else text
        bare = re.sub(r"<(script|style|svg|pre|math)\b.*?</\1>", " ", body, flags=re.S)
        if base != "explorer":
            tables += len(re.findall(r"<table", bare))
            inside += (
                0
                if base == "claims"
                else sum(
                    words(html.unescape(re.sub(r"<[^>]+>", " ", x)))
                    for x in re.findall(r"<table.*?</table>", bare, re.S)
                )
            )
        bare = re.sub(r"<table\b.*?</table>", " ", bare, flags=re.S)
        said = [
            html.unescape(re.sub(r"<[^>]+>", "", p))
            for p in re.findall(
                r"<(?:p|li|figcaption)\b[^>]*>(.*?)</(?:p|li|figcaption)>", bare, re.S
            )
        ]
        here = words(html.unescape(re.sub(r"<[^>]+>", " ", bare)))
        total += 0 if base == "explorer" else here
        if base not in EVIDENCE and not base.startswith(("appendix-", "document-")):
            most = max(most, here)
        longest += sum(words(s) > 35 for p in said for s in re.split(r"(?<=[.!?])\s+", p))
    return out | {
        "site_words": total,
        "site_tables": tables,
        "table_words": inside,
        "page_words_max": most,
        "sentences_over_35": longest,
    }


def unit(module):
    """A module's room: its folder in the package, or the module itself where it stands at the package's root."""
    return ".".join(module.split(".")[:2])


def largest_circle(edges):
    """How many rooms the largest circle of imports holds, imports for type checking and inside functions counted; 0 without one."""
    rooms = {}
    for me, others in edges.items():
        rooms.setdefault(unit(me), set()).update(
            unit(o) for o in others if unit(o) != unit(me) and "." in unit(o) and "." in unit(me)
        )

    def reach(start):
        seen, todo = set(), [start]
        while todo:
            for o in rooms.get(todo.pop(), ()):
                if o not in seen:
                    seen.add(o)
                    todo.append(o)
        return seen

    far = {r: reach(r) for r in rooms}
    sizes = [sum(o in far[r] and r in far[o] for o in far) for r in rooms if r in far[r]]
    return max(sizes, default=0)


def docstrings(files):
    """Docstrings whose first word is "What"."""
    found = 0
    for f in files:
        for node in ast.walk(ast.parse(open(f, encoding="utf8").read())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                found += (ast.get_docstring(node) or "").startswith("What ")
    return found


def shared_names(files):
    """Classes of a name that another class, too, has; what is built once a framework may."""
    seen = {}
    for f in files:
        if re.search(r"(torch|tensorflow)", os.path.relpath(f, "src")):
            continue
        for node in ast.parse(open(f, encoding="utf8").read()).body:
            if isinstance(node, ast.ClassDef):
                seen.setdefault(node.name, []).append(f)
    return sum(len(v) - 1 for v in seen.values() if len(v) > 1)


def notebooks():
    code = defs = 0
    for f in tracked("notebooks/*.ipynb"):
        for cell in json.load(open(f, encoding="utf8"))["cells"]:
            if cell["cell_type"] == "code":
                source = "".join(cell["source"])
                code += len([l for l in source.splitlines() if l.strip()])
                defs += len(re.findall(r"^\s*(?:def|class|lambda) |=\s*lambda\b", source, re.M))
    return code, defs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--site")
    parser.add_argument("--check", nargs="*")
    args = parser.parse_args()
    src, tests = tracked("src/*.py"), tracked("tests/*.py")
    edges, inner = graph(src)
    figures = {
        "src_lines": lines(src),
        "core_lines": lines([f for f in src if f.startswith("src/multigpu/")]),
        "long_lines": sum(
            len(l.rstrip("\n")) > 100 for f in src + tests for l in open(f, encoding="utf8")
        ),
        "what_docstrings": docstrings(src),
        "root_modules": sum(
            f.count("/") == 2 and not os.path.basename(f).startswith("__")
            for f in src
            if f.startswith("src/multigpu/")
        ),
        "folders_in_a_circle": largest_circle(graph(src, everything=True)[0]),
        "names_shared": shared_names(src),
        "analysis_lines": lines([f for f in src if "/analysis/" in f]),
        "tests_lines": lines([f for f in tests if "/jobs/" not in f]),
        "modules_over_350": sum(lines([f]) > 350 for f in src),
        "prose_strings": sum(prose(ast.parse(open(f, encoding="utf8").read())) for f in src),
        "import_circles": circles(edges),
        "inner_imports": inner,
        "analysis_prose": sum(
            prose(ast.parse(open(f, encoding="utf8").read())) for f in src if "/analysis/" in f
        ),
        "yaml_lines": lines(tracked("src/*.yaml") + tracked("src/*.yml") + tracked("data/*.yaml")),
        "cuda_lines": lines(tracked("src/*.cu") + tracked("src/*.cuh")),
        "notebooks": len(tracked("notebooks/*.ipynb")),
        "plots_by_hand": sum(
            bool(
                re.search(
                    r"\bplt\.|\.subplots\(|rc_context|import svg", open(f, encoding="utf8").read()
                )
            )
            for f in src
        ),
    }
    figures["notebook_code_lines"], figures["notebook_defs"] = notebooks()
    if args.site:
        figures |= site(args.site)
    over = []
    for name, value in figures.items():
        beyond = value > BUDGETS[name]
        if beyond:
            over.append(name)
        if args.check is None or name in args.check:
            print(f"{name:22} {value:>9,}  budget {BUDGETS[name]:>7,}{'  over' if beyond else ''}")
    if args.check is not None:
        sys.exit(bool(set(over) & set(args.check)))


main()
