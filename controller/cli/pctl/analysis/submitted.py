"""The main file for spark-submit (docs/report.md): ``pctl report``, with the arguments that it has there."""

from __future__ import annotations

from controller.cli.common.options import Options
from controller.cli.pctl.analysis.report import report

if __name__ == "__main__":
    # The verb asks no server.
    report.main(prog_name="report.py", obj=Options(zookeeper="", output="table", timeout_s=0))
