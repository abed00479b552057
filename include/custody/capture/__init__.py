"""Room `capture`: bytes from outside become events; pure functions."""

from custody.capture.nifi_json import event_to_json
from custody.capture.nifi_s2s import read_element, read_file
from custody.capture.outcome import Accepted, Outcome, Place, Rejected

__all__ = ["Accepted", "Outcome", "Place", "Rejected", "event_to_json", "read_element", "read_file"]
