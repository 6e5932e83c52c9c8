"""Shared by every verb of pctl: the global options, the session with ZooKeeper, ``-o`` anywhere, ``--watch``."""

from __future__ import annotations

import asyncio
import io
import math
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click
from click.types import StringParamType

from controller.cli.common.output import fail, note
from controller.errors import ControllerError

if TYPE_CHECKING:
    # Imported where a session begins: --help needs none.
    from controller.runtime.zookeeper.session import Session
    from proto.security.grpc_channels import GrpcTls
    from proto.zookeeper_access import ZooKeeperAccess

STYLES = ("table", "json", "yaml", "tsv")
#: Types of options and arguments.
BROKER = PARTITION = click.IntRange(0, 2**31 - 1)
EPOCH = OFFSET = click.IntRange(0, 2**63 - 1)
P = ParamSpec("P")


class _Path(click.Path):
    """A path that is not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("must name a file or a directory", param, ctx)
        return super().convert(value, param, ctx)


class _TextPath(_Path):
    """One that can be printed, and that Spark can be told."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        try:
            str(found).encode()
        except UnicodeEncodeError:
            self.fail(f"{value!r}: must be UTF-8", param, ctx)
        return found


class _SparkPath(_TextPath):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        # Before its client is fetched.
        if re.fullmatch(r"s3a://(/.*)?", found):
            self.fail(f"{value!r}: must be s3a://BUCKET/...", param, ctx)
        return found


class _SparkMaster(StringParamType):
    """One that Spark knows. Of another it says only that it did not start."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not re.fullmatch(r"local(-cluster)?(\[[^]]+\])?|yarn|(spark|k8s)://.+", value):
            self.fail(f"{value!r}: must be local, local[N], yarn, spark://HOST:PORT or k8s://...", param, ctx)
        return value


SPARK_MASTER = _SparkMaster()
FILE, TEXT_FILE = _Path(path_type=Path), _TextPath(path_type=Path)
#: A directory of any file system that Spark reaches: a ``Path`` would make one slash of two.
SPARK_DIRECTORY = _SparkPath(path_type=str)


offline = click.option("--offline", is_flag=True, help="use ZooKeeper alone, even if a controller is active")


class Seconds(click.FloatRange):
    """A range of numbers that excludes nan."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r}: must be a number", param, ctx)
        return seconds


BOOTSTRAP_ONLY = "--bootstrap: brokers answer only brokers, partitions and topics list"
#: Seconds between two rounds of ``--watch``, by default and at least.
WATCH_S, WATCH_MIN_S = 2.0, 0.1
_CLEAR = "\x1b[2J\x1b[H"


class Options:
    """The global options."""

    def __init__(
        self,
        zookeeper: str,
        output: str,
        timeout_s: float,
        access: ZooKeeperAccess | None = None,
        tls: GrpcTls | None = None,
        bootstrap: Sequence[str] = (),
    ) -> None:
        #: Addresses of brokers that are asked instead of ZooKeeper and the controller; mostly none.
        self.bootstrap = bootstrap
        self.zookeeper, self.output, self.timeout_s = zookeeper, output, timeout_s
        #: TLS to controllers and brokers; None: without.
        self.tls = tls
        self._access = access
        #: Seconds between two prints of a listing; None: print it once.
        self.watch_s: float | None = None

    def connected(self) -> AbstractAsyncContextManager[Session]:
        """A session with ZooKeeper. Raises EnvironmentFault."""
        from controller.runtime.zookeeper import cluster_reader
        from proto.zookeeper_access import OPEN_ACCESS

        return cluster_reader.connected(
            self.zookeeper,
            int(self.timeout_s * 1000),
            create_chroot=False,
            access=self._access or OPEN_ACCESS,
        )

    def message_of(self, error: Exception) -> str:
        """The message for an expected failure."""
        return str(error) or f"the connection to ZooKeeper at {self.zookeeper} was lost"


def on_cluster(
    work: Callable[Concatenate[Options, Session, P], Awaitable[None]],
) -> Callable[Concatenate[Options, P], None]:
    """Run a coroutine with a session; every expected failure is printed as one line and ends with exit code 1.

    With ``--watch`` the coroutine is run repeatedly, and a failure is printed without ending the program.
    """

    @wraps(work)
    def run(options: Options, /, *args: P.args, **kwargs: P.kwargs) -> None:
        from controller.runtime.zookeeper.session import ConnectionLossError

        _fail_with_bootstrap(options)
        if options.watch_s is not None:
            with suppress(KeyboardInterrupt):
                asyncio.run(
                    _repeat(options, options.watch_s, lambda session: work(options, session, *args, **kwargs))
                )
            return

        async def connected() -> None:
            async with options.connected() as session:
                await work(options, session, *args, **kwargs)

        try:
            asyncio.run(connected())
        except (ControllerError, ConnectionLossError) as error:
            fail(options.message_of(error))

    return run


def _fail_with_bootstrap(options: Options) -> None:
    if options.bootstrap:
        raise click.UsageError(BOOTSTRAP_ONLY)


async def _repeat(options: Options, every_s: float, work: Callable[[Session], Awaitable[None]]) -> None:
    """Run rounds until interrupted; a new session is opened when one has ended."""
    from controller.runtime.zookeeper.session import ConnectionLossError

    printer = _Rounds(options.output, every_s)
    while True:
        try:
            async with options.connected() as session:
                while not session.over:
                    await _round(options, printer, work(session))
                    await asyncio.sleep(every_s)
        except (ControllerError, ConnectionLossError) as error:
            printer.show("", f"pctl: {options.message_of(error)}\n")
            await asyncio.sleep(every_s)


