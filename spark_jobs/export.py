"""Spark job: one step of the exports, named by the first argument: export_deliver or export_resend."""

import sys

from custody.export.export_steps import EXPORT_STEPS
from custody.spark.environment import step_of
from custody.spark.job import main

if __name__ == "__main__":
    step, arguments = step_of(EXPORT_STEPS, sys.argv[1:])
    sys.exit(main([step], arguments))
