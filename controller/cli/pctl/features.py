"""``pctl features``: finalized feature levels, as with kafka-features (KIP-584)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from controller.cli.common.confirmation import confirm, dry_run_option, yes_option
from controller.cli.common.options import Options, Verb, Verbs, on_cluster
from controller.cli.common.output import note, print_fields, print_rows
from controller.cli.common.requests import ask, refusals, report
from controller.cli.computed.dry_run import print_dry_run, run_on_copy
from controller.core.names import counted, number_in, shown
from controller.core.requests.features import UpgradeType
from controller.runtime.zookeeper.session import Session
from proto.gen import features_pb2 as pb

_COLUMNS = ("feature", "supported_min", "supported_max", "finalized")
#: Kafka's levels have 16 bits.
LEVEL_MAX = 2**15 - 1


@click.group(cls=Verbs)
def features() -> None:
    """Features of the cluster: describe, upgrade, downgrade, disable."""


def _changing(metavar: str, help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            yes_option,
            dry_run_option,
            click.option("--feature", "named", multiple=True, required=True, metavar=metavar, help=help_text),
        ):
            command = option(command)
        return command

    return decorate


_levels = _changing("NAME=LEVEL", "this feature; may be repeated")
_names = _changing("NAME", "this feature; may be repeated")
_unsafe = click.option(
    "--unsafe",
    is_flag=True,
    help="even if a broker does not support it; the broker is ignored when it registers again",
)


def parse_levels(texts: Sequence[str]) -> dict[str, int]:
    """Levels by name. Raises UsageError for a text that is not NAME=LEVEL, and for a feature named twice."""
    levels: dict[str, int] = {}
    for text in texts:
        name, equals, level = text.rpartition("=")
        if not (equals and name and (found := number_in(level, LEVEL_MAX))):
            raise click.UsageError(
                f"--feature {shown(text)}: must be NAME=LEVEL, with a level from 1 to {LEVEL_MAX}"
            )
        if name in levels:
            raise click.UsageError(f"--feature {name!r}: named twice")
        levels[name] = found
    return levels


@features.command("describe", cls=Verb)
@click.pass_obj
@on_cluster
async def describe(options: Options, session: Session) -> None:
    """Show the levels that every registered broker supports, and the finalized levels."""
    answer = await ask(options, session, "DescribeFeatures", pb.DescribeFeaturesRequest())
    rows = _rows(answer, {})
    if options.output == "table":
        epoch = answer.finalized_epoch
        print_fields({"finalized_epoch": epoch if epoch >= 0 else None}, "table")
    print_rows([{**row, "epoch": answer.finalized_epoch} for row in rows], _shown(options), options.output)


def _shown(options: Options) -> tuple[str, ...]:
    return _COLUMNS if options.output == "table" else (*_COLUMNS, "epoch")


@features.command("upgrade", cls=Verb)
@_levels
@click.pass_obj
@on_cluster
async def upgrade(
    options: Options, session: Session, named: tuple[str, ...], dry_run: bool, yes: bool
) -> None:
    """Finalize features at a level, or raise finalized features to it."""
    await _update(options, session, parse_levels(named), UpgradeType.UPGRADE, dry_run, yes)


@features.command("downgrade", cls=Verb)
@_levels
@_unsafe
@click.pass_obj
@on_cluster
async def downgrade(
    options: Options, session: Session, named: tuple[str, ...], dry_run: bool, yes: bool, unsafe: bool
) -> None:
    """Lower finalized features to a level."""
    await _update(options, session, parse_levels(named), _down(unsafe), dry_run, yes)


@features.command("disable", cls=Verb)
@_names
@_unsafe
@click.pass_obj
@on_cluster
async def disable(
    options: Options, session: Session, named: tuple[str, ...], dry_run: bool, yes: bool, unsafe: bool
) -> None:
    """Remove finalized features."""
    for name in named:
        if not name or named.count(name) > 1:
            raise click.UsageError(f"--feature {name!r}: must be a name, given once")
    await _update(options, session, dict.fromkeys(named, 0), _down(unsafe), dry_run, yes)


def _down(unsafe: bool) -> UpgradeType:
    return UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE


async def _update(
    options: Options,
    session: Session,
    levels: Mapping[str, int],
    kind: UpgradeType,
    dry_run: bool,
    yes: bool,
) -> None:
    updates = [
        pb.FeatureUpdate(name=name, max_version_level=level, upgrade_type=kind.value)  # type: ignore[arg-type]
        for name, level in levels.items()
    ]
    request = pb.UpdateFeaturesRequest(updates=updates)
    if dry_run:
        trial = await run_on_copy(options, session, ("UpdateFeatures", request))
        print_dry_run(options, trial)
        sys.exit(report(refusals((result.name, result) for result in trial.answers[0].results)))
    described = await ask(options, session, "DescribeFeatures", pb.DescribeFeaturesRequest())
    rows = [row for row in _rows(described, levels) if row["feature"] in levels]
    print_rows(rows, (*_COLUMNS, "wanted"), options.output)
    named = counted(len(levels), "feature")
    confirm(f"{kind.name.replace('_', ' ').capitalize()} of {named} as shown?", yes=yes)
    answer = await ask(options, session, "UpdateFeatures", request)
    refused = refusals((result.name, result) for result in answer.results)
    note(f"{len(levels) - len(refused)} of {named} updated")
    sys.exit(report(refused))


def _rows(answer: Any, wanted: Mapping[str, int]) -> list[dict[str, Any]]:
    """A row for each feature that is supported, finalized or wanted."""
    supported = {f.name: f for f in answer.supported}
    finalized = {f.name: f.max_version_level for f in answer.finalized}
    return [
        {
            "feature": name,
            "supported_min": supported[name].min_version_level if name in supported else None,
            "supported_max": supported[name].max_version_level if name in supported else None,
            "finalized": finalized.get(name),
            "wanted": wanted.get(name),
        }
        for name in sorted(supported.keys() | finalized.keys() | wanted.keys())
    ]
