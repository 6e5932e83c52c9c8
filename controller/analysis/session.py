"""The Spark session of a report: an existing one, spark-submit's, or a local one that prints nothing."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from controller.analysis.errors import ReportError
from controller.child_processes import is_running
from controller.embedded_zookeeper.ensemble import find_java

APP_NAME = "state-change report"
#: Set by spark-submit for the Python program it runs.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
#: Bytes of log for which one more shuffle partition is worth its overhead.
_SHUFFLE_BYTES = 64 << 20
SHUFFLE_PARTITIONS_MIN, SHUFFLE_PARTITIONS_MAX = 8, 200
#: Smaller inputs are read before the JVM's better compiler has paid for itself; measured: a quarter of the processor
#: time saved for a million lines (160 MB).
QUICK_BYTES = 256 << 20
#: For smaller inputs a query takes longer to optimise and compile than to run; measured: a third of the time saved.
SMALL_BYTES = 16 << 20
LOG_NAME = "spark.log"
#: How a JVM's stack begins what caused an exception, the last one being the first cause.
_CAUSE = "Caused by: "
#: What it says where it could not unpack a library of its own, and what that means.
_NOT_UNPACKED = "no snappyjava in java.library.path"
_NO_ROOM = "no room for its temporary files in {}; the environment variable TMPDIR names another directory"
#: How long the JVM may take to end, and to write the archive of its classes.
_END_S = 300

_LOG4J2 = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n%ex
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


@contextmanager
def spark_session(
    master: str | None,
    log_dir: Path,
    *,
    quick: bool = False,
    archived: bool = False,
    jars: Callable[[], Sequence[Path]] = tuple,
) -> Iterator[SparkSession]:
    """A session with its own settings; a Spark that already runs is not stopped.

    ``quick``: the input is of at most QUICK_BYTES: a JVM that compiles with less care.
    ``archived``: use the archive of Spark's classes, or make it at the end, which takes some seconds once.
    ``jars``: tells which jars a Spark started here needs beside its own; with any there is no such archive.
    A local Spark started here logs to ``log_dir``/spark.log and prints nothing to the terminal.

    Raises EnvironmentFault without Java 17, ReportError if Spark does not start.
    """
    with ExitStack() as stack:
        context = SparkContext._active_spark_context
        if context is not None:
            base = SparkSession.builder.getOrCreate()
        elif _SUBMITTED in os.environ:
            builder = SparkSession.builder.appName(APP_NAME)
            base = (builder.master(master) if master else builder).getOrCreate()
            base.sparkContext.setLogLevel("ERROR")
            stack.callback(base.stop)
        else:
            base = stack.enter_context(_local_spark(master or "local[*]", log_dir, quick, archived, jars()))
        session = base.newSession()
        session.conf.set("spark.sql.session.timeZone", "UTC")
        session.conf.set("spark.sql.ansi.enabled", "true")
        yield session


def size_for(session: SparkSession, input_bytes: int) -> None:
    """Settings for the input: for little of it those that spare work, else how it is divided, if Spark runs locally."""
    if input_bytes <= SMALL_BYTES:
        spare_work(session)
        # The first rows of all would be found by a comparison that Spark compiles.
        session.conf.set("spark.sql.execution.topKSortFallbackThreshold", "0")
    elif (session.sparkContext.master or "").startswith("local"):
        wanted = min(SHUFFLE_PARTITIONS_MAX, max(SHUFFLE_PARTITIONS_MIN, input_bytes // _SHUFFLE_BYTES))
        session.conf.set("spark.sql.shuffle.partitions", str(wanted))
        session.conf.set("spark.sql.files.maxPartitionBytes", str(32 << 20))


def spare_work(session: SparkSession) -> None:
    """Settings for few rows."""
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.files.minPartitionNum", "1")
    session.conf.set("spark.sql.leafNodeDefaultParallelism", "1")


@contextmanager
def _local_spark(
    master: str, log_dir: Path, quick: bool, archived: bool, jars: Sequence[Path]
) -> Iterator[SparkSession]:
    with (
        tempfile.TemporaryDirectory(prefix="pctl-report-") as scratch,
        (log_dir / LOG_NAME).open("wb") as log,
    ):
        # The archive is for one class path.
        archive = ClassArchive.find() if archived and not jars else None
        conf = _local_conf(master, Path(scratch), quick, archive).setAll(_jar_settings(master, jars))
        gateway = _launch_whole(conf, log)
        try:
            with _own_ctrl_c():
                context = SparkContext(conf=conf, gateway=gateway)
            if master.startswith("local"):
                # By itself Spark runs workers by the first `python3` of the path, and refuses another version.
                context.pythonExec = sys.executable
            try:
                yield SparkSession.builder.config(conf=conf).getOrCreate()
            finally:
                context.stop()
        finally:
            whole = _end(gateway)
            if archive is not None:
                archive.keep(whole)


@contextmanager
def _own_ctrl_c() -> Iterator[None]:
    """PySpark takes SIGINT for itself when it starts: whoever waits for it to end in order would never hear of it."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class ClassArchive:
    """The JVM's archive of Spark's loaded classes (JEP 350): with it a JVM starts with less work.

    The first Spark that ends writes it, the next ones use it. A JVM checks that it fits and else does without: the name
    tells what it was made of, so that a JVM or a Spark of a later date does not look for a former one's for ever.
    """

    path: Path
    draft: Path | None

    @classmethod
    def find(cls) -> ClassArchive:
        java = os.path.realpath(find_java())
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        home_of_java = os.path.dirname(os.path.dirname(java))
        jars = sorted(Path(pyspark.__file__).with_name("jars").glob("*.jar"))
        stamps = [_stamp(file) for file in (Path(java), Path(home_of_java, "lib", "modules"), *jars)]
        name = f"spark-{_digest(java, pyspark.__file__)}-{_digest(*stamps)}.jsa"
        path = Path(home) / "partition-controller" / name
        for left in path.parent.glob(f"{name}.*"):
            process = left.suffix[1:]
            if not (process.isdecimal() and is_running(int(process))):
                left.unlink(missing_ok=True)
        return cls(path, None if path.exists() else path.with_name(f"{name}.{os.getpid()}"))

    @property
    def option(self) -> str:
        """The JVM's option; empty if there is no place for an archive."""
        if " " in str(self.path):
            return ""
        if self.draft is None:
            return f"-XX:SharedArchiveFile={self.path}"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            return ""
        return f"-XX:ArchiveClassesAtExit={self.draft}" if os.access(self.path.parent, os.W_OK) else ""

    def keep(self, whole: bool) -> None:
        """Give the archive its name, once the JVM that wrote it has ended; delete it if that was killed meanwhile."""
        if self.draft is None or not self.draft.exists():
            return
        if whole:
            for former in self.path.parent.glob(f"{self.path.name.rpartition('-')[0]}-*.jsa"):
                former.unlink(missing_ok=True)
            self.draft.replace(self.path)
        else:
            self.draft.unlink()


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _stamp(file: Path) -> str:
    """What a JVM compares of a file."""
    try:
        found = os.stat(file)
    except OSError:
        return str(file)
    return f"{file} {found.st_size} {found.st_mtime_ns}"


