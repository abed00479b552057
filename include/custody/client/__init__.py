"""Room `client`: producers on any machine keep events in a spool and deliver them to a server, each once.

It loads neither Arrow nor Spark nor Airflow, and works where no repository is.
"""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.client.http_sender import HttpSender
    from custody.client.spool import Spool, SpoolState, spool_state
    from custody.client.spool_delivery import DeliverySummary, SpoolDelivery

__all__ = ["DeliverySummary", "HttpSender", "Spool", "SpoolDelivery", "SpoolState", "spool_state"]


if not TYPE_CHECKING:  # a checker would take every name for one that is here
    _MODULES = {
        "custody.client.http_sender": ["HttpSender"],
        "custody.client.spool": ["Spool", "SpoolState", "spool_state"],
        "custody.client.spool_delivery": ["DeliverySummary", "SpoolDelivery"],
    }
    __getattr__ = lazy_exports(__name__, _MODULES)
