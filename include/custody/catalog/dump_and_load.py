"""The state of a catalog as text to edit, and back: what differs becomes one transaction, checked like any other.

A dump has one JSON object a line. The first names the catalog, its revision and digest; each other one is an action
that adds an entry: `add_file`, `add_shard`, `add_tombstone`, `add_hold`, `add_mark`, `add_loss`, `absorb`, with the
fields of docs/formats/catalog.md, bytes in base64. What the catalog derives from a file (footer, statistics) is left
out unless it is asked for: a load takes it from the entry that is live, or from the file.

A load compares with the newest state, of which the dump has to be. Lines that are gone are removals, new lines are
additions, and a changed line is both. Nothing is written unless every line makes sense.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from google.protobuf import json_format

from custody.catalog.catalog import Catalog
from custody.catalog.footers import describe
from custody.catalog.state import CatalogState, Draft, NotApplicableError
from custody.catalog.tombstones import is_remnant, may_match
from custody.catalog.transaction_pb2 import (
    Action,
    AddFile,
    Note,
    RemoveFile,
    RemoveHold,
    RemoveMark,
    RemoveShard,
    RemoveTombstone,
    RespectHolds,
)
from custody.catalog.wellformed import check_action, have_ids_in_common
from custody.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError

DERIVED = ("footer", "footer_bytes", "statistics", "schema_fingerprint")
"""Fields of a file's entry that say what the file says."""
KINDS = ("add_file", "add_shard", "add_tombstone", "add_hold", "add_mark", "add_loss", "absorb")
_HEADER = "catalog"
_PERMANENT = ("add_loss", "absorb")
"""Entries that no action takes back."""
_BY_CONTENT = ("add_tombstone", "add_mark")
"""Entries whose second copies are kept by their ids: another content needs another id."""
_REASON_MAX = 2000


class DumpHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of a dump; bytes as hexadecimal digits."""

    writer: str
    database: str
    catalog_id: str
    revision: int
    digest: str
    next_event_id: int


_FIRST_LINE = msgspec.json.Decoder(dict[str, DumpHeader])


class LoadChange(msgspec.Struct, frozen=True, kw_only=True):
    """One entry that a load adds, removes or changes."""

    change: str
    """`added`, `removed` or `changed`."""
    kind: str
    name: str
    line: int | None = None
    """Of the dump; None for what is removed."""
    effect: str | None = None
    """What users should know of it before."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load does: the changes, and the transaction that makes them; none when nothing differs."""

    header: DumpHeader
    changes: tuple[LoadChange, ...] = ()
    actions: tuple[Action, ...] = field(default=())


