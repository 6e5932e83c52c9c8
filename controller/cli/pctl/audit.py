"""``pctl audit``: whether brokers hold what they were told."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from controller.cli.common.options import Options, Verb, on_cluster
from controller.cli.common.output import note, print_data, print_rows
from controller.cli.common.requests import ask
from controller.runtime.zookeeper.session import Session
from proto.gen import inspection_pb2 as pb

#: Exit codes beside 0.
DIFFERENT, NOT_ALL_ASKED = 1, 3
_VERDICTS = {
    pb.AUDIT_NOT_YET: "not asked yet",
    pb.AUDIT_EQUAL: "equal",
    pb.AUDIT_DIFFERENT: "different",
    pb.AUDIT_PENDING: "pending",
    pb.AUDIT_UNREACHABLE: "not reached",
    pb.AUDIT_CANNOT: "cannot be asked",
}
_BROKER_COLUMNS = ("broker", "verdict", "differences", "compared_s_ago", "why")
_PROBLEM_COLUMNS = ("topic", "partition", "broker", "kind", "what", "mend")


@click.command(cls=Verb)
@click.option("--topic", "topics", multiple=True, help="only this topic; may be repeated")
@click.option("--recorded", is_flag=True, help="what the controller's last looks found; ask no broker now")
@click.pass_obj
@on_cluster
async def audit(options: Options, session: Session, topics: tuple[str, ...], recorded: bool) -> None:
    """Compare what each broker holds with what the controller told it.

    Exit codes: 0 all equal, 1 differences or refused partitions (named), 3 not all brokers could be asked.
    """
    request = pb.AuditRequest(topics=topics, recorded=recorded)
    answer = await ask(options, session, "Audit", request)
    brokers = [_broker(found) for found in answer.brokers]
    problems = [_problem(found) for found in answer.problems]
    if options.output == "table":
        print_rows(brokers, _BROKER_COLUMNS, options.output)
        if problems:
            click.echo()
            print_rows(problems, _PROBLEM_COLUMNS, options.output)
    else:
        print_data({"brokers": brokers, "problems": problems}, options.output)
    if answer.problems_left:
        note(f"pctl: {answer.problems_left} more are not shown: name topics")
    sys.exit(_exit_code(answer))


def _exit_code(answer: Any) -> int:
    if answer.problems or any(found.verdict == pb.AUDIT_DIFFERENT for found in answer.brokers):
        return DIFFERENT
    return 0 if all(found.verdict == pb.AUDIT_EQUAL for found in answer.brokers) else NOT_ALL_ASKED


def _broker(found: Any) -> dict[str, Any]:
    why = found.why
    if found.topics_left:
        why = f"{found.topics_left} more topics differ and are compared later"
    return {
        "broker": found.broker_id,
        "verdict": _VERDICTS[found.verdict],
        "differences": found.differences,
        "compared_s_ago": round(max(time.time() - found.asked_at_ms / 1000, 0))
        if found.asked_at_ms
        else None,
        "why": why,
    }


def _problem(found: Any) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "partition": found.partition,
        "broker": found.broker_id,
        "kind": found.kind,
        "what": found.what,
        "mend": found.mend,
    }
