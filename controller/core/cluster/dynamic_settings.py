"""Settings of controllers that operators change while they run, as Kafka's dynamic broker configs (KIP-226).

In ``/controllers/settings`` (ours), by controller id or ``<default>``. What is set for a controller's own id holds
before the default, and that before its flags, environment and file. A value that is no valid one (edited by hand) is
reported and ignored, alone. ``config_keys.CONTROLLER_KEYS`` is the table of what is dynamic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from controller.core.commits import change_node
from controller.core.config_keys import CONTROLLER_KEYS
from controller.core.context import CoreSettings, EventContext, Handler
from controller.core.effects import Problem, ReadSettings
from controller.core.records import EntityAltered
from controller.core.requests.configs import ConfigChange, ConfigEntry
from controller.core.requests.errors import ErrorCode
from controller.core.znode_paths import SETTINGS, NodePath

Stored = Mapping[str, Mapping[str, str]]
PATH: NodePath[Stored] = NodePath(SETTINGS)
DEFAULT = "<default>"
#: The source of what no operator has set while controllers run.
STATIC = "flags, environment, file or default"


def load(context: EventContext) -> Handler[None]:
    """Read them, which arms the watch: from now on they hold; what cannot be read changes nothing."""
    found = yield from context.read(ReadSettings())
    if isinstance(found, Problem):
        context.problem(found)
        return
    _apply(context, found or {})


def _apply(context: EventContext, stored: Stored) -> None:
    cluster = context.cluster
    context.solved(PATH)
    cluster.dynamic = {}
    for name in (DEFAULT, str(cluster.controller_id)):
        for key, value in stored.get(name, {}).items():
            if (problem := problem_of(key, value)) is not None:
                context.problem(Problem(PATH, f"{name}: {problem}"))
            else:
                cluster.dynamic[key] = _parsed(key, value)


def problem_of(key: str, value: str) -> str | None:
    """Why a controller must not have this value, as text naming what is allowed; None: it may."""
    check = CONTROLLER_KEYS.get(key)
    if check is None:
        return f"{key[:100]!r} is not dynamic: must be one of {', '.join(sorted(CONTROLLER_KEYS))}"
    problem = check(value)
    return None if problem is None else f"{key} = {value[:100]!r}: {problem}"


def _parsed(key: str, value: str) -> int:
    kind = type(getattr(CoreSettings(), key))
    return value.strip().lower() == "true" if kind is bool else int(value)


def alter(
    context: EventContext, name: str, changes: Sequence[ConfigChange], *, write: bool
) -> Handler[tuple[ErrorCode, str]]:
    """Change what is stored for a controller, or by default. ``name``: its id or ``DEFAULT``. Returns an error, and
    why."""
    if not write:
        return ErrorCode.NONE, ""

    def change(before: Stored) -> Stored:
        own = dict(before.get(name, {}))
        for one in changes:
            own.pop(one.key, None)
            if one.value is not None:
                own[one.key] = one.value.strip()
        return {**{n: kept for n, kept in before.items() if n != name}, **({name: own} if own else {})}

    absent: Stored = {}
    after, failure = yield from change_node(context, PATH, absent, change)
    if after is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR, failure
    context.log([EntityAltered(f"controllers/{name}", len(changes))])
    return ErrorCode.NONE, ""


def describe(context: EventContext, stored: Stored, name: str) -> list[ConfigEntry]:
    """What is set for a controller and by default; for the active one also what holds where nothing is set."""
    rows: dict[str, tuple[str, str]] = {}
    if name == str(context.cluster.controller_id):
        static = asdict(context.static_settings)
        rows = {key: (str(static[key]).lower(), STATIC) for key in CONTROLLER_KEYS}
    for source in dict.fromkeys((DEFAULT, name)):
        rows.update({key: (value, f"controllers/{source}") for key, value in stored.get(source, {}).items()})
    return [
        ConfigEntry(key, value, source, key in CONTROLLER_KEYS, problem_of(key, value) or "")
        for key, (value, source) in sorted(rows.items())
    ]
