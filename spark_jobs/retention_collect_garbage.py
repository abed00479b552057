"""Spark job: the step `retention_collect_garbage` (custody.retention.retention_steps) on every waiting unit."""

import sys

from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(["retention_collect_garbage"]))