async def _round(options: Options, printer: _Rounds, work: Awaitable[None]) -> None:
    """Run one round and show all that it prints, its failure included."""
    from controller.runtime.zookeeper.session import ConnectionLossError

    printed, errors = _Captured(printer.terminal), _Captured(terminal=False)
    limit_s = 2 * options.timeout_s
    with redirect_stdout(printed), redirect_stderr(errors):
        try:
            # Who is asked and is silent is named after --timeout.
            async with asyncio.timeout(limit_s):
                await work
        except SystemExit:
            pass  # The reason is already printed.
        except TimeoutError:
            note(
                f"pctl: ZooKeeper at {options.zookeeper} or the controller gave no answer within {limit_s:g} s"
            )
        except (ControllerError, ConnectionLossError) as error:
            note(f"pctl: {options.message_of(error)}")
    printer.show(printed.text(), errors.text())


class _Captured(io.TextIOWrapper):
    """Captures text and bytes; says that it is a terminal if the real output is one."""

    def __init__(self, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        self.flush()
        self.seek(0)
        return self.read()


class _Rounds:
    """Prints rounds: on a terminal each replaces the previous one, else they follow each other."""

    def __init__(self, style: str, every_s: float) -> None:
        self._style, self._every_s = style, every_s
        self.terminal = sys.stdout.isatty()
        self._shown = 0

    def show(self, printed: str, errors: str) -> None:
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        if self.terminal:
            click.echo(f"{_CLEAR}{now}  every {self._every_s:g} s, Ctrl-C ends\n")
        elif self._style == "yaml":
            click.echo("---")
        else:
            # JSON documents follow each other, separated by an empty line.
            click.echo("\n" * (self._shown > 0) + (f"{now}\n" if self._style == "table" else ""), nl=False)
        self._shown += 1
        click.echo(printed, nl=False)
        if errors:
            click.echo(errors, nl=False, err=True)


def _check_text(command: click.Command, context: click.Context, raw: Collection[str]) -> None:
    """Raises UsageError for an argument that is not UTF-8. ``raw``: parameters that may be any bytes."""
    for parameter in command.params:
        value = context.params.get(parameter.name or "")
        for text in (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ():
            if isinstance(text, str) and parameter.name not in raw:
                try:
                    text.encode()
                except UnicodeEncodeError:
                    shown = parameter.get_error_hint(context)
                    raise click.UsageError(f"{shown}: {text!r}: must be UTF-8", context) from None


def _check_once(command: click.Command, context: click.Context, args: list[str]) -> None:
    """Raises UsageError for an option with a value that is given twice: one of both would be passed over in silence.
    How it is shown, and how often, is no matter."""
    _, _, given = command.make_parser(context).parse_args(args=args)
    for parameter, times in Counter(given).items():
        if (
            isinstance(parameter, click.Option)
            and times > 1
            and parameter.expose_value
            and not (parameter.multiple or parameter.is_flag)
        ):
            raise click.UsageError(f"{parameter.opts[-1]}: is given {times} times, takes one value", context)


def _set_output(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.find_object(Options).output = value  # type: ignore[union-attr]


def _output_option() -> click.Option:
    return click.Option(
        ["-o", "--output"],
        type=click.Choice(STYLES),
        callback=_set_output,
        expose_value=False,
        help="table, json, yaml or tsv",
    )


class _WithExamples(click.Command):
    """Help ends with examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from controller.cli.pctl_examples import lines_for

        super().format_epilog(ctx, formatter)
        if found := lines_for(ctx.command_path):
            with formatter.section("Examples"):
                for line in found:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class Verb(_WithExamples):
    """A command that accepts ``-o`` after its name too. ``raw``: parameters that need not be UTF-8."""

    def __init__(self, *args: Any, raw: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._raw = raw
        self.params.append(_output_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            root = ctx.find_root()
            if any(error.option_name in option.opts for option in root.command.params):
                hint = f"give it before the verb: {root.info_name} {error.option_name} ..."
                raise click.UsageError(f"{error.option_name}: {hint}", ctx) from None
            raise
        _check_text(self, ctx, self._raw)
        if not ctx.resilient_parsing:
            _check_once(self, ctx, given)
        return rest


def _set_watch(context: click.Context, _: click.Parameter, value: float | None) -> None:
    context.find_object(Options).watch_s = value  # type: ignore[union-attr]


class Listing(Verb):
    """A read-only verb; ``-w [SECONDS]`` repeats it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_watch_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _with_seconds(args))


def _watch_option() -> click.Option:
    return click.Option(
        ["-w", "--watch"],
        type=Seconds(WATCH_MIN_S, 86_400),
        callback=_set_watch,
        expose_value=False,
        metavar="[SECONDS]",
        help=f"print again every SECONDS [default: {WATCH_S:g}] until Ctrl-C",
    )


def _with_seconds(args: Sequence[str]) -> list[str]:
    """With the default seconds inserted if no number follows ``-w``."""
    spelled: list[str] = []
    for place, word in enumerate(args):
        spelled.append(word)
        if word in ("-w", "--watch") and not _is_number(list(args[place + 1 : place + 2])):
            spelled.append(f"{WATCH_S:g}")
    return spelled


def _is_number(words: list[str]) -> bool:
    try:
        float(words[0])
    except (IndexError, ValueError):
        return False
    return True


class Verbs(_WithExamples, click.Group):
    command_class = Verb
    group_class = type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not any(parameter.name == "output" for parameter in self.params):
            self.params.append(_output_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        _check_text(self, ctx, ())
        return rest


class ListingVerbs(Verbs):
    """Verbs, and without one a listing that ``-w [SECONDS]`` repeats."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"invoke_without_command": True, **kwargs})
        self.params.append(_watch_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _with_seconds(args))
