"""Spark job: all steps of a build of provenance tables (custody.spark.swh), one after the other in one driver."""

import sys

from custody.spark.swh.steps import ALL, main

if __name__ == "__main__":
    sys.exit(main(ALL))
