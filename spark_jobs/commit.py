"""Spark job: the step `commit` of the pipeline: make logs and shards live."""

import sys

from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(["commit"]))
