"""Write what a Spark cluster needs to make a report: FOLDER/partition-controller.zip for ``--py-files``, and
FOLDER/report.py, which spark-submit runs. The same sources give the same bytes.

    python3 deploy/spark_archive.py FOLDER
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("controller", "proto")
JOB = ROOT / "controller" / "cli" / "pctl" / "analysis" / "submitted.py"
#: The earliest time that a ZIP file knows.
TIME = (1980, 1, 1, 0, 0, 0)


def write(folder: Path) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / "partition-controller.zip.part"
    with zipfile.ZipFile(draft, "w") as archive:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    entry = zipfile.ZipInfo(path.relative_to(ROOT).as_posix(), TIME)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    entry.external_attr = 0o644 << 16
                    archive.writestr(entry, path.read_bytes())
    draft.replace(draft.with_suffix(""))
    shutil.copyfile(JOB, folder / "report.py")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: spark_archive.py FOLDER")
    write(Path(sys.argv[1]))
