"""Spark job: the earliest revisions of contents and directories in a whole graph (custody.spark.swh.finding)."""

import sys

from custody.spark.swh.finding import main

if __name__ == "__main__":
    sys.exit(main())
