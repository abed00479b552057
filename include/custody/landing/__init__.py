"""Where files of events land until they are ingested: which folders an interval has, and which files were taken."""

from custody.landing.folders import Interval, folders_of, instant
from custody.landing.ledger import Ledger, Taken, decode_taken
from custody.landing.look import Landed, landed_files

__all__ = ["Interval", "Landed", "Ledger", "Taken", "decode_taken", "folders_of", "instant", "landed_files"]