def dump_state(catalog: Catalog, state: CatalogState, *, derived: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the lines of a dump: the header, then the entries by kind and name; with `derived` also footers."""
    header = DumpHeader(
        writer=catalog.objects.writer,
        database=catalog.objects.database,
        catalog_id=state.catalog_id.hex,
        revision=state.revision,
        digest=state.digest.hex(),
        next_event_id=state.next_event_id,
    )
    yield {_HEADER: msgspec.to_builtins(header)}
    for entries in _entries(state).values():
        for _, action in sorted(entries.items()):
            document = _document(action)
            for name in DERIVED if "add_file" in document and not derived else ():
                document["add_file"].pop(name, None)
            yield document


def plan_load(catalog: Catalog, lines: Sequence[str], where: str = "dump") -> LoadPlan:
    """Return what differs between a dump and the newest state; nothing is changed.

    Raises:
        InvalidInputError: a line is no entry, makes no sense, or asks for what no transaction can do; it is named.
        ConflictError: the dump is of another revision than the newest, or of another catalog.
        CorruptionError: an entry does not fit the file that it names.
    """
    state = catalog.settle()
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise InvalidInputError(f"{where}: expected the first line of a dump, got nothing.")
    header = _header(numbered[0], where)
    _require_newest(catalog, state, header, where)
    wanted: dict[str, dict[str, tuple[int, Action]]] = {kind: {} for kind in KINDS}
    for number, line in numbered[1:]:
        at = f"{where} line {number}"
        kind, name, action = _entry(catalog, state, line, at)
        if name in wanted[kind]:
            raise InvalidInputError(
                f"{at}: {kind} {name!r} is in line {wanted[kind][name][0]} too. Remove one of them."
            )
        wanted[kind][name] = number, action
    return _difference(catalog, state, header, wanted, where)


def load(catalog: Catalog, plan: LoadPlan, reason: str = "") -> CatalogState:
    """Commit what a plan says; return the state after it.

    Durability: on return the transaction survives power loss.

    Raises:
        ConflictError: somebody committed since the dump, or the changes contradict the state: nothing was written.
    """
    if not plan.actions:
        return catalog.load()
    note = Action(note=Note(text=f"catalog load: {reason}"[:_REASON_MAX]))

    def require_same(state: CatalogState) -> None:
        _require_newest(catalog, state, plan.header, "dump")

    return catalog.commit([note, *plan.actions], next_event_id=plan.header.next_event_id, check=require_same)


def _entries(state: CatalogState) -> dict[str, dict[str, Action]]:
    """Return the entries of a state by kind and name, as the actions that add them."""
    entries: dict[str, dict[str, Action]] = {kind: {} for kind in KINDS}
    entries["add_file"] = {path: Action(add_file=state.files[path]) for path in state.files}
    for action in state.other_actions():
        kind = str(action.WhichOneof("kind"))
        if kind in entries:  # the floor and the seal are no entries: they are not taken back
            entries[kind][_name(kind, action)] = action
    return entries


def _name(kind: str, action: Action) -> str:
    entry = getattr(action, kind)
    if kind == "add_file":
        return str(entry.path)
    if kind in ("add_shard", "add_hold"):
        return str(entry.name)
    return f"{entry.writer}/{entry.database}" if kind == "absorb" else entry.id.hex()


def _document(action: Action) -> dict[str, Any]:
    return json_format.MessageToDict(action, preserving_proto_field_name=True)


def _header(numbered: tuple[int, str], where: str) -> DumpHeader:
    number, line = numbered
    try:
        document = _FIRST_LINE.decode(line)
        return document[_HEADER]
    except (msgspec.DecodeError, KeyError) as error:
        raise InvalidInputError(
            f'{where} line {number}: expected {{"{_HEADER}": …}} with what the dump is of, got {error}.'
        ) from error


def _require_newest(catalog: Catalog, state: CatalogState, header: DumpHeader, where: str) -> None:
    objects = catalog.objects
    if (header.writer, header.database, header.catalog_id) != (objects.writer, objects.database, state.catalog_id.hex):
        raise ConflictError(
            f"{where} line 1: expected a dump of {objects.writer}/{objects.database}, catalog {state.catalog_id.hex}, "
            f"got one of {header.writer}/{header.database}, catalog {header.catalog_id}."
        )
    if (header.revision, header.digest) != (state.revision, state.digest.hex()):
        raise ConflictError(
            f"{where} line 1: expected a dump of revision {state.revision}, the newest, got one of {header.revision}: "
            "somebody committed since. Dump again, and repeat the changes."
        )
    if not state.next_event_id <= header.next_event_id < 1 << 63:
        raise InvalidInputError(
            f"{where} line 1: next_event_id: expected {state.next_event_id} or more, as ids are given out once, got "
            f"{header.next_event_id}."
        )


def _entry(catalog: Catalog, state: CatalogState, line: str, at: str) -> tuple[str, str, Action]:
    """Return kind and name of the entry of a line, and the action that adds it."""
    try:
        document = msgspec.json.decode(line, type=dict[str, dict[str, Any]])
        kind = next(iter(document), "")
        if len(document) != 1 or kind not in KINDS:
            raise InvalidInputError(f"expected one of {', '.join(KINDS)}, got {', '.join(document) or 'nothing'}")
        action = json_format.ParseDict(document, Action())
        if kind == "add_file":
            _complete(catalog, state, action.add_file, document[kind])
        check_action(action)
    except CorruptionError as error:
        raise CorruptionError(f"{at}: {error}") from error
    except (json_format.ParseError, msgspec.DecodeError, InvalidInputError, RecursionError, ValueError) as error:
        raise InvalidInputError(f"{at}: {str(error).rstrip('.')}.") from error
    return kind, _name(kind, action), action


def _complete(catalog: Catalog, state: CatalogState, file: AddFile, given: Mapping[str, Any]) -> None:
    """Set what the dump left out of an entry: from the live one, or from the file."""
    live = state.files.get(file.path)
    if not any(name in given for name in DERIVED) and live is not None:
        for name in DERIVED:
            setattr(file, name, getattr(live, name))
    if live is None or file != live:
        _check_file(catalog, file, describe_too=live is None and not any(name in given for name in DERIVED))


def _check_file(catalog: Catalog, file: AddFile, *, describe_too: bool) -> None:
    """Compare a new or changed entry with the file that it names."""
    files = catalog.objects.files
    check_action(Action(add_file=file))  # its path has to be a key before the store is asked
    where = files.locate(file.path)
    try:
        data = files.get(file.path)
    except NotFoundError as error:
        raise InvalidInputError(f"{where}: expected the file of this entry, found none") from error
    if len(data) != file.size_bytes:
        raise CorruptionError(f"{where}: size_bytes: the file has {len(data)}, got {file.size_bytes}.")
    if file.sha256 and hashlib.sha256(data).digest() != file.sha256:
        raise CorruptionError(f"{where}: sha256: the file has another one.")
    if describe_too:
        describe(file, lambda start, length: data[start:][:length])


def _difference(
    catalog: Catalog,
    state: CatalogState,
    header: DumpHeader,
    wanted: Mapping[str, Mapping[str, tuple[int, Action]]],
    where: str,
) -> LoadPlan:
    changes: list[LoadChange] = []
    removals: list[Action] = []
    additions: list[Action] = []
    for kind, present in _entries(state).items():
        for name in sorted(present.keys() - wanted[kind].keys()):
            removals.append(_removal(state, kind, name, present[name], f"{where}: {kind} {name!r} is gone"))
            effect = _effect(kind, present[name])
            changes.append(LoadChange(change="removed", kind=kind, name=name, effect=effect))
        for name, (number, action) in sorted(wanted[kind].items()):
            if present.get(name) == action:
                continue
            at = f"{where} line {number}: {kind} {name!r} is changed"
            change = "added" if name not in present else "changed"
            if change == "changed":
                if kind in _BY_CONTENT:
                    raise InvalidInputError(
                        f"{at}: what it says is kept by its id. Give the changed one an id of its own."
                    )
                removals.append(_removal(state, kind, name, present[name], at))
            additions.append(action)
            changes.append(LoadChange(change=change, kind=kind, name=name, line=number))
            _require_applicable(state, [*removals, *additions], f"{where} line {number}")
    # A hold that somebody makes meanwhile stops the load; one that the load itself adds comes behind.
    respected = [Action(respect_holds=RespectHolds(names=sorted(state.holds)))] if removals else []
    actions = [*removals, *respected, *additions]
    if not actions and header.next_event_id > state.next_event_id:
        actions.append(Action(note=Note(text=f"next_event_id {header.next_event_id}")))
        changes.append(LoadChange(change="changed", kind=_HEADER, name="next_event_id", line=1))
    _require_applicable(state, actions, where)
    _require_own_ids(state, actions, wanted["add_file"], where)
    return LoadPlan(header, tuple(changes), tuple(actions))


def _require_applicable(state: CatalogState, actions: Sequence[Action], at: str) -> None:
    try:
        Draft(state).apply(actions)
    except NotApplicableError as error:
        raise InvalidInputError(f"{at}: {error}") from error


def _require_own_ids(
    state: CatalogState, actions: Sequence[Action], files: Mapping[str, tuple[int, Action]], where: str
) -> None:
    """Raise InvalidInputError when a log would be live beside another one with the same events."""
    draft = Draft(state)
    draft.apply(actions)
    after = draft.state()
    for file in (action.add_file for action in actions if action.HasField("add_file")):
        for other in after.files.overlapping(file.first_event_id, file.last_event_id):
            if have_ids_in_common(file, other):
                line = f"{where} line {files[file.path][0]}"
                raise InvalidInputError(
                    f"{line}: {file.path} holds event ids that {other.path} holds. List one of them."
                )


def _removal(state: CatalogState, kind: str, name: str, action: Action, at: str) -> Action:
    if kind in _PERMANENT:
        raise InvalidInputError(f"{at}: nothing takes it back. Put the line back as it was.")
    if kind == "add_file":
        file = action.add_file
        bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
        holds = [hold for hold, entry in state.holds.items() if may_match(entry.condition, *bounds)]
        if holds:
            raise InvalidInputError(
                f"{at}: the hold {holds[0]!r} may cover its events. Release it first: custody hold release"
            )
        return Action(remove_file=RemoveFile(path=name))
    if kind == "add_shard":
        return Action(remove_shard=RemoveShard(name=name))
    if kind == "add_hold":
        return Action(remove_hold=RemoveHold(name=name, reason="catalog load"))
    if kind == "add_mark":
        return Action(remove_mark=RemoveMark(id=action.add_mark.id))
    return Action(remove_tombstone=RemoveTombstone(id=action.add_tombstone.id))


def _effect(kind: str, action: Action) -> str | None:
    """Return what a removal does that its name does not say."""
    if kind == "add_file":
        return f"{action.add_file.rows} events are in no answer any more"
    if kind == "add_tombstone":
        if is_remnant(action.add_tombstone):
            return "erased events that are ingested again are stored as new ones"
        return "events that it hides and that are not erased are given out again"
    return "what it holds may expire and be erased" if kind == "add_hold" else None
