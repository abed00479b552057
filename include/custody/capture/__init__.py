"""Room `capture`: bytes from outside become events; pure functions."""

from custody.capture.event_reader import Limits, detect_file, read_file, read_piece, read_stream
from custody.capture.formats import Format, detect
from custody.capture.identity import contradictions, is_same, told_anew
from custody.capture.nifi_json import event_to_json
from custody.capture.openlineage import dataset_uuid
from custody.capture.validate import Accepted, Context, Outcome, Place, Rejected

__all__ = [
    "Accepted",
    "Context",
    "Format",
    "Limits",
    "Outcome",
    "Place",
    "Rejected",
    "contradictions",
    "dataset_uuid",
    "detect",
    "detect_file",
    "event_to_json",
    "is_same",
    "read_file",
    "read_piece",
    "read_stream",
    "told_anew",
]
