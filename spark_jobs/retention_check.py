"""Spark job: the step `retention_check` (custody.retention.retention_steps) on every unit that waits for it."""

import sys

from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(["retention_check"]))
