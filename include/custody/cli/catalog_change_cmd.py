"""`custody catalog`: the commands that write, move or delete; those that change its history show their plan and ask."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from custody import iceberg
from custody.catalog import (
    Catalog,
    collect_garbage,
    last_commit_ms,
    plan_prune,
    plan_repair,
    prune,
    rebuild,
    rebuild_losses,
    repair,
    salvage,
    scan_logs,
    wipe,
)
from custody.catalog.dump_and_load import load, plan_load
from custody.catalog.state import EMPTY
from custody.cli.catalog_cmd import catalog, load_catalog, load_catalogs, revision_of
from custody.cli.consent import Consent, asks_first
from custody.cli.options import DURATION, Command, json_option, writer_option
from custody.cli.output import print_json, print_table, size_text, stderr, working
from custody.cli.verify_cmd import verify_chain
from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import CorruptionError, CustodyError, InvalidInputError
from custody.format.names import COMPACT_LEASE, RETENTION_LEASE
from custody.journal import lock_path
from custody.lease import Attempt
from custody.maintenance.repair import require_accepted, unpublished_logs
from custody.retention.history import is_history_limited, plan_by_limits, prune_by_limits
from custody.vfs import PosixFileSystem
from custody.workspace import ROLLOVER_LEASE, Workspace, take_lease

__all__ = ["catalog"]  # the group, with the commands of this module

catalog.add_command(verify_chain)


def _accept_loss_option(command: Command) -> Command:
    text = "Do it even if events may be given out again that were forgotten or had expired."
    return click.option("--accept-loss", is_flag=True, help=text)(command)


@catalog.command("checkpoint")
@click.option("--if-due", is_flag=True, help="Only when catalog.checkpoint_every says so.")
@click.option("--revision", "at", help="Of this revision: a number, or a time; default: the newest.")
@writer_option
@json_option
@click.pass_obj
def checkpoint(repository: Path, if_due: bool, at: str | None, writer: str | None, as_json: bool) -> None:
    """Write a checkpoint of the newest revision, or of any that is kept, read it back, and print where it lies.

    One of an earlier revision makes time travel around it quick, and is where `custody catalog prune` can begin the
    history.

    \b
    Example:
      custody -r demo catalog checkpoint
      custody -r demo catalog checkpoint --revision 2026-03-01
    """
    if if_due and at is not None:
        raise click.UsageError("give --if-due or --revision, not both")
    settings, writer_catalog = load_catalog(repository, writer)
    if if_due and not writer_catalog.checkpoint_due(settings.catalog.checkpoint_every):
        print_json({"written": False}) if as_json else stderr().print("no checkpoint is due")
        return
    written = writer_catalog.write_checkpoint(None if at is None else revision_of(writer_catalog, at))
    where = writer_catalog.objects.store.locate(written.key)
    if as_json:
        print_json({"written": True, "path": where, "size_bytes": written.size_bytes})
    else:
        print_table("", ("checkpoint", "bytes#"), [(where, written.size_bytes)])


@catalog.command("prune")
@click.option(
    "--before", help="Earliest revision, or time, that stays readable; default: the limits catalog.history_*."
)
@asks_first
@writer_option
@json_option
@click.pass_obj
def prune_front(repository: Path, before: str | None, consent: Consent, writer: str | None, as_json: bool) -> None:
    """Forget the oldest revisions; from --before on everything stays readable.

    One readable checkpoint at the new beginning and two later ones are kept, so less may go than was asked for:
    `custody catalog checkpoint` writes one, once a commit came behind the last. Data files stay until
    `custody catalog gc`.

    Without --before the settings catalog.history_age_max, history_revisions_max and history_bytes_max say how much
    stays, as in a pass of retention: holds and attestations stop them, and one later checkpoint is enough.

    \b
    Example:
      custody -r demo catalog prune --dry-run
      custody -r demo catalog prune --before 2026-01-01 --dry-run
      custody -r demo catalog prune --before 2026-01-01 --yes
    """
    settings, writer_catalog = load_catalog(repository, writer)
    limited = None if before is not None else _limited(Workspace(settings, writer_catalog.objects.writer))
    revision = revision_of(writer_catalog, before) if before is not None else 0

    def show(*, done: bool) -> int:
        if limited is not None:
            plan = prune_by_limits(limited) if done else plan_by_limits(limited)
        else:
            plan = prune(writer_catalog, revision) if done else plan_prune(writer_catalog, revision)
        document = {"earliest_revision": plan.floor, "objects": list(plan.keys), "reason": plan.reason, "done": done}
        if as_json:
            print_json(document)
            return len(plan.keys)
        verb = "deleted" if done else "to delete"
        print_table(f"earliest revision {plan.floor}; {len(plan.keys)} objects {verb}", ("object",), zip(plan.keys))
        if plan.reason:
            stderr().print(plan.reason, markup=False)
        return len(plan.keys)

    if consent.yes or (show(done=False) and consent.ask("Delete these objects?")):
        show(done=True)


def _limited(workspace: Workspace) -> Workspace:
    if not is_history_limited(workspace):
        raise click.UsageError(
            "give --before, or set one of catalog.history_age_max, history_revisions_max, history_bytes_max"
        )
    return workspace


@catalog.command("gc")
@click.option(
    "--older-than",
    "older_than_ms",
    type=DURATION,
    default="24h",
    show_default=True,
    help="Only files that were written longer ago.",
)
@click.option(
    "--keep-trash",
    "trash_kept_ms",
    type=DURATION,
    default="7d",
    show_default=True,
    help="How long a file stays in the trash.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Move and delete at most so many files; the next run goes on."
)
@asks_first
@writer_option
@json_option
@click.pass_obj
def gc(
    repository: Path,
    older_than_ms: int,
    trash_kept_ms: int,
    limit: int | None,
    consent: Consent,
    writer: str | None,
    as_json: bool,
) -> None:
    """Move files that no kept revision lists to the trash, and delete what has been there long enough.

    So a file goes in two runs, by default a week apart, and only after `custody catalog prune` took the revisions that
    list it; `custody forget --erase` waits for neither. --older-than must exceed the longest time between the writing
    of a file and its commit.

    \b
    Example:
      custody -r demo catalog gc --dry-run
      custody -r demo catalog gc --yes
    """
    settings, writer_catalog = load_catalog(repository, writer)

    def show(*, done: bool) -> bool:
        if done and iceberg.has_table(writer_catalog.objects):
            # First: no snapshot of the table may name a file that goes.
            workspace = Workspace(settings, writer_catalog.objects.writer)
            iceberg.republish(workspace)
            iceberg.collect_former(workspace)
        garbage = collect_garbage(
            writer_catalog,
            SystemClock(),
            older_than_ms=older_than_ms,
            trash_kept_ms=trash_kept_ms,
            limit=limit,
            dry_run=not done,
        )
        is_some = bool(garbage.moved or garbage.deleted or garbage.restored)
        if as_json:
            print_json(garbage)
            return is_some
        rows = [("to the trash", path) for path in garbage.moved] + [("deleted", path) for path in garbage.deleted]
        rows += [("moved back", path) for path in garbage.restored] + [("too young", path) for path in garbage.young]
        rows += [("not live yet", path) for path in garbage.ahead]
        rows += [("not custody's", path) for path in garbage.unknown]
        sizes = f"{size_text(garbage.moved_bytes)} to the trash, {size_text(garbage.deleted_bytes)} deleted"
        sizes += f", {garbage.left} more wait" if garbage.left else ""
        print_table(sizes if done else f"would be: {sizes}", ("what", "file"), rows, "no files")
        return is_some

    if consent.yes or (show(done=False) and consent.ask("Move and delete these files?")):
        show(done=True)


@catalog.command("publish-iceberg")
@click.option("--writer", "-w", help="Only the events of this writer; default: of all writers.")
@json_option
@click.pass_obj
def publish_iceberg(repository: Path, writer: str | None, as_json: bool) -> None:
    """Publish the live events as Apache Iceberg tables, one for each writer, for engines that know nothing of custody.

    Event logs are listed, not copied. Each kept revision of the catalog, up to iceberg.snapshots_max of the newest,
    is a snapshot. With the setting iceberg.publish each commit does the same. A table that is there is brought up to
    date; done again, nothing changes. Needs the extra iceberg.

    \b
    Example:
      custody -r demo catalog publish-iceberg
    """
    settings = load_settings(repository)
    rows = []
    for each in load_catalogs(repository, writer):
        with working(f"publishing {each.objects.writer}"):
            rows.append(iceberg.publish(Workspace(settings, each.objects.writer)))
    if as_json:
        print_json(rows)
        return
    columns = ("writer", "table", "version#", "revision#", "snapshots#", "from revision#", "written")
    cells = [
        (row.writer, row.location, row.version, row.revision, row.snapshots, row.earliest_revision, row.written)
        for row in rows
    ]
    print_table("", columns, cells, "no writer has committed anything yet")


@catalog.command("repair")
@asks_first
@_accept_loss_option
@writer_option
@json_option
@click.pass_obj
def repair_chain(repository: Path, consent: Consent, accept_loss: bool, writer: str | None, as_json: bool) -> None:
    """Make a damaged catalog readable again, and say what is lost. Damaged objects are moved aside, not deleted.

    What was forgotten or had expired is read from its second copies. If these do not tell, it is refused without
    --accept-loss: answers may give out more afterwards than before.

    \b
    Example:
      custody -r demo catalog repair --dry-run
      custody -r demo catalog repair --yes
    """
    settings, writer_catalog = load_catalog(repository, writer)
    containers = [str(path) for path in settings.repository.containers]
    coming = unpublished_logs(Workspace(settings, writer_catalog.objects.writer))
    plan = plan_repair(writer_catalog, coming)

    def show(*, done: bool) -> None:
        document = {
            "needed": plan.is_needed,
            "good_revision": plan.good.revision,
            "newest_revision": plan.newest,
            "lost_revisions": list(plan.lost),
            "actions_kept": len(plan.actions),
            "files_from_footers": list(plan.from_footers),
            "skipped": list(plan.skipped),
            "damaged_checkpoints": list(plan.checkpoints),
            "last_commit_ms": last_commit_ms(writer_catalog.objects),
            "restored_from_copies": list(plan.restored),
            "may_give_out_more": list(plan.more),
            "done": done and plan.is_needed,
        }
        print_json(document) if as_json else print_table("", ("what", "value"), list(document.items()))

    if not consent.yes:
        show(done=False)
    if consent.yes or (plan.is_needed and consent.ask("Repair the catalog?")):
        require_accepted(plan.more, accept_loss=accept_loss)
        # Planned anew: the catalog may have changed while the user read the plan.
        plan = repair(writer_catalog, SystemClock(), containers, coming)[0]
        show(done=True)
    # The catalog is readable again and lacks revisions: a script must not take that for success.
    if plan.lost:
        sys.exit(CorruptionError.exit_code)


@catalog.command("rebuild")
@asks_first
@_accept_loss_option
@writer_option
@json_option
@click.pass_obj
def rebuild_from_files(
    repository: Path, consent: Consent, accept_loss: bool, writer: str | None, as_json: bool
) -> None:
    """Make the catalog anew from the data files; the old one is moved aside.

    For when the catalog is lost. A log that a readable object of the old catalog lists is listed as it was. Any other
    is read whole and compared with its own checksums. Damaged logs are named, and verify and repair treat them as
    before. Files do not tell what was removed, forgotten, held or expired: tombstones, holds,
    marks and known losses are taken over from those objects of the old catalog that can still be read, also of one that
    an earlier rebuild moved aside, tombstones and marks from their second copies too. Where these cannot tell, it is
    refused without --accept-loss. It is refused while a writer or a step is at work. A damaged catalog is better mended
    with `custody catalog repair`.

    \b
    Example:
      custody -r demo catalog rebuild --dry-run
      custody -r demo catalog rebuild --yes
    """
    settings, writer_catalog = load_catalog(repository, writer)
    containers = [str(path) for path in settings.repository.containers]

    def show(*, done: bool) -> list[str]:
        survivors = salvage(writer_catalog.objects)
        with working("reading the data files"):
            scanned = scan_logs(writer_catalog.objects, survivors, leave_out=survivors.marked)
        document: dict[str, object] = {
            "files": len(scanned.files),
            "events": sum(file.rows for file in scanned.files),
            "skipped": scanned.skipped,
            "damage": scanned.damage,
            "kept": survivors.counts(),
            "lost": rebuild_losses(scanned, survivors, containers),
            "may_give_out_more": survivors.more,
            "done": done,
        }
        if done:
            require_accepted(survivors.more, accept_loss=accept_loss)
            rebuilt = rebuild(writer_catalog, SystemClock(), scanned, containers, survivors)
            document |= {"revision": rebuilt.revision, "set_aside": rebuilt.set_aside}
        print_json(document) if as_json else print_table("", ("what", "value"), list(document.items()))
        return scanned.damage

    damage = [] if consent.yes else show(done=False)
    if consent.ask("Make the catalog anew, and move the old one aside?"):
        # Nobody may commit between the look at the old catalog and the new one.
        with _undisturbed(settings, writer_catalog.objects.writer):
            damage = show(done=True)
    # What is damaged is listed and named: a script must not take that for success.
    if damage:
        sys.exit(CorruptionError.exit_code)


@catalog.command("load")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--reason", default="", help="Why; it stands in the transaction.")
@asks_first
@writer_option
@json_option
@click.pass_obj
def load_state(repository: Path, file: Path, reason: str, consent: Consent, writer: str | None, as_json: bool) -> None:
    """Make the catalog's state that of FILE, an edited `custody catalog dump --state`; - reads from stdin.

    What differs becomes one transaction, which is checked like any other: a line that makes no sense, or that
    contradicts the rest, is refused with its number and the reason, and nothing is changed. Files that are added or
    changed are compared with what lies on disk. A log that a hold may cover is not removed.

    \b
    Example:
      custody -r demo catalog load state.jsonl --dry-run
      custody -r demo catalog load state.jsonl --reason "case 17"
    """
    _, writer_catalog = load_catalog(repository, writer)
    named = "stdin" if str(file) == "-" else str(file)
    data = sys.stdin.buffer.read() if str(file) == "-" else PosixFileSystem().read(file)
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{named} @{error.start}: expected UTF-8, got other bytes.") from error
    plan = plan_load(writer_catalog, lines, named)

    def show(*, revision: int | None) -> None:
        if as_json:
            print_json({"changes": plan.changes, "revision": revision})
            return
        rows = [(each.change, each.kind, each.name, each.line or "", each.effect or "") for each in plan.changes]
        title = "would be changed" if revision is None else f"changed in revision {revision}"
        print_table(title if rows else "", ("what", "kind", "name", "line#", "effect"), rows, "nothing differs")

    if not consent.yes:
        show(revision=None)
    if consent.yes or (plan.changes and consent.ask("Commit these changes?")):
        before = writer_catalog.load().revision
        after = load(writer_catalog, plan, reason).revision
        show(revision=after if after > before else None)


@catalog.command("wipe")
@click.option("--confirm", "named", help="The catalog that is meant, as WRITER/DATABASE; --yes needs it.")
@asks_first
@writer_option
@json_option
@click.pass_obj
def wipe_catalog(repository: Path, named: str | None, consent: Consent, writer: str | None, as_json: bool) -> None:
    """Delete a writer's whole catalog, on purpose and for good.

    Its objects go, whole or damaged, and with them every answer that its logs gave. Logs, journals, contents and index
    shards stay where they are, and so do the second copies of what was forgotten: `custody catalog rebuild` makes a
    catalog of them that hides it still. It is refused while a writer or a step is at work.

    \b
    Example:
      custody -r demo catalog wipe --dry-run
      custody -r demo catalog wipe --yes --confirm main/provenance
    """
    settings, writer_catalog = load_catalog(repository, writer)
    objects = writer_catalog.objects
    name = f"{objects.writer}/{objects.database}"
    # Without a question the name is what stops a script that is in the wrong repository.
    if consent.yes and named is None:
        raise click.UsageError(f"--yes needs the name of the catalog here: --confirm {name}")
    listed = list(objects.list())
    document: dict[str, object] = {
        "catalog": name,
        "where": str(objects),
        "transactions": sum(not item.is_checkpoint for item in listed),
        "checkpoints": sum(item.is_checkpoint for item in listed),
        **_what_goes(writer_catalog),
    }

    def show(*, done: bool) -> None:
        rows = document | {"done": done}
        title = "" if done else f"catalog {name} would be deleted for good"
        print_json(rows) if as_json else print_table(title, ("what", "value"), list(rows.items()))

    if not consent.yes:
        show(done=False)
    if consent.ask(f"Delete the catalog {name} for good?"):
        with _undisturbed(settings, objects.writer):
            wipe(objects, named or name)
            writer_catalog.accept(EMPTY)
        show(done=True)


def _what_goes(writer_catalog: Catalog) -> dict[str, object]:
    """Return what is lost to all queries when a catalog is gone."""
    try:
        state = writer_catalog.load()
    except CustodyError as error:
        return {"unreadable": str(error)}
    events = sum(state.files[path].rows for path in state.files)
    named = {"tombstones": len(state.tombstones), "holds": sorted(state.holds), "known_losses": len(state.losses)}
    return {"files": len(state.files), "events": events, **named}


@contextmanager
def _undisturbed(settings: Settings, writer: str) -> Iterator[None]:
    """Hold what a writer and the steps on its files need, so that nobody else changes its catalog.

    Raises:
        LockedError: a writer lives under this name, or a step, a compaction or a retention is at work.
    """
    fs, clock = PosixFileSystem(), SystemClock()
    lock = lock_path(settings.containers, writer)
    with ExitStack() as held:
        # Where no writer of the name was ever started there is no folder for its lock, and nobody to lock out.
        if fs.exists(lock.parent):
            held.enter_context(fs.lock(lock))
        # All three: a step beside a rebuild or a wipe would commit into half of a catalog.
        for name in (ROLLOVER_LEASE, COMPACT_LEASE, RETENTION_LEASE):
            lease = take_lease(
                settings, writer, Attempt.new("catalog"), name, fs=fs, clock=clock, wait_seconds=0, may_go_back=True
            )
            held.callback(lease.release)
        yield
