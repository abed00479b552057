"""Spark job: the step `sweep` of the pipeline: delete the journals and staged units of what is live."""

import sys

from custody.spark.job import main

if __name__ == "__main__":
    sys.exit(main(["sweep"]))