def _compiler_options(quick: bool) -> tuple[str, ...]:
    """Spark makes one long method of each stage, which the JVM would interpret."""
    always = ("-XX:-DontCompileHugeMethods",)
    if not quick:
        return always
    return (*always, "-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=2", "-XX:+UseSerialGC")


def _local_conf(master: str, scratch: Path, quick: bool, archive: ClassArchive | None) -> SparkConf:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J2)
    settings = {
        "spark.master": master,
        "spark.app.name": APP_NAME,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", "2g"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}"
        f' "-Djava.io.tmpdir={scratch}" "-Dderby.system.home={scratch}"'
        f" {' '.join(_compiler_options(quick))} {archive.option if archive else ''}",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        # The usual one, with checksums, starts a process (chmod) for each file and directory that it makes.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        # These tell where a column was made, at a price for each function of it.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.dataFrameQueryContext.enabled": "false",
        # The usual ones are of 32 MB: every sort begins by clearing one.
        **({"spark.buffer.pageSize": "1m"} if quick else {}),
        # Spark keeps a description of each plan, for a page that nobody sees.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.maxPlanStringLength": "1000",
        # Our JVM compiles methods of any length (see `_compiler_options`).
        "spark.sql.codegen.hugeMethodLimit": "65535",
    }
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def _jar_settings(master: str, jars: Sequence[Path]) -> list[tuple[str, str]]:
    if not jars:
        return []
    # Hadoop's client of S3 keeps what it uploads in files of this class, and of no other.
    common = ("spark.hadoop.fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    # By `spark.jars` executors in Spark's own process would have copies.
    if master.startswith("local"):
        return [common, ("spark.driver.extraClassPath", os.pathsep.join(map(str, jars)))]
    return [common, ("spark.jars", ",".join(path.as_uri() for path in jars))]


def _launch_whole(conf: SparkConf, log: IO[bytes]) -> Any:
    """As ``_launch``; Ctrl-C and SIGTERM in its midst come after it: PySpark forgets a JVM that it starts, which lives
    on."""
    if threading.current_thread() is not threading.main_thread():
        return _launch(conf, log)
    asked: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: asked.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        gateway = _launch(conf, log)
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.default_int_handler if handler is None else handler)
    try:
        for one in asked:
            signal.raise_signal(one)
    except BaseException:
        _end(gateway)
        raise
    return gateway


def _launch(conf: SparkConf, log: IO[bytes]) -> Any:
    """Start a JVM for Spark with the Java of `find_java`, and file names in UTF-8 in any locale."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(find_java())))
    wanted = {"JAVA_HOME": home, "LC_ALL": "C.UTF-8"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        # What ends this program's group, as `timeout` does, would end a JVM in it at once.
        own = {"stdout": log, "stderr": log, "process_group": 0}
        return launch_gateway(conf, own)  # type: ignore[no-untyped-call]
    except PySparkException as error:
        raise ReportError(f"Spark did not start; its log is {log.name}") from error
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _end(gateway: Any) -> bool:
    """End the JVM and remove it from PySpark, so that a later session starts a new one.

    Out: whether it ended by itself.
    """
    gateway.shutdown()
    if SparkContext._gateway is gateway:
        SparkContext._gateway = None
        SparkContext._jvm = None
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def first_line(error: BaseException) -> str:
    """What an exception of Spark says, without the stack; of one of the JVM its cause: no space, no memory."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, Py4JError) and len(lines) > 1:
        # The first line names the call, which says nothing to anybody.
        causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
        cause = (causes[-1] if causes else lines[1].removeprefix(": "))[:300]
        return _NO_ROOM.format(tempfile.gettempdir()) if _NOT_UNPACKED in cause else cause
    return next(iter(lines), type(error).__name__)[:300]
