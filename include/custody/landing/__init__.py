"""Room `landing`: folders in which files of events land until they are ingested, and the ledger of ingested files."""

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
