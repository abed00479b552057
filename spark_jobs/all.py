"""Spark job: all steps in order in one driver, for development and scripts; Airflow submits them one by one."""

import sys

from custody.recovery import STEPS
from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(list(STEPS)))
