"""`custody airflow-runs`: which run wrote a file, how far runs of Airflow's are known, and what was lost of them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from custody.cli.groups import CommandGroup
from custody.cli.options import answering_own, as_of_option, json_option
from custody.cli.output import clean, print_json, print_table, stderr, time_text
from custody.cli.spool_cmd import TOKEN_VARIABLE, open_sender, read_token
from custody.errors import ConfigurationError, ExitCode
from custody.format.names import name_as_text

if TYPE_CHECKING:
    from custody.airflow_runs import Credentials
    from custody.model import Event
    from custody.read.time_travel import AsOf

PASSWORD_VARIABLE = "CUSTODY_AIRFLOW_PASSWORD"  # noqa: S105 - the name of a variable
AIRFLOW_TOKEN_VARIABLE = "CUSTODY_AIRFLOW_TOKEN"  # noqa: S105 - the name of a variable
_ATTRIBUTES = ("dag_id", "run_id", "task_id", "map_index", "try_number", "log_url")
_RUNS_MAX = 1000
# A pattern has no quotes: any sign stands for one that it cannot have.
_NO_PATTERN = re.compile(r"[^\w.%+-]")


@click.group(cls=CommandGroup)
def airflow_runs() -> None:
    """Look at the events of Airflow's runs, and add those that its listener lost."""


@airflow_runs.command()
@click.argument("file")
@click.option("--limit", "-n", type=click.IntRange(1, _RUNS_MAX), default=20, show_default=True, help="Tries to print.")
@json_option
@click.pass_obj
def wrote(repository: Path, file: str, limit: int, as_json: bool) -> None:
    """Print the tries of tasks that wrote FILE, newest first: a URI, an absolute path, or the name of a file.

    \b
    Example:
      custody -r demo airflow-runs wrote /data/report.parquet
      custody -r demo airflow-runs wrote report.parquet --json
    """
    answer = answering_own(repository).search(_question(file), limit=limit)
    rows = [_row(stored.event) for stored in answer.events]
    times = [time_text(stored.event.event_time) for stored in answer.events]
    if as_json:
        print_json({"total": answer.total, "tries": rows, "notices": list(answer.notices)})
        return
    for notice in answer.notices:
        stderr().print(clean(f"custody: {notice}"))
    columns = ("time", "dag", "run", "task", "map", "try", "file", "log")
    shown = ("dag_id", "run_id", "task_id", "map_index", "try_number", "file", "log_url")
    print_table(
        f"{answer.total} tries wrote it",
        columns,
        [(time, *(row[name] or "" for name in shown)) for time, row in zip(times, rows, strict=True)],
    )


def _question(file: str) -> str:
    """Return the query for what wrote a file; the colon keeps a URI, the slash a path from being taken for a name."""
    ours = "component_type:AirflowTask AND event_type:SEND AND transit_uri:"
    if "/" not in file:
        return f"{ours}*/{_NO_PATTERN.sub('?', file)}"
    path = Path(file).absolute()
    # A path is told as it is, or with signs written as `%20`.
    uris = [file] if "://" in file else [path.as_uri(), f"file://{path}"]
    quoted = " OR ".join('"{}"'.format(uri.replace('"', '""')) for uri in dict.fromkeys(uris))
    return f"{ours}({quoted})"


def _row(event: Event) -> dict[str, str | int | None]:
    known = event.updated_attributes
    named: dict[str, str | int | None] = {name: known.get(f"airflow.{name}") for name in _ATTRIBUTES}
    return {**named, "event_time": event.event_time, "file": event.transit_uri}


@airflow_runs.command("list")
@click.argument("dag", required=False)
@click.option("--limit", "-n", type=click.IntRange(1, _RUNS_MAX), default=20, show_default=True, help="Runs to print.")
@as_of_option
@click.option("--writer", "-w", help="Only what is told by this writer's events.")
@json_option
@click.pass_obj
def list_runs(
    repository: Path, dag: str | None, limit: int, as_of: AsOf | None, writer: str | None, as_json: bool
) -> None:
    """Print the newest runs of all DAGs, or of DAG alone.

    \b
    Example:
      custody -r demo airflow-runs list
      custody -r demo airflow-runs list orders --limit 5 --json
    """
    from custody.serving.dag_runs import dag_runs

    known = dag_runs(answering_own(repository), dag, limit, writer, as_of)
    if as_json:
        print_json(known)
        return
    for notice in known.notices:
        stderr().print(clean(f"custody: {notice}"))
    rows = [
        (one.dag_id, one.run_id, one.state, time_text(one.started_ms), time_text(one.ended_ms)) for one in known.items
    ]
    print_table("", ("dag", "run", "state", "started", "ended"), rows, "no run is known")


