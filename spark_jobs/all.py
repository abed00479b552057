"""Spark job: all steps in order in one driver, for development and scripts; Airflow submits them one by one."""

import sys

from custody.repository.local_pass import steps_of
from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(steps_of("all")))
