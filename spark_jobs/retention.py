"""Spark job: one step of the retention, named by the first argument: retention_plan, retention_mark, …"""

import sys

from custody.retention import RETENTION_STEPS
from custody.spark.environment import step_of
from custody.spark.job import main

if __name__ == "__main__":
    step, arguments = step_of(RETENTION_STEPS, sys.argv[1:])
    sys.exit(main([step], arguments))
