"""The calls of a repository that look after what is stored: recovery, compaction, retention, holds, shards, status."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import msgspec

from custody.catalog import AddShard
from custody.errors import NotFoundError
from custody.format.names import COMPACT_LEASE
from custody.index import BuiltShard
from custody.lease import Attempt
from custody.maintenance import Compacted, Rewriting, compact, planned
from custody.recovery import Finding, Recovered, find, recover
from custody.recovery import adopt as adopt_journals
from custody.repository import forgetting
from custody.repository.contents import Cleaned, cleaned
from custody.repository.forgetting import Forgotten, Meant
from custody.repository.found import Counts, Notices
from custody.repository.grounds import Grounds
from custody.repository.retaining import Retained, apply_retention, condition_of, plan_retention
from custody.repository.status import RepositoryStatus, repository_status
from custody.retention import Hold, Plan, add_hold, release_hold, standing_holds
from custody.rollover import Workspace, is_stale, leased, rebuild_shard, rollover_lease


class Maintained(Grounds):
    """A repository as those who look after it see it."""

    def status(self) -> RepositoryStatus:
        """Return how far everything has come, read from disk."""
        return repository_status(self.settings, self._fs, self.workspaces(), self.quarantine, self._clock)

    def forget(self, meant: Meant, reason: str, writer: str | None = None) -> list[Forgotten]:
        """Let no answer give out events of a writer, or of all of them, any more; later events are not meant.

        Durability: on return the events of the writers named in the result stay forgotten after a power loss.

        Raises:
            InvalidInputError: no condition is given.
        """
        return [forgetting.forget(item, meant, reason) for item in self._meant(writer)]

    def count_meant(self, meant: Meant, writer: str | None = None) -> Counts:
        """Return by writer how many events `forget` would mean; all events are read for it.

        Those that cannot be read are not counted, and the notices name what holds them: `forget` means them too.
        """
        notices = Notices(strict=False)
        counts = {item.writer: forgetting.count_meant(item, meant, notices) for item in self._meant(writer)}
        return Counts(counts, notices)

    def compact(
        self, writer: str | None = None, *, on_done: Callable[[Compacted], None] = lambda _: None
    ) -> list[Compacted]:
        """Erase forgotten events from the live logs of a writer, or of all of them, and join small logs.

        The old logs stay, unlisted, until the catalog is pruned and its garbage collected. What is not live yet is
        left to a later call. What went wrong with a unit stands in its report; the others are done all the same.

        Durability: on return what the reports without an error say survives power loss.

        Raises:
            LockedError: another compaction of a writer's logs is under way, and went on for `lease.wait_seconds`.
        """
        reports = []
        attempt = Attempt.new("custody-compact")
        for found in self._meant(writer):
            with leased(found, attempt, COMPACT_LEASE) as workspace:
                for report in compact(workspace):
                    on_done(report)
                    reports.append(report)
        return reports

    def recoverable(self) -> list[Finding]:
        """Return what interrupted work left, and what `recover` would do about it."""
        return [found for workspace in self.workspaces() for found in find(workspace)]

    def recover(self, *, take_over: bool = False, adopt: bool = False) -> dict[str, Recovered]:
        """Seal what dead writers left open and remove what interrupted work left, by writer.

        With `adopt`, journals of another incarnation of a writer's name become those of a writer of their own.

        Durability: on return what the reports say survives power loss. Done again, it ends in the same state.

        Raises:
            LockedError: another attempt works on a writer's files, and went on for `lease.wait_seconds`.
            SupersededError: another attempt took over.
        """
        attempt = Attempt.new("custody-recover")
        done = {}
        for found in self.workspaces():
            with rollover_lease(found, attempt, take_over=take_over) as workspace:
                report = recover(workspace)
                if adopt:
                    report = msgspec.structs.replace(report, adopted=tuple(adopt_journals(workspace)))
                done[workspace.writer] = report
        return done

    def compactions(self, writer: str | None = None) -> list[Rewriting]:
        """Return what `compact` would write anew; the logs that tombstones may mean are read for it."""
        return [found for workspace in self._meant(writer) for found in planned(workspace)]

    def plan_retention(self) -> Plan:
        """Return what would expire now, why, and what is held; nothing is changed."""
        return plan_retention(self.settings, self._fs, self._clock, self.workspaces())

    def apply_retention(self) -> Retained:
        """Let expire what is too old or has no room, and delete what expired longer ago than the grace.

        That the limit cannot be kept is no error: the plan in the result says so.

        Durability: on return what the result says survives power loss. It can be stopped at any time: do it again.

        Raises:
            ConflictError: another process changed a catalog meanwhile. Try again.
        """
        return apply_retention(self.settings, self._fs, self._clock)

    def hold(
        self,
        name: str,
        meant: Meant,
        reason: str,
        who: str,
        *,
        event_types: Sequence[str] = (),
        writer: str | None = None,
    ) -> None:
        """Let neither retention nor compaction take the events that are meant, later ones included.

        Durability: on return the hold survives power loss. On raise it may stand for some writers: do it again.

        Raises:
            InvalidInputError: no condition is given.
            ConflictError: another hold has this name.
        """
        add_hold(self._meant(writer), name, condition_of(meant, event_types), reason, who)

    def holds(self) -> list[Hold]:
        """Return the holds that stand, by name."""
        return standing_holds(self.workspaces())

    def release(self, name: str, reason: str, who: str) -> list[str]:
        """End a hold; return the writers that it stood for.

        Raises:
            NotFoundError: there is no such hold.
        """
        return release_hold(self.workspaces(), name, reason, who)

    def clean_contents(self, *, apply: bool = False) -> Cleaned:
        """Find the files of contents that no event speaks of, which crashes leave, and delete them with `apply`.

        A pass of the retention does the same when it deletes logs.

        Raises:
            CorruptionError, NotFoundError: an event cannot be read, so that nobody knows what it speaks of.
        """
        return cleaned(self.workspaces(), self.settings, self._fs, self._clock, apply=apply)

    def rebuild_index(
        self, names: Sequence[str] = (), *, stale_only: bool = False
    ) -> Generator[tuple[str, BuiltShard], None, None]:
        """Build index shards anew from their logs; yield the writer and the shard, one after the other.

        All live shards, or those of some `names`; with `stale_only` those that are gone, or were built with other
        settings than those of today. Of each writer that has any, the lease of compactions is held meanwhile.

        Durability: a shard that was yielded survives power loss. Can be stopped and begun again at any time.

        Raises:
            NotFoundError: no live shard has one of the names.
            LockedError: a compaction or another rebuild of a writer's shards is under way, and went on for
                `lease.wait_seconds`.
            SupersededError: another attempt took over.
        """
        missing = set(names) - {name for item in self.workspaces() for name in item.catalog.load().shards}
        if missing:
            raise NotFoundError(f"no live index shard is called {', '.join(sorted(missing))}.")
        attempt = Attempt.new("custody-index-rebuild")
        for found in self.workspaces():
            if not _to_rebuild(found, names, stale_only=stale_only):
                continue
            with leased(found, attempt, COMPACT_LEASE) as workspace:
                # Looked at again: a compaction that had the lease may have removed some.
                for shard in _to_rebuild(workspace, names, stale_only=stale_only):
                    built = rebuild_shard(workspace, shard)
                    self._shards.forget(built.path)
                    yield workspace.writer, built


def _to_rebuild(workspace: Workspace, names: Sequence[str], *, stale_only: bool) -> list[AddShard]:
    """Return the live shards of a writer that are meant."""
    meant = [shard for name, shard in workspace.catalog.load().shards.items() if not names or name in names]
    return [shard for shard in meant if not stale_only or is_stale(workspace, shard)]
