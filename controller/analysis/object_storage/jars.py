"""Jars of Hadoop's client of S3 (``s3a://``), of the version of Hadoop that PySpark has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from controller.analysis.errors import ReportError
from controller.analysis.local_files import S3_SCHEME
from controller.analysis.progress import Progress
from controller.maven import PinnedJars

HADOOP_AWS = PinnedJars("hadoop-aws", "Hadoop", Path(__file__).parent, ("3.5.0",))
_OF_SPARK = "hadoop-client-api-"


def jars_for(paths: Iterable[Path | str], progress: Progress) -> list[Path]:
    """The jars, fetched if they are not there; none if no path is on S3.

    Raises ReportError for a version of Hadoop that has no checksums here, EnvironmentFault if they cannot be fetched.
    """
    if not any(str(path).startswith(S3_SCHEME) for path in paths):
        return []
    version = _version_of_spark()
    if version not in HADOOP_AWS.versions:
        raise ReportError(
            f"{S3_SCHEME}// is known here with Hadoop {', '.join(HADOOP_AWS.versions)}, this PySpark has {version}: "
            f"use spark-submit --packages org.apache.hadoop:hadoop-aws:{version} (docs/report.md)"
        )
    if not HADOOP_AWS.fetched(version):
        progress(f"fetching Hadoop {version}'s client of S3 (700 MB, once)")
    return sorted(HADOOP_AWS.fetch(version).glob("*.jar"))


def _version_of_spark() -> str:
    for jar in (Path(_find_spark_home()) / "jars").glob(f"{_OF_SPARK}*.jar"):
        return jar.stem.removeprefix(_OF_SPARK)
    return "none"
