"""Who may import whom, and how long things may be (design 6, docs/adr). Read from the syntax, nothing is imported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("controller", "broker_stub", "proto", "tests")
LINES_MODULE_MAX = 500
LINES_FUNCTION_MAX = 70

#: Standard modules through which time, chance, threads or the outside would reach the pure core.
IMPURE = {
    "asyncio", "concurrent", "contextvars", "ctypes", "datetime", "fcntl", "glob", "http", "importlib", "io",
    "logging", "multiprocessing", "os", "pathlib", "queue", "random", "sched", "secrets", "selectors", "shutil",
    "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
#: Names that are builtins but act on the outside.
IMPURE_BUILTINS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}

#: Third-party packages that only these files import.
ONLY_IN = {
    "kazoo": (
        "controller/runtime/zookeeper/session.py",
        "controller/runtime/zookeeper/kazoo_client.py",
        "broker_stub/zookeeper/registration.py",
        "broker_stub/zookeeper/client.py",
    ),
    "grpc": (
        "controller/runtime/push/sender.py",
        "controller/client/admin.py",
        "controller/runtime/rpc/server.py",
        "broker_stub/rpc/server.py",
        "broker_stub/rpc/peers.py",
        "broker_stub/client/connection.py",
    ),
    "pyspark": ("controller/analysis/",),
    "py4j": ("controller/analysis/",),
}

#: Inside controller: layer to what it may import of ours.
LAYERS = {
    "controller.core": {"controller.core"},
    "controller.runtime": {
        "controller.core", "controller.runtime", "controller.planning", "controller.errors", "controller.__version__",
        "proto",
    },
    "controller.planning": {"controller.core", "controller.planning", "controller.errors"},
    "controller.analysis": {"controller.analysis", "controller.errors", "controller.embedded_zookeeper.ensemble"},
    "controller.workload": {
        "controller.workload", "controller.errors", "broker_stub.client", "broker_stub.log", "broker_stub.errors",
        "proto",
    },
    "controller.cli": {
        "controller.core", "controller.runtime", "controller.planning", "controller.cli", "controller.analysis",
        "controller.workload", "controller.errors", "controller.__version__", "broker_stub.client", "proto",
    },
    "controller.errors": set(),
    "broker_stub": {"broker_stub", "proto"},
    "broker_stub.log": {"broker_stub.log", "broker_stub.errors", "proto"},
    "broker_stub.control": {"broker_stub.control", "broker_stub.errors", "proto"},
    "broker_stub.replication": {
        "broker_stub.replication", "broker_stub.control", "broker_stub.log", "broker_stub.errors", "proto",
    },
    "broker_stub.group": {
        "broker_stub.group", "broker_stub.control", "broker_stub.log", "broker_stub.errors", "proto",
    },
    "broker_stub.client": {"broker_stub.client", "broker_stub.log.batches", "proto"},
    "proto": {"proto"},
}  # fmt: skip


@cache
def names() -> list[str]:
    """Every file we wrote, as its path from the root."""
    return [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "_pb2" not in path.name
    ]


def tree_of(name: str) -> ast.Module:
    """Not kept: the trees of all files would slow down whatever is tested after them."""
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


@cache
def imported_by(name: str) -> tuple[str, ...]:
    return tuple(imports(name, tree_of(name)))


def product() -> dict[str, tuple[str, ...]]:
    """What is not a test: file to what it imports."""
    return {name: imported_by(name) for name in names() if not name.startswith("tests/")}


def imports(name: str, tree: ast.Module) -> Iterator[str]:
    """Full names of what a file imports, wherever in it; ``from a import b`` counts as ``a.b``."""
    package = name.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def module_of(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_below(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def files_under(prefix: str) -> list[str]:
    found = [name for name in names() if name.startswith(prefix)]
    assert found, f"nothing under {prefix}: was it renamed?"
    return found


@pytest.mark.parametrize("name", files_under("controller/core/"))
def test_the_core_is_pure(name: str) -> None:
    tree = tree_of(name)
    for imported in imported_by(name):
        top = imported.split(".")[0]
        if top == "controller":
            assert is_below(imported, "controller.core"), f"{name} imports {imported}"
        else:
            assert top == "msgspec" or (top in sys.stdlib_module_names and top not in IMPURE), (
                f"{name}: {imported}"
            )
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not used & IMPURE_BUILTINS
    assert not any(isinstance(n, ast.AsyncFunctionDef | ast.Await) for n in ast.walk(tree))


#: The broker's decisions: what a simulator runs as it is. Logs are given to them.
BROKER_PURE = (
    "control/gates", "control/metadata", "control/replicas", "control/requests", "group/members", "group/messages",
    "group/offsets", "group/partitioner", "group/state", "log/batches", "log/epochs", "log/memory",
    "replication/partition", "replication/ports",
)  # fmt: skip


@pytest.mark.parametrize("module", BROKER_PURE)
def test_the_broker_s_decisions_are_pure(module: str) -> None:
    name = f"broker_stub/{module}.py"
    for imported in imported_by(name):
        assert imported.split(".")[0] not in IMPURE, f"{name} imports {imported}"
    assert not any(isinstance(n, ast.Await) for n in ast.walk(tree_of(name)))


@pytest.mark.parametrize("package", ONLY_IN)
def test_third_party_packages_stay_in_their_corner(package: str) -> None:
    """Tests may use them as an independent client; embedded_zookeeper.py finds pyspark without importing it."""
    allowed = ONLY_IN[package]
    importers = {name for name, imported in product().items() if any(is_below(i, package) for i in imported)}
    assert {name for name in importers if not name.startswith(allowed)} == set()
    assert importers or package == "py4j"


def test_embedded_zookeeper_only_finds_pyspark() -> None:
    tree = tree_of("controller/embedded_zookeeper/ensemble.py")
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and "find_spec" in ast.unparse(node.func)
    ]
    assert len(calls) == 1
    assert "import_module" not in ast.unparse(tree)


@pytest.mark.parametrize("layer", LAYERS)
def test_layers(layer: str) -> None:
    inside = {name: found for name, found in product().items() if is_below(module_of(name), layer)}
    assert inside
    for name, found in inside.items():
        for imported in found:
            if imported.split(".")[0] in PACKAGES:
                assert any(is_below(imported, allowed) for allowed in LAYERS[layer]), (
                    f"{name} imports {imported}"
                )


#: What uses brokers as a client does; what of theirs it may import, LAYERS says.
CLIENTS = ("controller/workload/", "controller/cli/")


def test_broker_and_controller_never_meet() -> None:
    """broker_stub is an independent reading of the protocol."""
    for name, found in product().items():
        for imported in found:
            if name.startswith("broker_stub/"):
                assert not is_below(imported, "controller"), f"{name} imports {imported}"
            if name.startswith("controller/") and not name.startswith(CLIENTS):
                assert not is_below(imported, "broker_stub"), f"{name} imports {imported}"


def test_analysis_takes_nothing_of_the_runtime_but_finding_java() -> None:
    for name in files_under("controller/analysis/"):
        for imported in imported_by(name):
            if is_below(imported, "controller.runtime"):
                assert imported == "controller.embedded_zookeeper.ensemble.find_java", (
                    f"{name} imports {imported}"
                )


def test_nothing_of_ours_imports_tests() -> None:
    for name, found in product().items():
        assert not [i for i in found if is_below(i, "tests")], name


#: Files or functions that are over a limit today, each to be brought down: remove the entry then.
TOO_LONG: dict[str, str] = {}


@pytest.mark.parametrize("name", names())
def test_modules_and_functions_are_short(name: str) -> None:
    if name in TOO_LONG:
        pytest.xfail(TOO_LONG[name])
    lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
    assert lines <= LINES_MODULE_MAX, f"{name} has {lines} lines"
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= LINES_FUNCTION_MAX, f"{name}: {node.name} has {length} lines"


def test_the_rules_would_notice() -> None:
    """The checks themselves, on sources that break each rule."""
    tree = ast.parse(
        "import os.path\nfrom . import sibling\nfrom ..other import thing\ndef f():\n    import time"
    )
    assert set(imports("controller/core/x.py", tree)) == {
        "os.path", "controller.core.sibling", "controller.other.thing", "time",
    }  # fmt: skip
    assert is_below("grpc.aio", "grpc")
    assert not is_below("grpcio", "grpc")
    assert module_of("controller/core/__init__.py") == "controller.core"
