"""Opening the receiver of an export by its settings; the module of a kind is imported when it is used."""

from __future__ import annotations

from custody.config import ExportTarget, Settings
from custody.export.receiver import Receiver
from custody.vfs import FileSystem


def open_receiver(name: str, target: ExportTarget, settings: Settings, fs: FileSystem) -> Receiver:
    """Return the receiver of an export; it connects when the first batch is delivered.

    Raises:
        ConfigurationError: a package is not installed, or the settings do not fit the kind.
    """
    if target.kind == "files":
        from custody.export.file_receiver import FileReceiver

        return FileReceiver.open(target, settings, fs)
    if target.kind == "kafka":
        from custody.export.kafka_receiver import KafkaReceiver

        return KafkaReceiver(name, target)
    if target.kind == "site-to-site":
        from custody.export.site_to_site import SiteToSiteReceiver

        return SiteToSiteReceiver(name, target)
    if target.kind == "openlineage":
        from custody.export.openlineage_receiver import OpenLineageReceiver

        return OpenLineageReceiver(target)
    from custody.export.http_receiver import HttpReceiver

    return HttpReceiver(name, target)
