"""Where files of events land until they are ingested: which folders an interval has, and which files were taken."""

from custody.landing.ledger import Ledger, Taken, decode_taken
from custody.landing.scan import Interval, Landed, folders_of, instant, landed_files

__all__ = ["Interval", "Landed", "Ledger", "Taken", "decode_taken", "folders_of", "instant", "landed_files"]
