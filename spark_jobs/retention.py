"""Spark job: one step of the retention, named by the first argument: retention_plan, retention_mark, …

`retention_all` does all of them in one driver.
"""

import sys

from custody.repository.local_pass import steps_of
from custody.retention import RETENTION_STEPS
from custody.spark.environment import step_of
from custody.spark.job import main

if __name__ == "__main__":
    step, arguments = step_of((*RETENTION_STEPS, "retention_all"), sys.argv[1:])
    sys.exit(main(steps_of(step), arguments))
