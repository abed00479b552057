"""Room `lease`: of two attempts at one piece of work only the newer one publishes."""

from custody.lease.lease import (
    Attempt,
    FencedFileSystem,
    Heartbeat,
    Holder,
    Lease,
    LeaseStatus,
    Process,
    is_dead,
    lease_status,
    read_holder,
    superseded_error,
    take,
    this_process,
)
from custody.lease.lease_files import LeaseFiles, LeasePlace

__all__ = [
    "Attempt",
    "FencedFileSystem",
    "Heartbeat",
    "Holder",
    "Lease",
    "LeaseFiles",
    "LeasePlace",
    "LeaseStatus",
    "Process",
    "is_dead",
    "lease_status",
    "read_holder",
    "superseded_error",
    "take",
    "this_process",
]
