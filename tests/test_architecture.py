"""Who may import whom, and how long things may be (docs/adr/0001). Read from the syntax, nothing is imported."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.import_graph import statements
from tests.support.paths import ROOT

PACKAGES = ("controller", "broker_stub", "proto", "tests")
#: Kafka's messages: nobody wrote them.
GENERATED = ROOT / "proto" / "gen" / "kafka"
#: A longer module is looked at again: is it one idea?
LINES_MODULE_MAX = 800
#: Modules side by side in one folder of the product.
ROOM_MODULES_MAX = 16
LINES_FUNCTION_MAX = 70

#: Standard modules through which time, chance, threads or the outside would reach the pure core.
IMPURE = {
    "asyncio", "concurrent", "contextvars", "ctypes", "datetime", "fcntl", "glob", "http", "importlib", "io",
    "logging", "multiprocessing", "os", "pathlib", "queue", "random", "sched", "secrets", "selectors", "shutil",
    "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
#: Names that are builtins but act on the outside.
IMPURE_BUILTINS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}

#: Third-party packages that only these files and rooms import.
ONLY_IN = {
    "kazoo": (
        "controller/runtime/zookeeper/session.py",
        "controller/runtime/zookeeper/kazoo_client.py",
        "proto/zookeeper_access.py",
        "broker_stub/zookeeper/registration.py",
        "broker_stub/zookeeper/client.py",
        "broker_stub/zookeeper/cluster_id.py",
    ),
    "grpc": (
        "controller/runtime/push/grpc_transport.py",
        "proto/arrivals.py",
        "proto/security/grpc_channels.py",
        "controller/client/admin.py",
        "controller/runtime/rpc/server.py",
        "broker_stub/rpc/",
        "broker_stub/client/connection.py",
    ),
    "cryptography": ("controller/certificates.py",),
    "pyspark": ("controller/analysis/",),
    "py4j": ("controller/analysis/",),
}

#: Modules at the root of the core, which rooms may import; not those that know the rooms (handlers, failover, machine).
_CORE = {
    "controller.core." + name
    for name in (
        "backoff", "commits", "config_keys", "context", "effects", "events", "model", "names", "outbox",
        "reasons", "records", "requests", "znode_paths", "znode_sizes",
    )
}  # fmt: skip
_CORE_ROOM = "controller.core."
_RUNTIME = "controller.runtime."

#: Each room, and what it may import of ours; itself it always may. The longest prefix of a module is its room.
ROOMS: dict[str, set[str]] = {
    "controller": {"proto.addresses", "proto.texts"},
    "controller.core": {"controller.core"},
    "controller.core.requests": {"controller.core.config_keys", "controller.core.model", "controller.core.reasons"},
    "controller.core.model": {"controller.core.reasons", "controller.core.znode_paths"},
    "controller.core.outbox": {"controller.core.model"},
    "controller.core.standby": {"controller.core.model"},
    "controller.core.partitions": _CORE,
    "controller.core.reassignment": {*_CORE, _CORE_ROOM + "partitions"},
    "controller.core.topics": {*_CORE, _CORE_ROOM + "partitions", _CORE_ROOM + "reassignment.topic_znode"},
    "controller.core.cluster": {
        *_CORE, _CORE_ROOM + "partitions", _CORE_ROOM + "reassignment", _CORE_ROOM + "topics",
    },
    "controller.core.brokers": {
        *_CORE, _CORE_ROOM + "partitions", _CORE_ROOM + "reassignment", _CORE_ROOM + "topics",
        _CORE_ROOM + "cluster", _CORE_ROOM + "audit.stored_states",
    },
    "controller.core.audit": {*_CORE, _CORE_ROOM + "reassignment.phases", _CORE_ROOM + "partitions"},
    "controller.core.isr": {*_CORE, _CORE_ROOM + "reassignment.phases", _CORE_ROOM + "partitions"},
    "controller.core.elections": {
        *_CORE, _CORE_ROOM + "partitions", _CORE_ROOM + "cluster.maintenance", _CORE_ROOM + "cluster.flapping",
    },
    "controller.core.explain": {
        *_CORE, _CORE_ROOM + "partitions", _CORE_ROOM + "reassignment", _CORE_ROOM + "topics",
        _CORE_ROOM + "brokers",
    },
    "controller.planning": {"controller.core", "controller.errors"},
    "controller.runtime": {
        "controller.core", "controller.runtime", "controller.errors", "controller.__version__", "proto.addresses",
        "proto.incarnations", "proto.logs", "proto.reload", "proto.security", "proto.settings",
        "proto.standard_streams", "proto.statelog", "proto.tasks", "proto.texts", "proto.zookeeper_access",
    },
    "controller.runtime.election": {
        "controller.core", "controller.errors", _RUNTIME + "config", _RUNTIME + "lease", _RUNTIME + "kafka",
        _RUNTIME + "observe.metrics", _RUNTIME + "zookeeper", "proto.incarnations", "proto.zookeeper_access",
    },
    "controller.runtime.observe": {
        "controller.core", "controller.__version__", "controller.errors", _RUNTIME + "config", "proto.rate_limit",
        "proto.security", "proto.statelog",
    },
    "controller.runtime.zookeeper": {
        "controller.core", "controller.errors", _RUNTIME + "lease", _RUNTIME + "observe.metrics",
        "proto.kafka.znode_json", "proto.tasks", "proto.texts", "proto.zookeeper_access",
    },
    "controller.runtime.push": {
        "controller.core", _RUNTIME + "observe.metrics", _RUNTIME + "config", _RUNTIME + "kafka",
        _RUNTIME + "shared_chunks", "proto",
    },
    "controller.runtime.audit": {
        "controller.core", "controller.errors", _RUNTIME + "observe.metrics", _RUNTIME + "push", _RUNTIME + "kafka",
        "proto",
    },
    "controller.runtime.kafka": {
        "controller.core", "controller.errors", "controller.__version__", _RUNTIME + "config",
        _RUNTIME + "shared_chunks", _RUNTIME + "zookeeper", "proto",
    },
    "controller.runtime.kafka.security": {
        "controller.core.znode_paths", "controller.errors", _RUNTIME + "config", _RUNTIME + "zookeeper", "proto",
    },
    "controller.runtime.http": {_RUNTIME + "state", "proto.limits",
        "controller.core", "controller.__version__", _RUNTIME + "daemon", _RUNTIME + "term", _RUNTIME + "observe",
        _RUNTIME + "zookeeper", "proto.security", "controller.errors",
    },
    "controller.runtime.http.console": {
        "controller.core", "controller.__version__", "controller.errors", "controller.planning.cluster_health",
        _RUNTIME + "daemon", _RUNTIME + "term", _RUNTIME + "state", _RUNTIME + "observe", _RUNTIME + "zookeeper",
        _RUNTIME + "rpc", _RUNTIME + "http", "proto.addresses", "proto.gen", "proto.security", "proto.statelog",
    },
    "controller.runtime.rpc": {
        "controller.core", "controller.planning", "controller.errors", "controller.runtime", "proto",
    },
    "controller.runtime.kafka_api": {"controller.core", "controller.errors", "controller.runtime", "proto"},
    "controller.client": {"controller.errors", "proto"},
    "controller.embedded_zookeeper": {"controller.child_processes", "controller.errors"},
    "controller.embedded_kafka": {
        "controller.child_processes", "controller.embedded_zookeeper", "controller.errors", "controller.maven",
    },
    "controller.analysis": {
        "controller.child_processes.is_running", "controller.errors", "controller.exit_codes", "controller.maven",
        "controller.embedded_zookeeper.ensemble.find_java", "proto.statelog.schema", "proto.texts",
    },
    "controller.workload": {
        "controller.errors", "broker_stub.client", "broker_stub.log", "broker_stub.errors", "proto",
    },
    "controller.playground": {
        "controller.analysis", "controller.client", "controller.embedded_kafka", "controller.embedded_zookeeper",
        "controller.certificates", "controller.child_processes", "controller.errors",
        "controller.exit_codes", "controller.core.znode_paths",
        "controller.runtime", "controller.workload", "proto",
    },
    "controller.cli": {"controller", "broker_stub.client", "proto"},
    "broker_stub": {"broker_stub", "proto"},
    "broker_stub.log": {"broker_stub.errors", "proto"},
    "broker_stub.control": {"broker_stub.errors", "broker_stub.log.files", "proto"},
    "broker_stub.replication": {"broker_stub.control", "broker_stub.log", "broker_stub.errors", "proto"},
    "broker_stub.group": {"broker_stub.control", "broker_stub.log", "broker_stub.errors", "proto"},
    "broker_stub.client": {"broker_stub.log.batches", "proto"},
    "broker_stub.zookeeper": {
        "broker_stub.control", "broker_stub.replication", "broker_stub.rpc", "broker_stub.errors", "proto",
        "broker_stub.settings", "broker_stub.data_identity",
    },
    "broker_stub.rpc": {"broker_stub.errors", "broker_stub.control", "broker_stub.replication", "proto"},
    "proto": set(),
    "proto.kafka": {"proto.gen.kafka"},
    "proto.security": set(),
}  # fmt: skip


@cache
def names() -> list[str]:
    """Every file we wrote, as its path from the root."""
    return [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "_pb2" not in path.name and GENERATED not in path.parents
    ]


def source_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def tree_of(name: str) -> ast.Module:
    """Not kept: the trees of all files would slow down whatever is tested after them."""
    return ast.parse(source_of(name))


@cache
def imported_by(name: str) -> tuple[str, ...]:
    return tuple(imports(name, tree_of(name)))


def product() -> dict[str, tuple[str, ...]]:
    """What is not a test: file to what it imports."""
    return {name: imported_by(name) for name in names() if not name.startswith("tests/")}


def imports(name: str, tree: ast.Module) -> Iterator[str]:
    """Full names of what a file imports, wherever in it; ``from a import b`` counts as ``a.b``."""
    package = name.removesuffix(".py").split("/")[:-1]
    for node in statements(tree):
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


#: Where the core says Any: how often, and why no type would do.
ANY_IN_THE_CORE = {
    "controller/core/handlers.py": (1, "a table of handlers, each of which takes its own type of body"),
}


def test_the_core_has_types() -> None:
    found = {name: mentions_of_any(tree_of(name)) for name in files_under("controller/core/")}
    allowed = {name: count for name, (count, _) in ANY_IN_THE_CORE.items()}
    assert {name: count for name, count in found.items() if count} == allowed


def mentions_of_any(tree: ast.Module) -> int:
    return sum(
        getattr(node, "id" if isinstance(node, ast.Name) else "attr", "") == "Any" for node in ast.walk(tree)
    )


#: The broker's decisions: what a simulator runs as it is. Logs are given to them.
BROKER_PURE = (
    "control/gates", "control/metadata", "control/pages", "control/replicas", "control/requests", "group/members",
    "group/messages", "group/offsets", "group/partitioner", "group/state", "log/batches", "log/epochs",
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
    """Tests may use them as independent clients; ``embedded_zookeeper`` finds pyspark without importing it."""
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


def room_of(module: str) -> str:
    return max((room for room in ROOMS if is_below(module, room)), key=len)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_what_their_table_says(room: str) -> None:
    inside = {name: found for name, found in product().items() if room_of(module_of(name)) == room}
    assert inside, f"nothing is in {room}: was it renamed?"
    for name, found in inside.items():
        for imported in found:
            if imported.split(".")[0] in PACKAGES:
                assert any(is_below(imported, allowed) for allowed in {room, *ROOMS[room]}), (
                    f"{name} imports {imported}"
                )


def test_every_folder_is_small_and_says_what_lives_in_it() -> None:
    folders = {(ROOT / name).parent for name in product()}
    for folder in folders:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= ROOM_MODULES_MAX, f"{folder}: {len(modules)} modules side by side"
        inside = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
        assert ast.get_docstring(inside), f"{folder}/__init__.py says nothing"


def test_rooms_of_the_core_make_no_circle() -> None:
    """Rooms, not modules: who may import whom is an order."""
    rooms = {room: allowed for room, allowed in ROOMS.items() if room.startswith("controller.core.")}
    below: dict[str, set[str]] = {
        room: {other for other in rooms if other != room and any(is_below(a, other) for a in allowed)}
        for room, allowed in rooms.items()
    }
    while below:
        lowest = [room for room, others in below.items() if not others & below.keys()]
        assert lowest, f"a circle among {sorted(below)}"
        for room in lowest:
            del below[room]


#: What uses brokers as a client does; what of theirs it may import, ROOMS says.
CLIENTS = ("controller/workload/", "controller/cli/")


def test_broker_and_controller_never_meet() -> None:
    """broker_stub is an independent reading of the protocol."""
    for name, found in product().items():
        for imported in found:
            if name.startswith("broker_stub/"):
                assert not is_below(imported, "controller"), f"{name} imports {imported}"
            if name.startswith("controller/") and not name.startswith(CLIENTS):
                assert not is_below(imported, "broker_stub"), f"{name} imports {imported}"


#: How a znode path begins.
_ZNODES = re.compile(
    r"/(admin|brokers|cluster|config|consumers|controller|controllers|controller_epoch|feature"
    r"|isr_change_notification|kafka-acl|kafka-acl-extended|latest_producer_id_block|log_dir_event_notification)(?![\w.-])"
)
#: What a file has that has a text which begins with a slash, before it.
_BEFORE_SLASH = re.compile("[\"'}]/")
#: The one module of each product that spells them.
_SPELLS_ZNODES = {
    "controller": "controller/core/znode_paths.py",
    "broker_stub": "broker_stub/zookeeper/codecs.py",
}


def texts_of(tree: ast.Module) -> Iterator[str]:
    """String literals that are no docstrings, and the literal parts of f-strings."""
    documents = {
        node.body[0].value
        for node in statements(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents:
            yield node.value


@pytest.mark.parametrize("package", _SPELLS_ZNODES)
def test_znode_paths_are_spelled_once(package: str) -> None:
    only = _SPELLS_ZNODES[package]
    assert any(_ZNODES.match(text) for text in texts_of(tree_of(only)))
    for name in product():
        if name.startswith(f"{package}/") and name != only and _BEFORE_SLASH.search(source_of(name)):
            found = [text for text in texts_of(tree_of(name)) if _ZNODES.match(text)]
            assert not found, f"{name}: {found}"


def test_nothing_of_ours_imports_tests() -> None:
    for name, found in product().items():
        assert not [i for i in found if is_below(i, "tests")], name


def same_values(tree: ast.Module) -> list[str]:
    """Members of enums that are only another name of an earlier one."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(base) for base in node.bases):
            members = [one for one in node.body if isinstance(one, ast.Assign)]
            values = [ast.unparse(one.value) for one in members]
            found += [f"{node.name}: {value}" for value, count in Counter(values).items() if count > 1]
    return found


