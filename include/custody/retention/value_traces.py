"""Traces: files beside the events that name the values of an erasure, and the FlowFiles in queues that have them.

What custody can do without is removed: quarantined pieces, ended jobs, replay plans, reports of runs, contents that
wait for events which were erased, FlowFiles in queues. What it needs stays and is named, such as the entry that keeps
a landed file from being ingested twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from custody.catalog import Condition
from custody.clock import Clock
from custody.config import SETTINGS_FILE, Settings
from custody.errors import CustodyError, NotFoundError, StorageError
from custody.flow.flowfile import FlowFile
from custody.flowfile_repository import FlowFileLook, FlowFileOptions, FlowFileRepository, Work
from custody.flowfile_repository.log import LogFolder
from custody.quarantine import Quarantine, QuarantineEntry
from custody.retention.value_search import ValueSearch
from custody.store import StoredFiles, place_text
from custody.vfs import TEMPORARY_SUFFIX, FileSystem
from custody.workspace.run_reports import report_place, stored_reports

_READ_MAX = 64 << 20
"""A larger file that custody needs is named without a look."""
_DAMAGE = ("journal", "damage")
_TEMPORARY_MS = 3_600_000
"""A temporary file that is as old belongs to a process that died."""
_SESSION = "erasure"
_UNENDED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Trace:
    """A file that names the values, and what removes it."""

    kind: str
    place: str
    remove: Callable[[], None]
    key: str = ""
    """Of an object in a store, its key."""


class TraceSearch:
    """The traces of one selection in a repository.

    Args:
        settings: those of the repository.
        fs: where its folder lies.
        clock: tells the time.
        search: what is looked for.
        digests: SHA-256 of the contents of the events, hexadecimal.
    """

    def __init__(
        self, settings: Settings, fs: FileSystem, clock: Clock, search: ValueSearch, digests: frozenset[str]
    ) -> None:
        self._settings = settings
        self._fs = fs
        self._clock = clock
        self.search = search
        self._digests = digests
        self.kept: list[str] = []
        """What names the values and stays, and why; filled by `removable` and `needed`."""
        self.waiting: list[str] = []
        """What names the values and goes later, and when."""

    def removable(self) -> Iterator[Trace]:
        """Yield the files that can go, FlowFiles in queues aside.

        Raises:
            StorageError: the disk or the store refuses.
        """
        yield from self._uploads()
        if not self.search.is_empty:
            yield from self._quarantined()
            yield from self._jobs()
            yield from self._plans()
            yield from self._reports()
            yield from self._temporary()

    def note_needed(self) -> None:
        """Note the files of the repository's folder that name the values and that custody needs."""
        if self.search.is_empty:
            return
        settings = self._settings
        reasons = {
            settings.root / SETTINGS_FILE: "the settings: edit them",
            settings.landed: "it keeps a landed file from being ingested twice; the name is the file's own",
            settings.exports_home: "how far an export is",
            settings.site_to_site_home: "a transaction that a NiFi has not ended yet",
            settings.root / "ngsi": "the sink's state, which its next batches replace",
            settings.maintenance_folder: "what the scrub found, until its next round",
        }
        for place, reason in reasons.items():
            for path in self._files(place):
                if self.search.names(str(path).encode()) or self._is_named_in(path, is_text=path.suffix == ".json"):
                    self.kept.append(f"{path}: {reason}")

    def flowfiles(self) -> dict[str, list[FlowFile]]:
        """Return the FlowFiles that are meant, by queue.

        Raises:
            CorruptionError: the log of the FlowFile repository is damaged.
        """
        home = self._settings.flowfiles_home
        if self.search.is_empty or not self._fs.list(home):
            return {}
        look = FlowFileLook(self._fs, home, self._clock.now_ms())
        found: dict[str, list[FlowFile]] = {}
        for queue in look.queues():
            name = queue.connection.name
            meant = [
                item.flowfile
                for item in look.flowfiles(name, queue.count)
                if self.search.means(item.flowfile.uuid, item.flowfile.attributes)
            ]
            if meant:
                found[name] = meant
        return found

    def erase_flowfiles(self, meant: Mapping[str, list[FlowFile]], holds: Mapping[str, Condition]) -> None:
        """Take FlowFiles out of their queues, and write a snapshot, after which no log names what went before.

        What a hold means, what a session works on and what lies in a swap file stays for now, and is noted.

        Durability: on return it survives power loss.

        Raises:
            CorruptionError, LockedError, StorageError: as the FlowFile repository.
        """
        home = self._settings.flowfiles_home
        folder = LogFolder(home)
        if not self._fs.list(home):
            return
        options = FlowFileOptions(swap_threshold=self._settings.flowfiles.swap_threshold)
        with FlowFileRepository(self._fs, home, self._clock, None, options) as queues:
            for queue, flowfiles in meant.items():
                free = {item.uuid for item in flowfiles if not _is_held(item, holds)}
                if len(free) < len(flowfiles):
                    self.waiting.append(f"queue {queue}: {len(flowfiles) - len(free)} FlowFiles that a hold means")
                accepts = partial(_is_among, frozenset(free))
                taken = queues.take(queue, _SESSION, count=len(flowfiles), accepts=accepts, with_penalised=True)
                uuids = [item.flowfile.uuid for item in (*taken.items, *taken.expired)]
                # No DROP event: it would repeat the attributes. The certificate tells of it.
                going = [uuid for uuid in uuids if uuid in free]
                queues.commit(Work(_SESSION, leaves=going, returns=[uuid for uuid in uuids if uuid not in free]))
                left = len(free) - len(going)
                if left:
                    self.waiting.append(
                        f"queue {queue}: {left} FlowFiles that a session works on, or in a swap file: they go when "
                        "they are back in the queue"
                    )
            queues.checkpoint()
        for path in (*self._files(folder.logs), home / "snapshot", *self._files(folder.swaps)):
            if self._fs.exists(path) and self._is_named_in(path, is_text=False) and not self.waiting:
                self.waiting.append(
                    f"{path}: names it, in events that are not in the journal yet or in FlowFiles of other values. A "
                    "session of the flow delivers the events (docs/flow.md)"
                )

    def _quarantined(self) -> Iterator[Trace]:
        quarantine = Quarantine(self._fs, self._settings.quarantine)
        for body in list(quarantine.bodies()):
            path = quarantine.path(body)
            try:
                pieces = quarantine.pieces(body)
            except NotFoundError:
                continue
            except CustodyError:
                if self._is_named_in(path) or self._is_named_in(path, is_text=False):
                    yield Trace("quarantined piece", str(path), partial(quarantine.discard, body))
                else:
                    self.kept.append(f"{path}: is damaged, so nobody can tell what is in it. Remove it: rm")
                continue
            for raw, entry in pieces:
                if self._is_piece_named(raw, entry):
                    yield Trace("quarantined piece", f"{path} ({entry.key})", partial(quarantine.discard, entry.key))
                elif entry.format in _DAMAGE and entry.received_ms:
                    self.kept.append(
                        f"{path}: bytes of a damaged file, which cannot be searched. Remove them: custody quarantine "
                        f"remove {entry.key}"
                    )

    def _is_piece_named(self, raw: bytes, entry: QuarantineEntry) -> bool:
        names = self.search.names
        return names(msgspec.json.encode(entry)) or names(raw) or names(raw, is_text=False)

    def _jobs(self) -> Iterator[Trace]:
        for path in self._files(self._settings.jobs, ".json"):
            if not self._is_named_in(path):
                continue
            if self._is_at_work(path):
                self.waiting.append(f"{path}: a job that has not ended")
            else:
                yield self._file("job", path)

    def _is_at_work(self, job: Path) -> bool:
        """Whether a job has not ended, and the process that does it lives."""
        try:
            document = msgspec.json.decode(self._fs.read(job))
            state, owner = document["state"], str(document["owner"])
        except (msgspec.DecodeError, LookupError, TypeError):
            return False
        # The name of a process is its own: anything else must not become a path.
        return state in _UNENDED and owner.isalnum() and self._fs.is_locked(job.parent / f"{owner}.lock")

    def _plans(self) -> Iterator[Trace]:
        for path in self._files(self._settings.replays, ".plan"):
            if self._is_named_in(path, is_text=False):
                yield self._file("replay plan", path)

    def _uploads(self) -> Iterator[Trace]:
        for path in self._files(self._settings.uploads):
            # Behind the digest stands whose content it is.
            if path.name.partition("-")[0] in self._digests:
                yield self._file("uploaded content", path)

    def _reports(self) -> Iterator[Trace]:
        files = report_place(self._settings, self._fs).files
        if not isinstance(files, StoredFiles):
            for path in self._files(self._settings.runs, ".json"):
                if self._is_named_in(path):
                    yield self._file("report of a run", path)
            return
        for path in stored_reports(self._settings, self._fs):
            if self.search.names(files.read(path)):
                key = path.relative_to(files.path("")).as_posix()
                yield Trace("report of a run", place_text(path), partial(files.remove, path), key)

    def _temporary(self) -> Iterator[Trace]:
        """Yield what processes left that died while they wrote a file; a younger one is waited for."""
        settings = self._settings
        for folder in (settings.quarantine, settings.jobs, settings.replays, settings.runs):
            for path in self._files(folder, TEMPORARY_SUFFIX):
                if not (self._is_named_in(path) or self._is_named_in(path, is_text=False)):
                    continue
                if self._fs.modified_ms(path) <= self._clock.now_ms() - _TEMPORARY_MS:
                    yield self._file("temporary file", path)
                else:
                    self.waiting.append(f"{path}: a temporary file younger than an hour")

    def _file(self, kind: str, path: Path) -> Trace:
        def remove() -> None:
            self._fs.remove(path)
            if self._fs.exists(path.parent):
                self._fs.sync_directory(path.parent)

        return Trace(kind, str(path), remove)

    def _files(self, place: Path, ending: str = "") -> Iterator[Path]:
        """Yield a file, or all that lie below a folder."""
        if not self._fs.exists(place):
            return
        if not self._fs.is_directory(place):
            yield place
            return
        for name in self._fs.list(place):
            path = place / name
            if self._fs.is_directory(path):
                yield from self._files(path, ending)
            elif name.endswith(ending):
                yield path

    def _is_named_in(self, path: Path, *, is_text: bool = True) -> bool:
        try:
            if self._fs.size(path) > _READ_MAX:
                return self.search.names(self._fs.view(path), is_text=is_text)
            return self.search.names(self._fs.read(path), is_text=is_text)
        except StorageError:
            if self._fs.exists(path):
                raise
            return False  # it has just gone


def _is_among(uuids: frozenset[str], flowfile: FlowFile) -> bool:
    return flowfile.uuid in uuids


def _is_held(flowfile: FlowFile, holds: Mapping[str, Condition]) -> bool:
    """Whether a hold means what is known of a FlowFile in a queue."""
    for condition in holds.values():
        if condition.flowfile_uuids and flowfile.uuid in condition.flowfile_uuids:
            return True
        attributes = condition.attributes
        if attributes and all(flowfile.attributes.get(each.name) == each.value for each in attributes):
            return True
    return False
