"""Spark job: the step `swh_earliest_timestamps` of a build of provenance tables (custody.spark.swh)."""

import sys

from custody.spark.swh.steps import main

if __name__ == "__main__":
    sys.exit(main(["swh_earliest_timestamps"]))
