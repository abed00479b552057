"""Room `lease`: of two attempts at one piece of work only the newer one publishes."""

from custody.lease.attempt import Attempt
from custody.lease.fenced import FencedFileSystem
from custody.lease.heartbeat import Heartbeat
from custody.lease.holder import Holder, Process, this_process
from custody.lease.lease import Lease, LeaseStatus, is_dead, lease_status, read_holder, superseded, take

__all__ = [
    "Attempt",
    "FencedFileSystem",
    "Heartbeat",
    "Holder",
    "Lease",
    "LeaseStatus",
    "Process",
    "is_dead",
    "lease_status",
    "read_holder",
    "superseded",
    "take",
    "this_process",
]
