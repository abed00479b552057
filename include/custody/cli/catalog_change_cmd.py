"""`custody catalog`: the commands that write, move or delete. What goes for good asks for --yes."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import click

from custody.catalog import (
    Catalog,
    collect,
    last_commit_ms,
    plan_prune,
    plan_repair,
    prune,
    rebuild,
    repair,
    scan,
    surviving,
    what_is_lost,
    wipe,
)
from custody.cli.catalog_cmd import catalog
from custody.cli.catalogs import (
    accept_loss_option,
    confirm,
    dry_run_option,
    duration_ms,
    opened,
    revision_of,
    undisturbed,
    yes_option,
)
from custody.cli.output import json_option, print_json, print_table, size_text, stderr, writer_option
from custody.clock import SystemClock
from custody.config.parsing import is_local
from custody.errors import CustodyError
from custody.maintenance.repair import require_accepted, unpublished_logs
from custody.workspace import Workspace

__all__ = ["catalog"]  # the group, with the commands of this module
_CORRUPT = 20


@catalog.command("checkpoint")
@click.option("--if-due", is_flag=True, help="Only when catalog.checkpoint_every says so.")
@writer_option
@json_option
@click.pass_obj
def checkpoint(repository: Path, if_due: bool, writer: str | None, as_json: bool) -> None:
    """Write a checkpoint of the newest revision, read it back, and print where it lies.

    \b
    Example:
      custody -r demo catalog checkpoint
    """
    settings, found = opened(repository, writer)
    if if_due and not found.checkpoint_due(settings.catalog.checkpoint_every):
        print_json({"written": False}) if as_json else stderr().print("no checkpoint is due")
        return
    made = found.write_checkpoint()
    where = found.objects.store.locate(made.key)
    if as_json:
        print_json({"written": True, "path": where, "size_bytes": made.size_bytes})
    else:
        print_table("", ("checkpoint", "bytes#"), [(where, made.size_bytes)])


@catalog.command("prune")
@click.option("--before", required=True, help="Earliest revision, or time, that has to stay readable.")
@dry_run_option
@yes_option
@writer_option
@json_option
@click.pass_obj
def prune_front(repository: Path, before: str, dry_run: bool, yes: bool, writer: str | None, as_json: bool) -> None:
    """Forget the oldest revisions; from --before on everything stays readable.

    One readable checkpoint at the new beginning and two later ones are kept, so less may go than was asked for. Data
    files stay until `custody catalog gc`.

    \b
    Example:
      custody -r demo catalog prune --before 2026-01-01 --dry-run
    """
    doing = confirm(yes=yes, dry_run=dry_run)
    _, found = opened(repository, writer)
    revision = revision_of(found, before)
    plan = prune(found, revision) if doing else plan_prune(found, revision)
    if as_json:
        print_json({"earliest_revision": plan.floor, "objects": list(plan.keys), "reason": plan.reason, "done": doing})
        return
    verb = "deleted" if doing else "to delete"
    print_table(f"earliest revision {plan.floor}; {len(plan.keys)} objects {verb}", ("object",), zip(plan.keys))
    if plan.reason:
        stderr().print(plan.reason, markup=False)


@catalog.command("gc")
@click.option("--older-than", default="24h", show_default=True, help="Only files that were written longer ago.")
@click.option("--keep-trash", default="7d", show_default=True, help="How long a file stays in the trash.")
@click.option(
    "--limit", type=click.IntRange(min=1), help="Move and delete at most so many files; the next run goes on."
)
@dry_run_option
@yes_option
@writer_option
@json_option
@click.pass_obj
def gc(
    repository: Path,
    older_than: str,
    keep_trash: str,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    writer: str | None,
    as_json: bool,
) -> None:
    """Move files that no kept revision lists to the trash, and delete what has been there long enough.

    --older-than must exceed the longest time between the writing of a file and its commit.

    \b
    Example:
      custody -r demo catalog gc --dry-run
    """
    doing = confirm(yes=yes, dry_run=dry_run)
    _, found = opened(repository, writer)
    made = collect(
        found,
        SystemClock(),
        older_than_ms=duration_ms(older_than),
        trash_kept_ms=duration_ms(keep_trash),
        limit=limit,
        dry_run=not doing,
    )
    if as_json:
        print_json(made)
        return
    rows = [("to the trash", path) for path in made.moved] + [("deleted", path) for path in made.deleted]
    rows += [("moved back", path) for path in made.restored] + [("too young", path) for path in made.young]
    rows += [("not custody's", path) for path in made.unknown]
    sizes = f"{size_text(made.moved_bytes)} to the trash, {size_text(made.deleted_bytes)} deleted"
    sizes += f", {made.left} more wait" if made.left else ""
    print_table(sizes if doing else f"would be: {sizes}", ("what", "file"), rows, "no files")


@catalog.command("repair")
@dry_run_option
@yes_option
@accept_loss_option
@writer_option
@json_option
@click.pass_obj
def repair_chain(
    repository: Path, dry_run: bool, yes: bool, accept_loss: bool, writer: str | None, as_json: bool
) -> None:
    """Make a damaged catalog readable again; says what is lost. Damaged objects are moved aside, not deleted.

    What was forgotten or had expired is taken from its second copies. Where these cannot tell, it is refused without
    --accept-loss: answers may give out more afterwards than before.

    \b
    Example:
      custody -r demo catalog repair --dry-run
    """
    doing = confirm(yes=yes, dry_run=dry_run)
    settings, found = opened(repository, writer)
    containers = [str(path) for path in settings.repository.containers]
    local = is_local(settings.repository.store)  # elsewhere no pipeline writes logs so far
    coming = unpublished_logs(Workspace(settings, found.objects.writer)) if local else set()
    plan = plan_repair(found, coming)
    if doing:
        require_accepted(plan.more, accept_loss=accept_loss)
        plan = repair(found, SystemClock(), containers, coming)[0]
    document = {
        "needed": plan.is_needed,
        "good_revision": plan.good.revision,
        "newest_revision": plan.newest,
        "lost_revisions": list(plan.lost),
        "actions_kept": len(plan.actions),
        "files_from_footers": list(plan.from_footers),
        "skipped": list(plan.skipped),
        "damaged_checkpoints": list(plan.checkpoints),
        "last_commit_ms": last_commit_ms(found.objects),
        "restored_from_copies": list(plan.restored),
        "may_give_out_more": list(plan.more),
        "done": doing and plan.is_needed,
    }
    if as_json:
        print_json(document)
    else:
        print_table("", ("what", "value"), list(document.items()))
    if plan.lost:
        sys.exit(_CORRUPT)


@catalog.command("rebuild")
@click.option("--hashes", is_flag=True, help="Read the files whole, for their digests; else only their footers.")
@dry_run_option
@yes_option
@accept_loss_option
@writer_option
@json_option
@click.pass_obj
def rebuild_from_files(
    repository: Path, hashes: bool, dry_run: bool, yes: bool, accept_loss: bool, writer: str | None, as_json: bool
) -> None:
    """Make the catalog anew from the footers of the data files; the old one is moved aside.

    For when the catalog is lost. Files do not tell what was removed, forgotten, held or expired: tombstones, holds,
    marks and known losses are taken over from those objects of the old catalog that can still be read, also of one that
    an earlier rebuild moved aside, tombstones and marks from their second copies too. Where these cannot tell, it is
    refused without --accept-loss. It is refused while a writer or a step is at work. A damaged catalog is better mended
    with `custody catalog repair`.

    \b
    Example:
      custody -r demo catalog rebuild --dry-run
    """
    doing = confirm(yes=yes, dry_run=dry_run)
    settings, found = opened(repository, writer)
    containers = [str(path) for path in settings.repository.containers]
    with undisturbed(settings, found.objects.writer) if doing else nullcontext():
        kept = surviving(found.objects)
        scanned = scan(found.objects, hashes=hashes, leave_out=kept.marked)
        document: dict[str, object] = {
            "files": len(scanned.files),
            "events": sum(file.rows for file in scanned.files),
            "skipped": scanned.skipped,
            "kept": kept.counts(),
            "lost": what_is_lost(scanned, kept, containers),
            "may_give_out_more": kept.more,
            "done": doing,
        }
        if doing:
            require_accepted(kept.more, accept_loss=accept_loss)
            made = rebuild(found, SystemClock(), scanned, containers, kept)
            document |= {"revision": made.revision, "set_aside": made.set_aside}
    if as_json:
        print_json(document)
    else:
        print_table("", ("what", "value"), list(document.items()))


@catalog.command("wipe")
@click.option(
    "--confirm", "named", help="The catalog that is meant, as WRITER/DATABASE; without this nothing is changed."
)
@writer_option
@json_option
@click.pass_obj
def wipe_catalog(repository: Path, named: str | None, writer: str | None, as_json: bool) -> None:
    """Delete a writer's whole catalog, on purpose and for good; without --confirm only say what would go.

    Its objects go, whole or damaged, and with them every answer that its logs gave. Logs, journals, contents and index
    shards stay where they are, and so do the second copies of what was forgotten: `custody catalog rebuild` makes a
    catalog of them that hides it still. It is refused while a writer or a step is at work.

    \b
    Example:
      custody -r demo catalog wipe
      custody -r demo catalog wipe --confirm main/provenance
    """
    settings, found = opened(repository, writer)
    objects = found.objects
    listed = list(objects.list())
    document: dict[str, object] = {
        "catalog": f"{objects.writer}/{objects.database}",
        "where": str(objects),
        "transactions": sum(not item.is_checkpoint for item in listed),
        "checkpoints": sum(item.is_checkpoint for item in listed),
        **_what_goes(found),
        "done": named is not None,
    }
    if named is not None:
        with undisturbed(settings, objects.writer):
            wipe(objects, named)
    if as_json:
        print_json(document)
    else:
        title = "" if named is not None else f"nothing is deleted without --confirm {document['catalog']}"
        print_table(title, ("what", "value"), list(document.items()))


def _what_goes(found: Catalog) -> dict[str, object]:
    """Return what nobody is told of any more when a catalog is gone."""
    try:
        state = found.load()
    except CustodyError as error:
        return {"unreadable": str(error)}
    events = sum(state.files[path].rows for path in state.files)
    named = {"tombstones": len(state.tombstones), "holds": sorted(state.holds), "known_losses": len(state.losses)}
    return {"files": len(state.files), "events": events, **named}
