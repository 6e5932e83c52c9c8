"""``python -m controller.analysis.object_storage``: fetch the jars of Hadoop's client of S3."""

from __future__ import annotations

from controller.analysis.object_storage.jars import HADOOP_AWS

if __name__ == "__main__":
    HADOOP_AWS.main()
