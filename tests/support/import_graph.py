"""Who imports whom, drawn from the sources: the drawings in docs/architecture.md.

``python -m tests.support.import_graph`` prints them, with ``--write`` it draws them anew there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.paths import DOCS, ROOT

PACKAGES = ("controller", "broker_stub", "proto")
Graph = dict[str, set[str]]


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name, a package's by that of the package."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            found[name.removesuffix(".__init__")] = path
    return found


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, also those in others. A walk would look at their expressions, too, which are most of a tree."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting.extend(getattr(node, part, ()))


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Modules of ours that a file imports, wherever in it."""
    known, found = modules(), set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names} & known.keys()
    return frozenset(found)


def drawn(prefix: str = "") -> Graph:
    """Rooms right below a package, and the modules beside them, to what they import there. Without a prefix: the
    rooms of the controller, the broker and the protocol."""
    known = modules()
    graph: Graph = {}
    for name, path in known.items():
        if path.name == "__init__.py" or (node := _node(name, prefix, known)) is None:
            continue
        graph.setdefault(node, set())
        for imported in imports_of(path):
            other = _node(imported, prefix, known)
            if other is not None and other != node:
                graph[node].add(other)
    return graph


def _node(name: str, prefix: str, known: dict[str, Path]) -> str | None:
    if not prefix:
        package, _, rest = name.partition(".")
        room = f"{package}.{rest.partition('.')[0]}"
        if package != "controller":
            return package
        return room if rest and known.get(room, Path()).name == "__init__.py" else None
    if not name.startswith(prefix + "."):
        return None
    return name.removeprefix(prefix + ".").partition(".")[0]


def order(graph: Graph) -> list[list[str]]:
    """Its levels, those that import nothing last; ValueError names what is in a circle."""
    left = {node: set(below) for node, below in graph.items()}
    levels: list[list[str]] = []
    while left:
        lowest = sorted(node for node, below in left.items() if not below & left.keys())
        if not lowest:
            raise ValueError(f"a circle among {sorted(left)}")
        levels.insert(0, lowest)
        for node in lowest:
            del left[node]
    return levels


def reduced(graph: Graph) -> Graph:
    """Without the arrows that others imply."""

    def reached(node: str) -> set[str]:
        found = set(graph[node])
        for below in graph[node]:
            found |= reached(below)
        return found

    return {
        node: {one for one in below if not any(one in reached(other) for other in below - {one})}
        for node, below in graph.items()
    }


def mermaid(prefix: str = "") -> str:
    """The drawing, arrows downwards; those that others imply are left out."""
    graph = drawn(prefix)
    levels, arrows = order(graph), reduced(graph)
    lines = ["```mermaid", "flowchart TD"]
    for level in levels:
        for node in level:
            lines.extend(f"    {node} --> {below}" for below in sorted(arrows[node]))
            if not arrows[node] and not any(node in below for below in arrows.values()):
                lines.append(f"    {node}")
    return "\n".join([*lines, "```"])


#: Drawings of docs/architecture.md: what stands in their comment, and the package.
DRAWINGS = {
    "whole tree": "",
    "controller.core": "controller.core",
    "controller.runtime": "controller.runtime",
    "broker_stub": "broker_stub",
}
PAGE = DOCS / "architecture.md"


def redrawn(page: str) -> str:
    """The page with its drawings as the sources are now."""
    for title, prefix in DRAWINGS.items():
        head, _, rest = page.partition(f"<!-- import graph: {title} -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        assert end, f"no place for {title}"
        page = f"{head}<!-- import graph: {title} -->\n{mermaid(prefix)}\n{end}{tail}"
    return page


if __name__ == "__main__":
    new = redrawn(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(new, encoding="utf-8")
    else:
        print(*map(mermaid, DRAWINGS.values()), sep="\n\n")
