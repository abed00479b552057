"""Room `config`: the settings of a repository."""

from custody.config.content_store import ContentStore
from custody.config.exports import ExportTarget
from custody.config.ngsi import NgsiSection
from custody.config.parsing import date_parts
from custody.config.sections import EVENT_SUFFIXES, KeepRule, is_secret
from custody.config.settings import SETTINGS_FILE, Settings, default_settings_file, load_settings, root_of

__all__ = [
    "EVENT_SUFFIXES",
    "SETTINGS_FILE",
    "ContentStore",
    "ExportTarget",
    "KeepRule",
    "NgsiSection",
    "Settings",
    "date_parts",
    "default_settings_file",
    "is_secret",
    "load_settings",
    "root_of",
]
