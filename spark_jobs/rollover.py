"""Spark job: the step `rollover` of the pipeline: merge sealed groups into staged units."""

import sys

from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(["rollover"]))