@airflow_runs.command()
@click.argument("dag")
@click.argument("run")
@click.option("--task", help="Only what this task did.")
@click.option("--map-index", type=click.IntRange(min=-1), help="Only this one of a mapped task; -1 is one that is not.")
@as_of_option
@click.option("--writer", "-w", help="Only what is told by this writer's events.")
@json_option
@click.pass_obj
def show(
    repository: Path,
    dag: str,
    run: str,
    task: str | None,
    map_index: int | None,
    as_of: AsOf | None,
    writer: str | None,
    as_json: bool,
) -> None:
    """Print what the run RUN of DAG, or a task of it, read and wrote, and the events that say so.

    \b
    Example:
      custody -r demo airflow-runs show orders manual__2026-03-01
      custody -r demo airflow-runs show orders manual__2026-03-01 --task sort --json
    """
    from custody.read.time_travel import as_of_text
    from custody.serving.content_place import ContentPlaces
    from custody.serving.dag_runs import dag_run

    own = answering_own(repository)
    places = ContentPlaces(own.settings.content_store, None if as_of is None else as_of_text(as_of))
    known = dag_run(own, places, dag, run, task, map_index, writer, as_of)
    if as_json:
        print_json(known)
        return
    for notice in known.notices:
        stderr().print(clean(f"custody: {notice}"))
    if known.is_cut:
        stderr().print(clean(f"custody: more than these {len(known.events)} events are told of it"))
    for title, assets in (("wrote", known.wrote), ("read", known.read)):
        rows = [
            (
                *(one.name or one.flowfile_uuid, one.component, time_text(one.time_ms), one.writer, one.event_id),
                len(one.contents or ()),
            )
            for one in assets
        ]
        columns = ("what", "component", "time", "writer", "event#", "contents#")
        print_table(title, columns, rows, "nothing that is known")
    told = [
        (one.writer, one.event_id, time_text(one.time_ms), one.event_type, one.component, one.state)
        for one in known.events
    ]
    print_table("events", ("writer", "event#", "time", "type", "component", "state"), told, "no event tells of it")


@airflow_runs.command()
@click.argument("spool", type=click.Path(path_type=Path))
@json_option
def status(spool: Path, as_json: bool) -> None:
    """Print what waits in the listener's SPOOL, and how far its runs were reconciled; nothing is changed.

    \b
    Example:
      custody airflow-runs status "$CUSTODY_RUN_SPOOL"
      custody airflow-runs status /var/spool/airflow --json
    """
    from custody.airflow_runs import read_cursor
    from custody.client import spool_state

    state, cursor = spool_state(spool), read_cursor(spool)
    until = None if cursor is None else cursor.until_ms
    if as_json:
        document = {
            "folder": name_as_text(str(spool)),
            "deployment": None if cursor is None else cursor.deployment,
            "reconciled_until_ms": until,
            "waiting_events": state.waiting_events,
            "waiting_bytes": state.waiting_bytes,
            "refused": state.refused,
        }
        print_json(document)
        return
    row = (str(spool), state.waiting_events, state.waiting_bytes, state.refused, time_text(until) if until else "never")
    print_table("", ("spool", "events#", "bytes#", "refused#", "reconciled until"), [row])


