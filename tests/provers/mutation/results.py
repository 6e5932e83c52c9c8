"""What has become of each mutant, kept from run to run, and the table in docs/mutation.md."""

from __future__ import annotations

import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.provers.mutation.mutants import Mutant
from tests.provers.mutation.runner import FAILED, KILLED, Result
from tests.support.paths import DOCS, ROOT

KEPT = ROOT / "build" / "mutation" / "results.jsonl"
EQUIVALENT = Path(__file__).parent / "equivalent.toml"
PAGE = DOCS / "mutation.md"


@dataclass(frozen=True)
class Known:
    status: str
    by: str


def load() -> dict[str, Known]:
    """By key of the mutant; the newest of each."""
    if not KEPT.exists():
        return {}
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    return {row["key"]: Known(row["status"], row["by"]) for row in rows}


def files() -> list[str]:
    """Those of which any mutant was ever tried."""
    if not KEPT.exists():
        return []
    return sorted({json.loads(line)["file"] for line in KEPT.read_text(encoding="utf-8").splitlines()})


def keep(result: Result) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    mutant = result.mutant
    row = {
        "key": mutant.key,
        "status": result.status,
        "by": result.by,
        "file": mutant.file,
        "line": mutant.line,
        "function": mutant.function,
        "what": mutant.what,
    }
    with KEPT.open("a", encoding="utf-8") as out:
        out.write(json.dumps(row, ensure_ascii=False) + "\n")


class Equivalents:
    """Mutants that change nothing that anybody could see, each with the reason."""

    def __init__(self, text: str) -> None:
        self._why = {
            (file, function, what): why
            for file, functions in tomllib.loads(text).items()
            for function, mutants in functions.items()
            for what, why in mutants.items()
        }

    def why(self, mutant: Mutant) -> str | None:
        return self._why.get((mutant.file, mutant.function, mutant.what))

    def stale(self, mutants: Iterable[Mutant]) -> list[str]:
        """Those named of the mutants' files that no mutant is any more."""
        some = list(mutants)
        files = {mutant.file for mutant in some}
        there = {(mutant.file, mutant.function, mutant.what) for mutant in some}
        return [
            f"{file} {function}: {what}" for file, function, what in self._why.keys() - there if file in files
        ]


def equivalents() -> Equivalents:
    return Equivalents(EQUIVALENT.read_text(encoding="utf-8"))


def table(mutants: Iterable[Mutant], known: dict[str, Known], equal: Equivalents) -> str:
    """A row for each file of whose mutants some have been tried, and one for each that survived."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    survivors: defaultdict[str, list[str]] = defaultdict(list)
    for mutant in mutants:
        found = known.get(mutant.key)
        status = found.status if found else "untried"
        if status not in (KILLED, FAILED, "untried"):
            if equal.why(mutant) is not None:
                status = "equivalent"
            else:
                survivors[mutant.file].append(
                    f"| `{mutant.file}:{mutant.line}` | {_cell(mutant.function)} | {_cell(mutant.what)} |"
                )
                status = "survived"
        counts[mutant.file][status] += 1
    lines = [
        "| file | mutants | tried | killed | equivalent | survived | killed of those that differ |",
        "|---|---|---|---|---|---|---|",
    ]
    total = Counter[str]()
    for file, count in sorted(counts.items()):
        if count["untried"] == count.total():
            continue
        total.update(count)
        lines.append(_row(f"`{file}`", count))
    lines.append(_row("all", total))
    lines += ["", "Survivors:", "", "| place | function | mutant |", "|---|---|---|"]
    for _, rows in sorted(survivors.items()):
        lines += rows
    return "\n".join(lines)


def _cell(text: str) -> str:
    return "`" + text.replace("|", "¦").replace("`", "'") + "`" if text else ""


def _row(name: str, count: Counter[str]) -> str:
    killed, survived = count[KILLED], count["survived"]
    share = f"{killed / (killed + survived):.1%}" if killed + survived else "-"
    tried = killed + survived + count["equivalent"]
    whole = tried + count["untried"]
    return f"| {name} | {whole} | {tried} | {killed} | {count['equivalent']} | {survived} | {share} |"


def write(text: str, tried: Container[str]) -> None:
    """Between the two marks; what is there of files that were not ``tried`` here stays: they were tried elsewhere.

    Raises ValueError when the page has no place for it.
    """
    page = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- table: begin -->", "<!-- table: end -->"
    before, rest = page.split(begin)
    old, after = rest.split(end)
    PAGE.write_text(f"{before}{begin}\n\n{merged(old, text, tried)}\n\n{end}{after}", encoding="utf-8")


def merged(old: str, new: str, tried: Container[str]) -> str:
    """Two texts of the same tables, whose rows begin with a file: of the old one the rows of files that were not tried,
    of the new one those of the others, and the sums of both."""
    kept, made = _tables(old), _tables(new)
    found = []
    for number, heading in enumerate({**made, **kept}):
        rows = [row for row in kept.get(heading, ()) if _file_of(row) not in tried]
        rows += [row for row in made.get(heading, ()) if _file_of(row) in tried]
        if rows:
            sums = [_sum_of(rows)] if number == 0 else []
            found.append("\n".join([heading, *sorted(rows, key=_file_of), *sums]))
    return "\n\n".join(found)


def _tables(text: str) -> dict[str, list[str]]:
    """The rows of each table, by its heading."""
    tables: dict[str, list[str]] = {}
    heading: list[str] = []
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith("| `"):
            rows.append(line)
        elif not line.startswith("| all |"):
            heading.append(line)
            if line.startswith("|---"):
                rows = tables.setdefault("\n".join(heading).strip(), [])
                heading = []
    return tables


def _file_of(row: str) -> str:
    return row.removeprefix("| `").partition("`")[0].partition(":")[0]


def _sum_of(rows: Iterable[str]) -> str:
    columns = list(zip(*(row.strip("| ").split(" | ")[1:-1] for row in rows), strict=True))
    mutants, tried, killed, equal, survived = (sum(map(int, column)) for column in columns)
    return _row(
        "all",
        Counter({KILLED: killed, "survived": survived, "equivalent": equal, "untried": mutants - tried}),
    )
