"""Spark job: the earliest revisions of contents and directories (custody.spark.swh.earliest_revision)."""

import sys

from custody.spark.swh.earliest_revision import main

if __name__ == "__main__":
    sys.exit(main())
