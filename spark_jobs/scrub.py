"""Spark job: the step `scrub` (custody.maintenance.maintenance_steps) on every unit that waits for it."""

import sys

from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(["scrub"]))
