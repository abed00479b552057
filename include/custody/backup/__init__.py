"""Room `backup`: the files of a repository at one moment in a target elsewhere, and a repository made of them again."""

from custody.backup.backup_run import BackupReport, back_up
from custody.backup.manifest import BackupManifest, WriterEnd
from custody.backup.restore_run import RestoredWriter, RestoreReport, restore
from custody.backup.target import BackupTarget, UnreadableBackup, verify_backup

__all__ = [
    "BackupManifest",
    "BackupReport",
    "BackupTarget",
    "RestoreReport",
    "RestoredWriter",
    "UnreadableBackup",
    "WriterEnd",
    "back_up",
    "restore",
    "verify_backup",
]
