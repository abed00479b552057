"""Room `config`: the settings of a repository."""

from custody.config.keeping import KeepRule
from custody.config.settings import SETTINGS_FILE, Settings, default_settings_file, load_settings

__all__ = ["SETTINGS_FILE", "KeepRule", "Settings", "default_settings_file", "load_settings"]
