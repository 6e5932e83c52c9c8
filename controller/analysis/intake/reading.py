"""From log files to typed records: every line is kept and classified, none is dropped silently.

Most lines are usual: a few comparisons tell that. Only the others are judged at length, with `classify`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  (Spark's own custom)
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from controller.analysis.intake.fields import NEEDED_BY, fields_kept
from controller.analysis.intake.files import reader
from controller.analysis.intake.screening import LINE_BYTES_MAX
from controller.analysis.local_files import LogFile
from proto.statelog.schema import (
    BROKER_ID,
    INT_FIELDS,
    LIST_FIELDS,
    SAMPLE_CHARS_MAX,
    SCHEMA_VERSION,
    STRING_FIELDS,
    STRINGS_REQUIRED,
    TEXT_CHARS_MAX,
    TS_END,
    TS_MIN,
)

OK, TORN, MALFORMED, NEWER = "ok", "torn", "malformed", "newer_schema"

#: The column in which the JSON parser puts lines that do not match the schema.
_CORRUPT = "_corrupt_record"
_JSON_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
#: A string field with a value that is not a string. Quotes inside JSON strings are escaped, so this matches keys only.
_STRING_NOT_STRING = rf'"({"|".join(STRING_FIELDS)})"\s*:\s*[^"\sn]'
#: A record that follows another one in the same line, after it has ended.
_SECOND_RECORD = r'\}\s*\{"schema"'
#: The beginning of every record; it has unescaped quotes, so it cannot occur inside a string either.
_RECORD_START = '{"schema"'


def _type_of(name: str) -> DataType:
    if name in LIST_FIELDS:
        return ArrayType(LongType())
    return StringType() if name in STRING_FIELDS else LongType()


LINE_TYPE = StructType(
    [
        *(StructField(name, _type_of(name)) for name in STRING_FIELDS),
        *(StructField(field.name, LongType()) for field in INT_FIELDS),
        *(StructField(name, _type_of(name)) for name in LIST_FIELDS),
        StructField(_CORRUPT, StringType()),
    ]
)


def read_lines(spark: SparkSession, files: Sequence[LogFile]) -> DataFrame:
    """Every line of the files.

    Out: ``raw`` (the bytes, as a string), ``file`` (its URL, percent-encoded: see `decoded`), ``block`` and
    ``line`` (ascending in the order of the file; not line numbers).

    Lines of LINE_BYTES_MAX are left out where all files are local: `check_files` tells of them.

    Raises AnalysisException if a file has vanished since it was listed (rotation): list again.
    """
    given = reader(spark).option("lineSep", "\n")
    # A little more: Spark counts the newline, and a byte order mark.
    if all(file.path.startswith("file:/") for file in files):
        given = given.option("mapreduce.input.linerecordreader.line.maxlength", str(LINE_BYTES_MAX + 16))
    lines = given.text([file.path for file in files])
    return lines.select(F.col("value").alias("raw"), *_place())


def _place() -> list[Column]:
    """Where a line is. For ``_metadata`` Spark copies each row once more, which these old functions spare."""
    return [
        F.input_file_name().alias("file"),
        F.input_file_block_start().alias("block"),
        F.monotonically_increasing_id().alias("line"),
    ]


def decoded(file: Column) -> Column:
    """``file`` of `read_lines` as LogFile.path. It is slow: use it on aggregated rows."""
    path = F.url_decode(F.replace(file, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(path, "^file:///", "file:/")


def classify(lines: DataFrame) -> DataFrame:
    """Parse and judge each line exactly, at several times the price of a JSON scan: for lines that are not usual.

    In: `read_lines`. Out: ``file``, ``block``, ``line``; ``status`` (ok, torn, malformed, newer_schema), ``problem``
    (null when ok; names the field), ``sample`` (the line's beginning, null when ok); and the record: ``ts`` as a
    timestamp and the other fields of the log except ``schema``, strings cut to TEXT_CHARS_MAX.
    """
    parsed = lines.withColumn("r", F.from_json("raw", LINE_TYPE, _JSON_OPTIONS)).withColumn("at", _at("r.ts"))
    judged = parsed.withColumn("problem", _problem()).withColumn("status", _status())
    return judged.select(*_typed(*(name for name in lines.columns if name != "raw")))


def _typed(*more: str | Column) -> list[str | Column]:
    """The columns that `classify` gives of judged lines, after ``more``."""
    ok = F.col("status") == OK
    fields = [F.substring(f"r.{name}", 1, size).alias(name) for name, size in TEXT_CHARS_MAX.items()]
    fields += [F.col(f"r.{name}").alias(name) for name in fields_kept(True) if name not in TEXT_CHARS_MAX]
    return [
        *more,
        "status",
        "problem",
        F.when(~ok, F.substring(F.make_valid_utf8(F.col("raw")), 1, SAMPLE_CHARS_MAX)).alias("sample"),
        F.col("at").alias("ts"),
        *fields,
    ]


def parse_lines(lines: DataFrame, *, complete: bool = False) -> DataFrame:
    """Every line, whatever is in it. In: `read_lines`. Out: `_narrow`; ``odd``: the line, if it is not usual."""
    return _narrow(_with_usual(lines), complete)


def _with_usual(lines: DataFrame) -> DataFrame:
    """Lines with their record ``r``, its time ``at``, and whether they are ``usual``."""
    raw = F.col("raw")
    parsed = lines.withColumn("r", F.from_json("raw", LINE_TYPE, _JSON_OPTIONS)).withColumn("at", _at("r.ts"))
    whole = raw.endswith("}") & ~raw.contains("}{") & F.is_valid_utf8(raw) & ~_unusual_string()
    return parsed.withColumn("usual", F.coalesce(_usual() & whole, F.lit(False)))


def read_converted(spark: SparkSession, targets: Sequence[str], complete: bool) -> DataFrame:
    """The lines that `convert` has written to ``targets``. Out: `_narrow`, of the lines that are in them."""
    places = {"file": StringType(), "line": LongType(), "odd": StringType(), "ts": TimestampType()}
    kept = {name: _type_of(name) for name in fields_kept(complete)}
    schema = StructType([StructField(name, kind) for name, kind in (*places.items(), *kept.items())])
    unknown = F.lit(None).cast("bigint")
    rows = spark.read.schema(schema).parquet(*(f"file:{target}" for target in targets))
    return rows.withColumns({"block": F.lit(0).cast("bigint"), "bytes": unknown, "digest": unknown})


def type_lines(lines: DataFrame) -> DataFrame:
    """Every line judged, with all fields of its record: `classify`, at little more than `parse_lines` costs.

    In: `read_lines`. Out: the columns of ``lines`` but ``raw``; ``digest``, ``status``, ``problem``, ``sample``, ``ts``
    as there; all fields of the log.
    """
    usual = _with_usual(lines)
    # Spark judges only where the condition holds.
    judged = usual.withColumn("problem", F.when(~F.col("usual"), _problem())).withColumn("status", _status())
    columns = [name for name in lines.columns if name != "raw"]
    return judged.select(
        *_typed(*columns, F.xxhash64("raw").alias("digest")), F.col("r.schema").alias("schema")
    )


def _narrow(parsed: DataFrame, complete: bool) -> DataFrame:
    """What the tables need of each line, and null where they do not; ``complete``: all fields of all kinds.

    Out: ``file``, ``block``, ``line``; ``bytes`` (with its newline) and ``digest``, where known; ``odd`` (the line, to
    be judged by `classify`, null if it is usual); and of a usual line its record: as `classify`, but with fields only
    for kinds of which a table needs them.
    """
    usual, kind, raw = F.col("usual"), F.col("r.kind"), F.col("raw")
    fields = []
    for name, kinds in fields_kept(complete).items():
        kept = usual if kinds is None else usual & kind.isin(*kinds)
        fields.append(F.when(kept, F.col(f"r.{name}")).alias(name))
    return parsed.select(
        "file",
        "block",
        "line",
        (F.octet_length(raw) + 1).cast("bigint").alias("bytes"),
        F.xxhash64(raw).alias("digest"),
        F.when(~usual, raw).alias("odd"),
        F.when(usual, F.col("at")).alias("ts"),
        *fields,
    )


def _at(ts: str) -> Column:
    return F.expr(f"try_cast({ts} as timestamp)")


def mark_copies(lines: DataFrame) -> DataFrame:
    """With ``copy``: whether an earlier file (by name) has the line, too: a copy of a directory read with the original.

    A line that one file has n times stays n times. In: `parse_lines`.
    """
    same = ["digest", "ts"]
    within_file = Window.partitionBy(*same, "file").orderBy("block", "line")
    over_files = Window.partitionBy(*same, "nth").orderBy("file")
    nth = lines.repartition(*same).withColumn("nth", F.row_number().over(within_file))
    return nth.withColumn("copy", F.row_number().over(over_files) > 1).drop("nth")


def _status() -> Column:
    problem = F.col("problem")
    return (
        F.when(problem.isNull(), F.lit(OK))
        .when(problem == TORN, F.lit(TORN))
        .when(_newer(), F.lit(NEWER))
        .otherwise(F.lit(MALFORMED))
    )


def _newer() -> Column:
    """Whether a later version has written the line; null where that cannot be told."""
    return _closes() & (F.col("r.schema") > SCHEMA_VERSION)


def _closes() -> Column:
    raw = F.col("raw")
    return raw.endswith("}") | raw.endswith("}\r")


def _usual() -> Column:
    """Whether all fields are as the schema says; null or false if not. One comparison a field."""

    def of(name: str) -> Column:
        return F.col(f"r.{name}")

    ts, at, kind = of("ts"), F.col("at"), of("kind")
    tests = [
        of(_CORRUPT).isNull(),
        of("schema") <= SCHEMA_VERSION,
        (F.substring(ts, 11, 1) == "T") & (ts.endswith("Z") | ts.endswith("+00:00")),
        (at >= F.lit(TS_MIN).cast("timestamp")) & (at < F.lit(TS_END).cast("timestamp")),
        of("role").isin("controller", "broker"),
        of("cause").isNotNull(),
        # Read, so that Spark parses them: they must be lists of integers.
        *(F.coalesce(F.size(of(name)), F.lit(0)) >= -1 for name in LIST_FIELDS),
    ]
    for name, size in TEXT_CHARS_MAX.items():
        tests.append(of(name).isNull() | (F.octet_length(of(name)) <= size))
    for field in INT_FIELDS:
        within = of(field.name).between(F.lit(field.low), F.lit(field.high))
        tests.append(within if field.required else of(field.name).isNull() | within)
    for name, kinds in NEEDED_BY.items():
        tests.append(of(name).isNotNull() | ~kind.isin(*kinds))
    tests.append((kind != "leader") | (of("from").rlike(BROKER_ID) & of("to").rlike(BROKER_ID)))
    return reduce(and_, tests)


def _problem() -> Column:
    """The first problem of the line, null if there is none."""
    raw, corrupt = F.col("raw"), F.col(f"r.{_CORRUPT}").isNotNull()
    opens, closes = raw.startswith("{"), _closes()
    is_json = F.try_parse_json(raw).isNotNull()
    unreadable = (
        F.when(F.locate(_RECORD_START, raw, 2) > 0, F.lit("two records in one line"))
        .when(opens & ~closes, F.lit(TORN))
        .when(~F.is_valid_utf8(raw), F.lit("not UTF-8"))
        .when(~is_json, F.lit("not JSON"))
        .when(~opens, F.lit("not a JSON object"))
        .otherwise(_wrong_type())
    )
    return (
        F.when(raw.isin("", "\r"), F.lit("empty line"))
        .when(_newer(), F.concat(F.lit("schema version "), F.col("r.schema")))
        .when(corrupt, unreadable)
        .when(~closes, F.lit("text after the record"))
        .when(raw.rlike(_SECOND_RECORD), F.lit("two records in one line"))
        .when(~F.is_valid_utf8(raw), F.lit("not UTF-8"))
        .when(_unusual_string() & raw.rlike(_STRING_NOT_STRING), _not_a_string())
        .otherwise(F.coalesce(_missing(), _out_of_range(), _kind_incomplete()))
    )


def _not_a_string() -> Column:
    return F.concat(F.regexp_extract("raw", _STRING_NOT_STRING, 1), F.lit(": not a string"))


def _unusual_string() -> Column:
    """Whether the value of a string field may be another type's, which Spark turned into a string.

    Tells by the value where it can: numbers, booleans, lists and objects have few beginnings.
    """

    def unusual(name: str) -> Column:
        value = F.col(f"r.{name}")
        like_another = (
            (value < ":") | value.startswith("{") | value.startswith("[") | value.isin("true", "false")
        )
        return like_another & ~F.col("raw").contains(f'"{name}":"')

    return F.coalesce(reduce(or_, (unusual(name) for name in STRING_FIELDS)), F.lit(False))


def _wrong_type() -> Column:
    """The field with a wrong type, for a JSON object that has one."""
    chain: list[Column] = []
    for field in INT_FIELDS:
        given = F.get_json_object("raw", f"$.{field.name}").isNotNull()
        chain.append(
            F.when(F.col(f"r.{field.name}").isNull() & given, F.lit(f"{field.name}: not an integer"))
        )
    for name in LIST_FIELDS[1:]:
        given = F.get_json_object("raw", f"$.{name}").isNotNull()
        chain.append(F.when(F.col(f"r.{name}").isNull() & given, F.lit(f"{name}: not a list of integers")))
    return F.coalesce(*chain, F.lit(f"{LIST_FIELDS[0]}: not a list of integers"))


def _missing() -> Column:
    required = [field.name for field in INT_FIELDS if field.required] + list(STRINGS_REQUIRED)
    return F.coalesce(*(F.when(F.col(f"r.{name}").isNull(), F.lit(f"{name}: missing")) for name in required))


def _out_of_range() -> Column:
    ts, at, role = F.col("r.ts"), F.col("at"), F.col("r.role")
    well_formed = (F.substring(ts, 11, 1) == "T") & (ts.endswith("Z") | ts.endswith("+00:00"))
    chain = [
        F.when(at.isNull() | ~well_formed, F.lit("ts: not a time in UTC")),
        F.when(
            (at < F.lit(TS_MIN).cast("timestamp")) | (at >= F.lit(TS_END).cast("timestamp")),
            F.lit("ts: out of range"),
        ),
        F.when(~role.isin("controller", "broker"), F.lit("role: not controller or broker")),
    ]
    for field in INT_FIELDS:
        value = F.col(f"r.{field.name}")
        chain.append(
            F.when(~value.between(F.lit(field.low), F.lit(field.high)), F.lit(f"{field.name}: out of range"))
        )
    return F.coalesce(*chain)


def _kind_incomplete() -> Column:
    kind, chain = F.col("r.kind"), []
    for name, kinds in NEEDED_BY.items():
        chain.append(F.when(F.col(f"r.{name}").isNull() & kind.isin(*kinds), F.lit(f"{name}: missing")))
    for name in ("from", "to"):
        foreign = ~F.col(f"r.{name}").rlike(BROKER_ID)
        chain.append(F.when((kind == "leader") & foreign, F.lit(f"{name}: not a broker id")))
    return F.coalesce(*chain)
