"""Where files of events land until they are ingested: which folders an interval has, and which files were taken."""

from custody.landing.ledger import LandingLedger, LedgerEntry, decode_ledger_entry
from custody.landing.scan import Interval, LandedFile, folders_of, landed_files, parse_instant

__all__ = [
    "Interval",
    "LandedFile",
    "LandingLedger",
    "LedgerEntry",
    "decode_ledger_entry",
    "folders_of",
    "landed_files",
    "parse_instant",
]
