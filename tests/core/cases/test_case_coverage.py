"""No row of the specification is lost: each is in one file, and run by a test or listed with the reason it is not.

The specification's own file is not part of the repository; its ids are.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from types import ModuleType

import pytest

from tests.support import reference_rows
from tests.support.core.cases import NOT_APPLICABLE
from tests.support.reference_rows import CASES, files, load, run_by

#: Of each row of the specification the number, as ranges.
IDS = (
    "1-81 84 86-91 94 96 98 102 106-107 109-113 116 118-121 125-130 132-133 141-142 146 149 152 156 158 "
    "161-162 165 171 174 178-180 182-183 187 190-195 197-199 202-203 206-208 214 216-218 224 226 229 231 "
    "233-234 236-238 240 243 248 250-251 254-255 257-259 262 265 267-269 271-273 280-283 285-291 295 298 "
    "301-302 304-305 307 310 312-316 318 321 324-325 327 329 332-334 337-340 345-348 351-354 357 360 362-363 "
    "365 367-369 371-373 375-376 378 380 383 387 389-390 393 396 398 400 402-403 406 410 415 417 420-421 "
    "424-425 427 431-432 434-435 439-440 442 444 446-448 450-451 453 455 458-460 462 468-473 476-478 480 485 "
    "488 490-492 494 499 501-502 504-507 509-510 512 514 516-517 519-520 522 524-526 528-529 531-537 541 545 "
    "547 549-551 553 556 558 560 564-565 569 571-572 574 576 578-579 "
)

#: Modules whose tests run rows; some list those that are not run, as ELSEWHERE.
MODULES = (
    "broker_stub.test_cases",
    "broker_stub.zookeeper.test_client",
    "broker_stub.test_process",
    "broker_stub.replication.test_replication_cases",
    "cli.running_cluster.test_cli_cases",
    "core.cases.test_admin_cases",
    "core.cases.test_state_machine_cases",
    "core.cases.test_flow_cases",
    "core.cases.test_request_cases",
    "core.cases.test_deletion_cases",
    "core.cases.test_reassignment_cases",
    "provers.durability.test_fault_cases",
    "integration.test_replication",
    "runtime.test_controller_cases",
    "runtime.zookeeper.test_client_cases",
    "runtime.zookeeper.test_codecs",
)


def wanted() -> set[str]:
    found: set[str] = set()
    for part in IDS.split():
        first, _, last = part.partition("-")
        found.update(f"K{number:03}" for number in range(int(first), int(last or first) + 1))
    return found


def modules() -> list[ModuleType]:
    return [importlib.import_module(f"tests.{name}") for name in MODULES]


def listed() -> dict[str, str]:
    """Every row that is not run, and why."""
    found = dict(NOT_APPLICABLE)
    for module in modules():
        found |= getattr(module, "ELSEWHERE", {})
    return found


def test_every_row_is_in_one_file() -> None:
    counted = Counter(id_ for path in files() for id_ in load(path.name))
    assert len(wanted()) == 336
    assert counted.keys() == wanted()
    assert [id_ for id_, times in counted.items() if times > 1] == []
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files())
    assert lines == 336


def test_every_row_is_run_or_listed() -> None:
    run = {id_ for module in modules() for id_ in run_by(module)}
    assert wanted() - run - listed().keys() == set()
    assert run & listed().keys() == set(), "run, and yet listed as not run"
    assert listed().keys() - wanted() == set()


def _tests_of(name: str) -> dict[str, set[str]]:
    """By path, the tests of files of this name."""
    found = {}
    for path in CASES.parent.rglob(name.rpartition("/")[2]):
        if str(path).endswith(f"/{name}"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            defined = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            found[str(path)] = {n.name for n in defined}
    return found


_NAMED = re.compile(r"((?:\w+/)*test_\w+\.py)((?:::\w+)?)")


@pytest.mark.parametrize("id_", sorted(listed()))
def test_a_reason_names_tests_that_are_there(id_: str) -> None:
    reason = listed()[id_]
    assert len(reason) > 20
    for file, test in _NAMED.findall(reason):
        found = _tests_of(file)
        assert len(found) == 1, f"{file}: {sorted(found)}"
        assert not test or test[2:] in next(iter(found.values())), f"no {file}{test}"


def test_rows_are_found_where_tests_name_them() -> None:
    """The coverage above is only as good as this: parameters, names and docstrings count, nothing else does."""

    @pytest.mark.parametrize("row", [{"id": "K901"}, pytest.param({"id": "K902"}), "K903", ("K904", 1), 5])
    def test_some() -> None:
        """As in K905."""
        _ = "K906"

    def test_k907_named() -> None: ...

    def helper() -> None:
        """K908."""

    module = ModuleType("some")
    module.__dict__.update(test_some=test_some, test_k907_named=test_k907_named, helper=helper)
    assert run_by(module) == {"K901", "K902", "K903", "K904", "K905", "K907"}
    assert reference_rows.CASES.name == "cases"
