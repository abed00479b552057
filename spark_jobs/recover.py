"""Spark job: the step `recover` of the pipeline: seal what a dead writer left open, and deal with leftovers."""

import sys

from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(["recover"]))
