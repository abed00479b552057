"""`custody ngsi`: notifications of context brokers on their way to HDFS and Hive.

`check` runs cases of a notification and the files that have to come of it, in memory or end to end; `serve` takes
notifications over HTTP, and `persist` writes them to their files.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Event as Signal

import click
from click.core import ParameterSource

from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import clean, print_json, stderr, stdout
from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import ConfigurationError, ExitCode, LockedError, StorageError
from custody.landing import parse_instant
from custody.lease import Attempt
from custody.ngsi_sink.follow import POLL_SECONDS, Follower, Stopped, enter_when_free, stoppable_sleep
from custody.ngsi_sink.opening import FOLLOWER, OpenSink, open_sink
from custody.ngsi_sink.run import SinkReport
from custody.ngsi_sink.tables import PendingTables
from custody.repository import Repository
from custody.spark.hive import hive_folder
from custody.vfs import PosixFileSystem
from custody_conformance.case import EXPECT, Case, read_cases
from custody_conformance.checking import Verdict, check_cases, profiles, shipped_cases
from custody_conformance.end_to_end import EndToEnd, FsUri
from custody_conformance.in_memory import run
from custody_conformance.job import submitted


@click.group(cls=CommandGroup)
def ngsi() -> None:
    """Take notifications of context brokers to HDFS and Hive."""


@ngsi.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[CASES.json]...")
@click.option("--profile", default=EXPECT, show_default=True, help="Compare with what another system does instead.")
@click.option("--case", "case_ids", multiple=True, help="Run the case with this id only; may be repeated.")
@click.option("--end-to-end", "is_whole", is_flag=True, help="Over HTTP, through journals and the sink, to files.")
@click.option(
    "--base-uri",
    metavar="URI",
    help="With --end-to-end: the folder to write below, file:///…, hdfs://host:8020/… or webhdfs://host:9870/….",
)
@json_option
@click.pass_context
def check(
    ctx: click.Context,
    files: tuple[Path, ...],
    profile: str,
    case_ids: tuple[str, ...],
    is_whole: bool,
    base_uri: str | None,
    as_json: bool,
) -> None:
    """Run cases: a notification with its headers and parameters, and the files and tables that have to come out.

    Without a file the cases that custody brings along are run. Nothing is written anywhere, or with --end-to-end in
    folders that are removed again: on this machine, or below URI. docs/ngsi.md has the form of a case. Exit code 1
    when one fails.

    Where an HDFS wants a login, the settings ngsi.krb5_auth, krb5_user, krb5_password and oauth2_token say which: those
    of the repository, or of the environment (CUSTODY__NGSI__KRB5_PASSWORD), which need no repository.

    \b
    Example:
      custody ngsi check
      custody ngsi check mine.json --profile cygnus-1.9.0 --json
      custody ngsi check mine.json --end-to-end
      custody ngsi check mine.json --end-to-end --base-uri webhdfs://namenode:9870/tmp
      custody -r demo ngsi check --end-to-end --base-uri swebhdfs://namenode/tmp
    """
    if base_uri is not None and not is_whole:
        raise click.UsageError("--base-uri belongs to --end-to-end")
    cases = tuple(case for file in files for case in _read(file)) if files else shipped_cases()
    _require(cases, profile, case_ids)
    chosen = [case for case in cases if not case_ids or case.id in case_ids]
    if base_uri is not None:
        verdicts = list(_verdicts_at(base_uri, _settings(ctx), chosen, files, profile))
    else:
        verdicts = list(check_cases(chosen, profile, EndToEnd().run if is_whole else run))
    failed = [verdict for verdict in verdicts if verdict.is_checked and not verdict.is_passed]
    if as_json:
        print_json(_document(profile, verdicts, chosen))
    else:
        if ignored := _ignored(chosen):
            names = ", ".join(f"{name} ({count} cases)" for name, count in ignored.items())
            stderr().print(clean(f"notice: not known, and passed over: {names}"))
        for verdict in failed:
            stdout().print(clean(f"{verdict.id}  {verdict.title}"))
            for difference in verdict.differences:
                for line in difference.split("\n"):
                    stdout().print(clean(f"    {line}"))
        checked = sum(verdict.is_checked for verdict in verdicts)
        stdout().print(
            f"{len(verdicts)} cases, {checked} checked against {profile}: "
            f"{checked - len(failed)} as expected, {len(failed)} not"
        )
    if failed:
        sys.exit(ExitCode.SOME_WORK_FAILED)


@ngsi.command()
@click.option("--host", help="Address to listen on, instead of receiver.host.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on, instead of receiver.port.")
@click.option("--quiet", "-q", is_flag=True, help="Write no line a request to stderr.")
@click.pass_obj
def serve(repository: Path, host: str | None, port: int | None, quiet: bool) -> None:
    """Take notifications over HTTP until SIGTERM; each is answered with 200 once it is on disk.

    NGSIv2, NGSI-LD and NGSIv1 are posted to ngsi.notification_target. A notification becomes RECEIVE events, one an
    entity, with its body as their content. What cannot be read is answered with 400 and goes to the
    quarantine. The process holds a writer slot.

    \b
    Example:
      custody -r demo ngsi serve --port 5050
    """
    # FastAPI and uvicorn take a second to import, and only this command needs them.
    from custody.serving.application import application
    from custody.serving.door import Services
    from custody.serving.http_server import checked_tokens
    from custody.serving.http_server import serve as serve_app
    from custody.serving.ngsi_door import NgsiDoor
    from custody.serving.serving_access import access_alone

    at = Repository.open(repository)
    overrides = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = at.settings.model_copy(update={"receiver": at.settings.receiver.model_copy(update=overrides)})
    tokens = checked_tokens(settings.root, "receiver", settings.receiver)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING if quiet else logging.INFO, format="%(message)s")
    # The receiver writes a line a request itself.
    logging.getLogger("custody.access").setLevel(logging.WARNING)
    services = Services(at, settings, SystemClock())
    with closing(services), closing(NgsiDoor(services, is_alone=True, tokens=tokens)) as door:
        serve_app(
            application(settings.receiver, [door], access_alone(settings.receiver, tokens)),
            settings.root,
            settings.receiver,
            settings.ngsi.notification_target,
            lambda url: stderr().print(clean(f"custody: notifications are taken at {url}")),
        )
    stderr().print(clean(f"custody: {door.intake.stored} notifications were stored"))


@ngsi.command()
@click.option("--follow", "-f", is_flag=True, help="Go on until SIGTERM, and write each batch when it is due.")
@click.option("--until", help="What arrived before this instant is written, full batch or not.")
@click.option(
    "--poll",
    type=click.FloatRange(0.01, 3600),
    default=POLL_SECONDS,
    show_default=True,
    help="With --follow: seconds between two looks for new notifications.",
)
@click.option("--live-only", is_flag=True, help="Take nothing from journals: wait for the rollover.")
@click.option("--take-over", is_flag=True, help="Take the sink from an attempt that lives; it then ends with 19.")
@json_option
@click.pass_obj
def persist(
    repository: Path, follow: bool, until: str | None, poll: float, live_only: bool, take_over: bool, as_json: bool
) -> None:
    """Write acknowledged notifications to the files of their destinations, without Spark and without a rollover.

    Each line is written once, whoever else writes: `custody run ngsi_to_hdfs` and other followers share one lease. With
    --follow, a process that finds the sink taken waits, and goes on when the other one ends; ngsi.batch_timeout is
    kept to the second. Without it one pass is made, and a taken sink is exit code 14.

    Hive tables are made by the next `custody run ngsi_to_hdfs`. ngsi.backend binary needs Spark, and that command.
    Exit code 1 when something could not be written; with --follow only the reports say so.

    \b
    Example:
      custody -r demo ngsi persist
      custody -r demo ngsi persist --follow --json
    """
    if follow and until is not None:
        raise click.UsageError("--until belongs to a single pass, without --follow")
    at = Repository.open(repository)
    stopped = Signal()
    note = PendingTables(PosixFileSystem(), hive_folder(at.settings)).note if at.settings.ngsi.hive else lambda _: None

    def open_one(is_taken_over: bool) -> AbstractContextManager[OpenSink]:
        return open_sink(
            at,
            Attempt.new(FOLLOWER if follow else "persist"),
            take_over=is_taken_over,
            with_journals=not live_only,
            wait_seconds=0.0 if follow else None,
            sleep=stoppable_sleep(stopped),
            note=note,
        )

    if not follow:
        with open_one(take_over) as opened:
            until_ms = None if until is None else int(parse_instant(until).timestamp() * 1000)
            reports = [*([opened.resubmit()] if opened.is_resubmitted else []), opened.run(until_ms=until_ms)]
        for report in reports:
            _show_run(report, as_json=as_json)
        if any(report.problems for report in reports):
            sys.exit(ExitCode.SOME_WORK_FAILED)
        return
    with _until_signal(stopped), suppress(Stopped), ExitStack() as stack:
        following = enter_when_free(stack, open_one, stopped, _show_wait, take_over=take_over)
        if following is not None:
            stderr().print("custody: the sink is open; batches are written when they are due")
            for report in Follower(following, poll).follow(stopped):
                _show_run(report, as_json=as_json)


@contextmanager
def _until_signal(stopped: Signal) -> Iterator[None]:
    """Set `stopped` at SIGTERM or SIGINT: the batch that is being written comes to its end."""
    former = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _show_wait(error: LockedError) -> None:
    stderr().print(clean(f"custody: {error} This process waits for it."))


def _show_run(report: SinkReport, *, as_json: bool) -> None:
    """Print one run of the sink, a line each."""
    counts = {
        "events": report.events,
        "batches": report.batches,
        "records": report.records,
        "files": report.files,
        "bytes": report.bytes,
        "skipped": report.skipped,
        "quarantined": report.quarantined,
        "deferred": report.deferred,
        "resubmitted": report.resubmitted,
        "waiting": report.waiting,
    }
    if as_json:
        print_json({**counts, "due_ms": report.due_ms, "problems": report.problems})
        return
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    stdout().print(clean(shown or "nothing is due"))
    for problem in report.problems:
        stderr().print(clean(f"custody: {problem}"))


def _settings(ctx: click.Context) -> Settings:
    """Return the settings of the repository; nobody has to have one, unless it is named."""
    root = ctx.find_root()
    # The default folder need not be there; a named one that is not there is a slip.
    is_named = root.get_parameter_source("repository") is not ParameterSource.DEFAULT
    return load_settings(ctx.obj, is_needed=is_named)


def _verdicts_at(
    base_uri: str, settings: Settings, cases: Sequence[Case], files: Sequence[Path], profile: str
) -> Iterator[Verdict]:
    base = FsUri.parse(base_uri)
    if base.backend == "binary":
        # Hadoop's RPC is spoken by the client that Spark brings, so a driver runs them.
        log = logging.getLogger(__name__)
        return submitted(base_uri, settings.root, cases, files, profile, lambda line: log.info("%s", line))
    return check_cases(cases, profile, EndToEnd(base, access=settings.ngsi).run)


def _read(file: Path) -> tuple[Case, ...]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise StorageError(f"{file}: expected a file of cases ({error.strerror})") from error
    return read_cases(data, str(file))


def _require(cases: tuple[Case, ...], profile: str, case_ids: tuple[str, ...]) -> None:
    identifiers = {case.id for case in cases}
    if missing := [identifier for identifier in case_ids if identifier not in identifiers]:
        raise ConfigurationError(f"--case {missing[0]}: expected the id of one of the {len(cases)} cases")
    if not any(case.expected(profile) for case in cases):
        raise ConfigurationError(f"--profile {profile}: expected {', '.join([EXPECT, *profiles(cases)])}")


def _ignored(cases: Sequence[Case]) -> dict[str, int]:
    """Return how many cases have each member that is not known."""
    return dict(sorted(Counter(name for case in cases for name in case.ignored).items()))


def _document(profile: str, verdicts: list[Verdict], cases: Sequence[Case]) -> dict[str, object]:
    return {
        "profile": profile,
        "ignored": _ignored(cases),
        "cases": [
            {
                "id": verdict.id,
                "title": verdict.title,
                "checked": verdict.is_checked,
                "passed": verdict.is_passed,
                "differences": verdict.differences,
            }
            for verdict in verdicts
        ],
        "passed": sum(verdict.is_passed for verdict in verdicts),
        "failed": sum(verdict.is_checked and not verdict.is_passed for verdict in verdicts),
    }
