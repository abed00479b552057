"""Room `capture`: bytes from outside become events; pure functions.

The way of a file: `event_reader` finds out its format (`formats`), unzips it (`encodings`), cuts it into elements
(`json_splitter`, or `avro`), hands each to the reader of its format and has the events checked (`validate`).

To change how an input is read, look into the module of its format: `nifi_json` (Site-to-Site; in bulk `nifi_columns`),
`nifi_avro` (in bulk `avro_columns`), `nifi_rest`, `openlineage` (in bulk `openlineage_columns`), `ngsi_notification`
(in bulk `ngsi_columns`), `custody_json` (in bulk `custody_columns`). `column_batch` says what is done in bulk, and
`split_text` how the texts of many senders are read together. `identity` says which events are the same, `values` and
`raw_json` read values of JSON.
"""

from custody.capture.column_batch import ColumnBatch
from custody.capture.event_reader import (
    CaptureLimits,
    batched_outcomes,
    detect_file,
    read_batches,
    read_file,
    read_piece,
    read_stream,
)
from custody.capture.formats import Format, detect
from custody.capture.identity import contradictions, harmless_differences, is_other_event, is_same, shared_time
from custody.capture.nifi_json import event_to_json
from custody.capture.openlineage import dataset_uuid, former_ordinal
from custody.capture.openlineage_columns import FormerOrdinals, former_ordinals
from custody.capture.split_text import SPLIT_FORMATS, SplitText, read_together, split_text
from custody.capture.validate import Accepted, Context, InputPlace, Outcome, Rejected

__all__ = [
    "SPLIT_FORMATS",
    "Accepted",
    "CaptureLimits",
    "ColumnBatch",
    "Context",
    "Format",
    "FormerOrdinals",
    "InputPlace",
    "Outcome",
    "Rejected",
    "SplitText",
    "batched_outcomes",
    "contradictions",
    "dataset_uuid",
    "detect",
    "detect_file",
    "event_to_json",
    "former_ordinal",
    "former_ordinals",
    "harmless_differences",
    "is_other_event",
    "is_same",
    "read_batches",
    "read_file",
    "read_piece",
    "read_stream",
    "read_together",
    "shared_time",
    "split_text",
]
