"""Spark job: the step `index` of the pipeline: build the index shards of new logs."""

import sys

from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(["index"]))
