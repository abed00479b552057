"""Spark job: one step of a build of provenance tables, named by the first argument: swh_nodes, …, swh_publish.

`swh_all` does all of them in one driver; `swh_find_earliest_revision` asks a whole graph and needs no build.
"""

import sys

from custody.spark.environment import step_of
from custody.spark.swh.steps import ALL, main

EVERY_STEP, QUESTION = "swh_all", "swh_find_earliest_revision"

if __name__ == "__main__":
    step, arguments = step_of((*ALL, EVERY_STEP, QUESTION), sys.argv[1:])
    if step == QUESTION:
        # Imported here: it loads PySpark, which a step that was done before does not need.
        from custody.spark.swh import earliest_revision

        sys.exit(earliest_revision.main(arguments))
    sys.exit(main(ALL if step == EVERY_STEP else [step], arguments))
