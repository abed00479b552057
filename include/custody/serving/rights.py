"""Rights: which events each of those who ask a server may see, by the rules of a file.

```toml
[[rule]]
who = ["analyst-*"]                       # names of tokens, of certificates, of users of Airflow
see = [{process_group_name = "orders*"}]  # or see = "everything"
hide = [{"attribute.tenant" = "acme"}]
mask = ["*password*"]                     # names of attributes whose values are not shown
```

All rules that name somebody count together: an event can be seen that one of them shows and none hides, and each masks
what it names. Who is named by no rule sees no event. The file is read again when it changes (`reloaded_file.py`).
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from custody.errors import ConfigurationError, InvalidInputError
from custody.model.visibility import EventCondition, Visibility
from custody.serving.reloaded_file import ReloadedFile

_EVERYTHING = "everything"
_KEYS = ("who", "see", "hide", "mask")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the file: for whom it counts, and what it shows, hides and masks."""

    who: tuple[str, ...]
    see: tuple[EventCondition, ...] | None
    """None for everything."""
    hide: tuple[EventCondition, ...]
    mask: tuple[str, ...]

    def means(self, name: str) -> bool:
        """Whether it counts for somebody."""
        return any(fnmatchcase(name, pattern) for pattern in self.who)


class Rights:
    """The rules of a file, which are read again when it changes.

    Args:
        path: of the file.

    Raises:
        ConfigurationError: the file cannot be read, others can change it, or a rule is none.
    """

    def __init__(self, path: Path) -> None:
        self._file = ReloadedFile(path, read_rules, "rights")

    def visibility(self, name: str) -> Visibility | None:
        """Return what somebody may see; None for everything."""
        rules = [rule for rule in self._file.content() if rule.means(name)]
        shown = [rule.see for rule in rules]
        see = None if None in shown else tuple(each for one in shown if one is not None for each in one)
        masks = sorted({each for rule in rules for each in rule.mask})
        visibility = Visibility(see, tuple(each for rule in rules for each in rule.hide), tuple(masks))
        return None if visibility.is_everything else visibility


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Return the rules of a file.

    Raises:
        ConfigurationError: as `Rights`.
    """
    try:
        mode = path.stat().st_mode
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: expected a file of rules in TOML: {error}") from None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigurationError(f"{path}: expected a file that its owner alone can change. chmod 644 it.")
    rules = document.pop("rule", [])
    if document or not isinstance(rules, list):
        raise ConfigurationError(f"{path}: expected [[rule]] alone, got {', '.join(sorted(document)) or 'rule'}.")
    return tuple(_rule(f"{path}, rule {number}", rule) for number, rule in enumerate(rules, 1))


def _rule(where: str, rule: object) -> Rule:
    if not isinstance(rule, dict) or (unknown := sorted(set(rule) - set(_KEYS))):
        got = "something else" if not isinstance(rule, dict) else ", ".join(unknown)
        raise ConfigurationError(f"{where}: expected {', '.join(_KEYS)}, got {got}.")
    who = rule.get("who")
    if not isinstance(who, list) or not who or not all(isinstance(one, str) and one for one in who):
        raise ConfigurationError(f'{where}: expected who = ["NAME", …], the names that it counts for.')
    see = None if rule.get("see") == _EVERYTHING else _conditions(where, "see", rule)
    mask = rule.get("mask", [])
    if not isinstance(mask, list) or not all(isinstance(one, str) and one for one in mask):
        raise ConfigurationError(f'{where}: expected mask = ["PATTERN", …], names of attributes.')
    return Rule(tuple(who), see, _conditions(where, "hide", rule), tuple(mask))


def _conditions(where: str, key: str, rule: Mapping[str, object]) -> tuple[EventCondition, ...]:
    conditions = rule.get(key, [])
    if not isinstance(conditions, list) or not all(isinstance(one, dict) for one in conditions):
        also = f' or "{_EVERYTHING}"' if key == "see" else ""
        raise ConfigurationError(f"{where}: expected {key} = [{{FIELD = PATTERN}}, …]{also}.")
    try:
        return tuple(EventCondition.of(one) for one in conditions)
    except InvalidInputError as error:
        raise ConfigurationError(f"{where}, {key}: {error}") from None
