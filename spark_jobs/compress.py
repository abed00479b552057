"""Spark job: the step `compress` of the pipeline: write the event logs of staged units."""

import sys

from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(["compress"]))
