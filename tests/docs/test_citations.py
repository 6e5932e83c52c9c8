"""What a text or a comment cites is in the tree: pages, headings, ADRs, sections of the behaviour reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from tests.support.paths import DOCS, ROOT

DIRECTORIES = ("controller", "broker_stub", "proto", "tests", "docs", "deploy", ".ci")
SUFFIXES = {".md", ".proto", ".py", ".service", ".sh", ".toml", ".yml"}

NUMBERS = r"\d+(?:\.\d+)*(?:(?:,| and| to|,? or) \d+(?:\.\d+)*(?![\w.]*\d))*"
#: Sections are the reference's unless a document is named before them; points are those of the last section named.
SECTIONS = re.compile(
    rf"(?<!RFC \d{{4}}, )\b[Ss]ections? ({NUMBERS})(?:, points? (\d+(?:(?:,| and| to) \d+)*))?"
)
REFERENCE = re.compile(rf"\b[Rr]eference,? ({NUMBERS})")
DESIGN = re.compile(r"\b[Dd]esign,? (?:sections? |point )?\d[\d.]*")
PAGE = re.compile(r"(?<![\w/*.-])(?:\.\./|\./)*((?:[\w-]+/)*[\w-]+\.md)\b")
ADR = re.compile(r"\bADR (\d+)\b|\bdocs/adr/(\d{4})\b")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
#: In backticks, in pages only: files and directories of ours.
PATH = re.compile(r"`((?:controller|broker_stub|proto|tests|docs|deploy)/[\w./-]+)`")
#: Where a comment or a sentence goes on in the next line.
BREAK = re.compile(r"\s*\n[ \t]*(?:#:?|//+)?[ \t]*")


def texts() -> list[Path]:
    inside = [path for name in DIRECTORIES for path in (ROOT / name).rglob("*") if path.suffix in SUFFIXES]
    here = [path for path in ROOT.iterdir() if path.suffix in SUFFIXES or path.name == "Makefile"]
    return sorted(
        p for p in inside + here if "_pb2" not in p.name and "build" not in p.relative_to(ROOT).parts
    )


@cache
def headings(page: Path) -> tuple[str, ...]:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return tuple(re.findall(r"^#+ (.+)$", prose, re.MULTILINE))


@cache
def anchors(page: Path) -> frozenset[str]:
    """As GitHub makes them."""
    return frozenset(re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings(page))


@cache
def sections() -> dict[str, set[int]]:
    """Sections of the reference, each with the points of its numbered lists; 4.3.5 is point 5 of 4.3."""
    found: dict[str, set[int]] = {}
    current: set[int] = set()
    for line in (ROOT / "docs/reference.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"#+ (\d+(?:\.\d+)?)\.? ", line):
            current = found.setdefault(heading[1], set())
        elif point := re.match(r" *(\d+)\. ", line):
            current.add(int(point[1]))
    return found


def numbers(text: str) -> list[str]:
    """The numbers of "1.1", "1.1 and 8.5", "6 to 8"."""
    if between := re.fullmatch(r"(\d+) to (\d+)", text):
        return [str(n) for n in range(int(between[1]), int(between[2]) + 1)]
    return re.findall(r"\d+(?:\.\d+)*", text)


def is_section(number: str) -> bool:
    section, _, point = number.rpartition(".")
    return number in sections() or (bool(point) and int(point) in sections().get(section, ()))


def dead_sections(text: str) -> Iterator[str]:
    for found in DESIGN.finditer(text):
        yield f"{found[0]!r}: there is no such document"
    for found in [*SECTIONS.finditer(text), *REFERENCE.finditer(text)]:
        cited = numbers(found[1])
        missing = [number for number in cited if not is_section(number)]
        yield from (f"{found[0]!r}: docs/reference.md has no section {number}" for number in missing)
        points = numbers(found[2]) if found.re is SECTIONS and found[2] and not missing else []
        known = sections()[cited[-1]] if points else set()
        yield from (f"{found[0]!r}: no point {point}" for point in points if int(point) not in known)


def dead_pages(text: str, at: Path) -> Iterator[str]:
    for found in PAGE.finditer(text) if ".md" in text else ():
        if not any((base / found[1]).is_file() for base in (ROOT, DOCS, at.parent)):
            yield f"{found[0]!r}: there is no such page"
    for found in ADR.finditer(text):
        if not list((ROOT / "docs/adr").glob(f"{int(found[1] or found[2]):04}-*.md")):
            yield f"{found[0]!r}: there is no such ADR"


def exists(path: Path) -> bool:
    """What is left of a directory that moved, compiled files, does not count."""
    return path.is_file() or (path.is_dir() and any(p.name != "__pycache__" for p in path.iterdir()))


def dead_links(text: str, at: Path) -> Iterator[str]:
    for found in PATH.finditer(text):
        if not exists(ROOT / found[1]):
            yield f"{found[0]}: there is no such path"
    for found in LINK.finditer(text):
        target = (at.parent / found[1]).resolve() if found[1] else at
        if not exists(target):
            yield f"{found[0]!r}: there is no such file"
        elif found[2] and found[2] not in anchors(target):
            yield f"{found[0]!r}: there is no such heading"


def dead(text: str, at: Path) -> list[str]:
    """``text``: in one line."""
    return [
        *dead_sections(text),
        *dead_pages(text, at),
        *(dead_links(text, at) if at.suffix == ".md" else ()),
    ]


@cache
def content(path: Path) -> str:
    """In one line."""
    return BREAK.sub(" ", path.read_text(encoding="utf-8"))


def test_every_citation_is_alive() -> None:
    found = {}
    for path in texts():
        if problems := dead(content(path), path):
            found[path.relative_to(ROOT).as_posix()] = problems
    assert found == {}


def test_something_is_cited() -> None:
    """Or a pattern has stopped to match."""
    files = texts()
    for pattern, least in ((SECTIONS, 150), (REFERENCE, 5), (PAGE, 40), (ADR, 10), (LINK, 15)):
        cited = (found for path in files for found in pattern.finditer(content(path)))
        assert len(list(islice(cited, least))) == least, pattern.pattern
    assert len(sections()) > 40
    assert sections()["14"] == set(range(1, 16))


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("(reference, section {})", ("8.4", "99.1")),
        ("Section {} and the rest", ("5.2", "5.9")),
        ("(reference, sections 8.4 and\n    # {})", ("8.5", "8.9")),
        ("reference {}: first", ("4.3.5", "4.3.6")),
        ("(reference, section 14, point {})", ("12", "99")),
        ("(sections {} of it)", ("6 to 8", "16 to 18")),
        ("see docs/{}.md", ("testing", "tasting")),
        ("in {}.md, above", ("operations", "operating")),
        ("docs/adr/{}", ("0008", "0999")),
        ("as ADR {} says", ("3", "333")),
        ("see [it]({})", ("docs/testing.md#fuzzing", "docs/testing.md#buzzing")),
        ("see [it]({})", ("docs/images/report.png", "docs/images/raport.png")),
        ("in `{}/core`", ("controller", "controller/gone")),
        ("de{} 6", ("posit", "sign")),
    ],
)
def test_dead_ones_are_found(text: str, problems: tuple[str, str]) -> None:
    alive, gone = problems
    text = BREAK.sub(" ", text)
    assert dead(text.format(alive), ROOT / "README.md") == []
    assert dead(text.format(gone), ROOT / "README.md") != []
