"""From log files to typed records: every line is kept and classified, none is dropped silently.

The classified lines are written once, as Parquet, to a staging directory, and all tables are made from that:
parsing text is the most expensive step of the job, and ten million lines may not fit in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  (Spark's own custom)
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from controller.analysis.files import reader
from controller.analysis.local_files import LogFile
from proto.statelog.schema import (
    BROKER_ID,
    INT_FIELDS,
    KINDS,
    LIST_FIELD,
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
_STRING_NOT_STRING = rf'"({"|".join(STRING_FIELDS)})"\s*:\s*[^"\s]'
#: The beginning of every record; it has unescaped quotes, so it cannot occur inside a string either.
_RECORD_START = '{"schema"'


def _type_of(name: str) -> DataType:
    if name == LIST_FIELD:
        return ArrayType(LongType())
    return StringType() if name in STRING_FIELDS else LongType()


_LINE_TYPE = StructType(
    [
        *(StructField(name, _type_of(name)) for name in STRING_FIELDS),
        *(StructField(field.name, LongType()) for field in INT_FIELDS),
        StructField(LIST_FIELD, _type_of(LIST_FIELD)),
        StructField(_CORRUPT, StringType()),
    ]
)


def read_lines(spark: SparkSession, files: Sequence[LogFile]) -> DataFrame:
    """Every line of the files.

    Out: ``raw`` (the bytes, as a string), ``file`` (its URL, percent-encoded: see `decoded`), ``block`` and
    ``line`` (ascending in the order of the file; not line numbers).

    Raises AnalysisException if a file has vanished since it was listed (rotation): list again.
    """
    lines = reader(spark).option("lineSep", "\n").text([file.path for file in files])
    return lines.select(
        F.col("value").alias("raw"),
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("line"),
    )


def decoded(file: Column) -> Column:
    """``file`` of `read_lines` as LogFile.path. It is slow: use it on aggregated rows."""
    return F.url_decode(F.replace(file, F.lit("+"), F.lit("%2B")))


def classify(lines: DataFrame) -> DataFrame:
    """Parse and classify each line.

    In: `read_lines`. Out: ``file``, ``block``, ``line``; ``bytes`` (with its newline), ``digest`` of the raw
    line; ``status`` (ok, torn, malformed, newer_schema), ``problem`` (null when ok; names the field),
    ``sample`` (the line's beginning, null when ok); and the record: ``ts`` as a timestamp and the other
    fields of the log except ``schema`` and ``isr``, strings cut to TEXT_CHARS_MAX.
    """
    parsed = lines.withColumn("r", F.from_json("raw", _LINE_TYPE, _JSON_OPTIONS)).withColumn(
        "at", F.expr("try_cast(r.ts as timestamp)")
    )
    verdict = parsed.withColumn("problem", _problem()).withColumn("status", _status())
    ok = F.col("status") == OK
    fields = [F.substring(f"r.{name}", 1, size).alias(name) for name, size in TEXT_CHARS_MAX.items()]
    fields += [F.col(f"r.{field.name}").alias(field.name) for field in INT_FIELDS if field.name != "schema"]
    return verdict.select(
        "file",
        "block",
        "line",
        (F.octet_length("raw") + 1).cast("bigint").alias("bytes"),
        F.xxhash64("raw").alias("digest"),
        "status",
        "problem",
        F.when(~ok, F.substring(F.make_valid_utf8(F.col("raw")), 1, SAMPLE_CHARS_MAX)).alias("sample"),
        F.col("at").alias("ts"),
        *fields,
    )


def without_copies(records: DataFrame) -> DataFrame:
    """Drop lines that another file has too (a copy of a directory read together with the original).

    A line that one file has n times stays n times. In and out: `classify`.
    """
    same = ["digest", "ts"]
    within_file = Window.partitionBy(*same, "file").orderBy("block", "line")
    return (
        records.repartition(*same)
        .withColumn("nth", F.row_number().over(within_file))
        .dropDuplicates([*same, "nth"])
        .drop("nth")
    )


def _status() -> Column:
    problem = F.col("problem")
    return (
        F.when(problem.isNull(), F.lit(OK))
        .when(problem == TORN, F.lit(TORN))
        .when(problem.startswith("schema version "), F.lit(NEWER))
        .otherwise(F.lit(MALFORMED))
    )


def _problem() -> Column:
    """The first problem of the line, null if there is none."""
    raw, schema, corrupt = F.col("raw"), F.col("r.schema"), F.col(f"r.{_CORRUPT}").isNotNull()
    opens, closes = raw.startswith("{"), raw.endswith("}") | raw.endswith("}\r")
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
        .when(closes & (schema > SCHEMA_VERSION), F.concat(F.lit("schema version "), schema))
        .when(corrupt, unreadable)
        .when(~closes, F.lit("text after the record"))
        .when(F.locate(_RECORD_START, raw, 2) > 0, F.lit("two records in one line"))
        .when(~F.is_valid_utf8(raw), F.lit("not UTF-8"))
        .when(
            _unusual_string() & raw.rlike(_STRING_NOT_STRING),
            F.concat(F.regexp_extract(raw, _STRING_NOT_STRING, 1), F.lit(": not a string")),
        )
        .otherwise(F.coalesce(_missing(), _out_of_range(), _kind_incomplete()))
    )


def _unusual_string() -> Column:
    """Whether a string field is not formatted as our writer does; most lines then skip the expensive check."""
    raw = F.col("raw")
    unusual = [F.col(f"r.{name}").isNotNull() & ~raw.contains(f'"{name}":"') for name in STRING_FIELDS]
    return reduce(or_, unusual)


def _wrong_type() -> Column:
    """The field with a wrong type, for a JSON object that has one."""
    chain: list[Column] = []
    for field in INT_FIELDS:
        given = F.get_json_object("raw", f"$.{field.name}").isNotNull()
        chain.append(
            F.when(F.col(f"r.{field.name}").isNull() & given, F.lit(f"{field.name}: not an integer"))
        )
    return F.coalesce(*chain, F.lit(f"{LIST_FIELD}: not a list of integers"))


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
    for name in dict.fromkeys(name for names in KINDS.values() for name in names):
        kinds = [known for known, names in KINDS.items() if name in names]
        chain.append(F.when(F.col(f"r.{name}").isNull() & kind.isin(*kinds), F.lit(f"{name}: missing")))
    for name in ("from", "to"):
        chain.append(
            F.when(
                (kind == "leader") & ~F.col(f"r.{name}").rlike(BROKER_ID), F.lit(f"{name}: not a broker id")
            )
        )
    return F.coalesce(*chain)
