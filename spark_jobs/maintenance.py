"""Spark job: one step of the maintenance, named by the first argument: absorb, compact, rebuild or scrub."""

import sys

from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS
from custody.spark.environment import step_of
from custody.spark.job import main

if __name__ == "__main__":
    step, arguments = step_of(MAINTENANCE_STEPS, sys.argv[1:])
    sys.exit(main([step], arguments))
