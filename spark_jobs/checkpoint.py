"""Spark job: the step `checkpoint` of the pipeline: write the catalog checkpoints that are due."""

import sys

from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(["checkpoint"]))