def test_grpc_knows_each_option_that_it_is_given() -> None:
    """It ignores others: a channel would have gRPC's own limits, and wait for two minutes before it connects again."""
    package = find_spec("grpc")
    assert package is not None
    assert package.origin is not None
    (library,) = (Path(package.origin).parent / "_cython").glob("cygrpc*.so")
    known = library.read_bytes()
    given = {option for name in product() for option in re.findall('"(grpc[.][a-z_]+)"', source_of(name))}
    assert "grpc.max_reconnect_backoff_ms" in given
    assert [option for option in sorted(given) if f"{option}\0".encode() not in known] == []


def test_no_member_of_an_enum_is_another_one() -> None:
    with_enums = [name for name in product() if "Enum" in source_of(name)]
    assert {name: found for name in with_enums if (found := same_values(tree_of(name)))} == {}
    assert same_values(ast.parse("class A(Enum):\n    X = 'a'\n    Y = 'a'\n")) == ["A: 'a'"]


def test_functions_fit_a_screen_and_modules_an_idea() -> None:
    too_long = []
    for name in names():
        lines = len(source_of(name).splitlines())
        if lines > LINES_MODULE_MAX:
            warnings.warn(f"{name} has {lines} lines: is it one idea?", stacklevel=1)
        if lines <= LINES_FUNCTION_MAX:
            continue
        for node in statements(tree_of(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LINES_FUNCTION_MAX:
                    too_long.append(f"{name}: {node.name} has {length} lines")
    assert too_long == []


#: Names that hold sentences, or values that make them.
SENTENCE = re.compile(r"(^|_)(why|reason|problem|message|words|text)$")
#: Settings come as text.
MAY_READ_TEXT = {"controller/runtime/config.py"}
DECIDING = ("controller/core/", "controller/runtime/", "controller/planning/")


def constants(tree: ast.Module) -> set[str]:
    """Names that a module gives to texts."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def named(node: ast.expr) -> str:
    """What an expression is called: the last name of ``a.b``, ``a.b[0]``, ``str(a.b)``, ``a.b.lower()``."""
    match node:
        case ast.Name(id=found) | ast.Attribute(attr=found):
            return found
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[inner, *_]) | ast.Subscript(value=inner):
            return named(inner)
        case ast.Call(func=ast.Attribute(value=inner)):
            return named(inner)
    return ""


def decisions_on_sentences(tree: ast.AST, texts: set[str]) -> Iterator[str]:
    """``==``, ``!=``, ``in`` and ``match`` between a sentence and a constant text; ``startswith``, ``endswith``."""

    def text(node: ast.expr) -> bool:
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return any(map(text, node.elts))
        # An empty text is "nothing said".
        return named(node) in texts or (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""
        )

    def sentence(node: ast.expr) -> bool:
        return bool(SENTENCE.search(named(node)))

    for node in ast.walk(tree):
        found = False
        match node:
            case ast.Compare(left=left, comparators=others):
                found = any(map(sentence, [left, *others])) and any(map(text, [left, *others]))
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith", value=value)):
                found = sentence(value)
            case ast.Match(subject=subject, cases=cases):
                values = [
                    p.value for c in cases for p in ast.walk(c.pattern) if isinstance(p, ast.MatchValue)
                ]
                found = sentence(subject) and any(map(text, values))
        if found:
            yield ast.unparse(node).split("\n")[0]


def test_no_decision_is_made_on_a_sentence() -> None:
    """Reasons are values: whoever rewords or translates one changes nothing that is done."""
    trees = {name: tree_of(name) for name in product() if name.startswith(DECIDING)}
    texts = set().union(*map(constants, trees.values()))
    found = {
        f"{name}: {what}"
        for name, tree in trees.items()
        if name not in MAY_READ_TEXT
        for what in decisions_on_sentences(tree, texts)
    }
    assert found == set()


@pytest.mark.parametrize(
    "source",
    [
        "why == 'no such topic'",
        "held.reason == TOLD",
        "str(held.reason) != 'x'",
        "why in ('a', 'b')",
        "'unreadable' in reasons[0].message",
        "error.message.lower().startswith(prefix)",
        "failed[partition].reason.endswith('x')",
        "match why:\n    case 'x':\n        pass",
    ],
)
def test_a_decision_on_a_sentence_would_be_noticed(source: str) -> None:
    assert [*decisions_on_sentences(ast.parse(source), {"TOLD"})]


@pytest.mark.parametrize(
    "source", ["known.reason != reason", "path in cluster.problems", "why is None", "reason == ''"]
)
def test_other_comparisons_are_left_alone(source: str) -> None:
    assert not [*decisions_on_sentences(ast.parse(source), {"TOLD"})]


def test_the_rules_would_notice() -> None:
    """The checks themselves, on sources that break each rule."""
    tree = ast.parse(
        "import os.path\nfrom . import sibling\nfrom ..other import thing\ndef f():\n    import time"
    )
    assert set(imports("controller/core/x.py", tree)) == {
        "os.path", "controller.core.sibling", "controller.other.thing", "time",
    }  # fmt: skip
    typed = ast.parse("from typing import Any\nx: dict[str, Any]\ndef f(a: typing.Any) -> 'Any': ...")
    assert mentions_of_any(typed) == 2
    assert is_below("grpc.aio", "grpc")
    assert not is_below("grpcio", "grpc")
    assert module_of("controller/core/__init__.py") == "controller.core"