@airflow_runs.command()
@click.argument("spool", type=click.Path(path_type=Path))
@click.option("--airflow", "url", required=True, metavar="URL", help="Airflow's web server.")
@click.option("--user", default="", help="Of Airflow, who may read runs, tasks and assets.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    help=f"File with the user's password alone; else {PASSWORD_VARIABLE} has it.",
)
@click.option(
    "--airflow-token-file",
    type=click.Path(path_type=Path),
    help=f"File with a token of Airflow's instead of user and password; else {AIRFLOW_TOKEN_VARIABLE} has it.",
)
@click.option(
    "--airflow-authority", type=click.Path(path_type=Path), help="Certificates (PEM) to check Airflow's with."
)
@click.option("--deployment", default="airflow", show_default=True, help="Name of this Airflow in the events.")
@click.option("--since", help="Look from this instant on, ISO 8601, instead of from where the last pass ended.")
@click.option(
    "--settle",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds that the newest changes wait for the next pass: Airflow may commit what it dated before.",
)
@click.option("--to", "server", metavar="URL", help="Server of custody; without it the repository takes the events.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help=f"File with the server's token alone; else {TOKEN_VARIABLE} has it.",
)
@click.option("--authority", type=click.Path(path_type=Path), help="Certificates (PEM) to check the server's with.")
@json_option
@click.pass_obj
def reconcile(
    repository: Path,
    spool: Path,
    url: str,
    user: str,
    password_file: Path | None,
    airflow_token_file: Path | None,
    airflow_authority: Path | None,
    deployment: str,
    since: str | None,
    settle: float,
    server: str | None,
    token_file: Path | None,
    authority: Path | None,
    as_json: bool,
) -> None:
    """Deliver the listener's SPOOL, then add what Airflow's REST API knows of its runs besides.

    A pass goes on where the last one ended, which a file in SPOOL says; the first one begins a day ago. What the
    listener told of before counts as repeated, what it lost as stored. The files that custody's own steps wrote come
    from the repository, where that takes the events.

    \b
    Example:
      custody -r demo airflow-runs reconcile spool --airflow https://airflow.example --user custody --password-file pw
      custody airflow-runs reconcile spool --airflow http://127.0.0.1:8080 --user admin --to https://custody.example
    """
    from custody.airflow_runs import AirflowApi, Reconciliation
    from custody.client import DeliverySummary, SpoolDelivery
    from custody.client.spool import IDENTITY
    from custody.landing import parse_instant

    since_ms = None if since is None else int(parse_instant(since).timestamp() * 1000)
    api = AirflowApi(url, _credentials(user, password_file, airflow_token_file), authority=airflow_authority)
    with open_sender(repository, spool, server, token_file, authority, patience=300.0) as sender:
        has_spool = (spool / IDENTITY).exists()
        delivered = SpoolDelivery(spool, sender).deliver() if has_spool else DeliverySummary()
        reconciliation = Reconciliation(
            api,
            sender,
            spool,
            deployment=deployment,
            reports=None if server is not None else _reports_folder(repository),
            settle_ms=round(settle * 1000),
            progress=_said if stderr().is_terminal else lambda _: None,
        )
        report = reconciliation.run(since_ms)
    if as_json:
        print_json(msgspec.to_builtins(report) | {"delivered": msgspec.to_builtins(delivered)})
    else:
        row = (report.runs, report.tries, report.stored, report.repeated, report.rejected, time_text(report.until_ms))
        print_table("", ("runs#", "tries#", "lost#", "known#", "rejected#", "until"), [row])
    if report.rejected or delivered.rejected or delivered.refused:
        sys.exit(ExitCode.SOME_WORK_FAILED)


def _said(events: int) -> None:
    stderr().print(clean(f"custody: {events} events of runs looked at"))


def _reports_folder(repository: Path) -> Path:
    from custody.config import load_settings

    return load_settings(repository).runs


def _credentials(user: str, password_file: Path | None, token_file: Path | None) -> Credentials:
    from custody.airflow_runs import Credentials

    token = read_token(token_file, AIRFLOW_TOKEN_VARIABLE)
    if token is not None:
        return Credentials(token=token)
    if not user:
        raise ConfigurationError("expected --user, or a token of Airflow's: it says nothing of its runs to strangers.")
    return Credentials(user=user, password=_password(password_file))


def _password(file: Path | None) -> str:
    if file is None:
        return os.environ.get(PASSWORD_VARIABLE, "")
    try:
        # Everything but the end of the line counts: a password may begin or end with a space.
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: expected a file with a password: {error}") from None
