"""`make demo`: custody's main job on sample events, through a real Airflow and real Spark jobs, shown step by step.

It uses the commands that a user would type, and leaves the repository for more of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.status import Status
from rich.table import Table

from custody.errors import CustodyError
from custody.model import Event
from custody.repository import Repository
from custody.sample import SampleOptions, sample_files
from custody.vfs import PosixFileSystem
from custody_local.airflow import LocalAirflow, find_running, stop_running
from custody_local.airflow_api import AirflowClient, TaskRun
from custody_local.nifi import PORT_NAME, find_client, serving

DAG_ID = "provenance_rollover"
PROJECT = Path(__file__).resolve().parents[2]
_RUN_SECONDS_MAX = 900
_WATCH_SECONDS = 2
"""How often the demo's Airflow looks for journals that wait: they start a run, and nothing else does."""
_MOUNT = "/custody"
_RUNS_DAG_ID = "provenance_runs"
_RUNS_AS_EVENTS = {"CUSTODY_RUN_SPOOL": str(PROJECT / ".local" / "run-spool"), "CUSTODY_RUNS_SCHEDULE": "* * * * *"}
"""Of an Airflow that stays: the events of its runs are kept, and delivered each minute."""
_STARTS_SECONDS_MAX = 60
_POLL_SECONDS = 0.5
_TREE_EVENTS_MAX = 16
_NIFI_EVENTS = 1000
_NIFI_SEED = 8
"""Of the history of other nodes than those whose files are ingested."""


@click.command()
@click.option("--repository", type=click.Path(path_type=Path), default=PROJECT / "repository", show_default=True)
@click.option("--events", type=click.IntRange(min=100), default=10_000, show_default=True, help="Sample events.")
@click.option("--ui", is_flag=True, help="Leave Airflow running at the end.")
@click.option(
    "--database",
    metavar="URL",
    envvar="CUSTODY_LOCAL_DATABASE",
    help="Airflow's database, postgresql+psycopg2://...; SQLite without one.",
)
@click.option("--stop", is_flag=True, help="Only stop an Airflow that an earlier --ui left.")
def main(repository: Path, events: int, ui: bool, database: str | None, stop: bool) -> None:
    """Ingest a sample, run the pipeline in Airflow, and ask the repository some questions."""
    if stop:
        was_running = stop_running(PROJECT / ".local" / "airflow")
        click.echo("stopped" if was_running else "no local Airflow is running", err=True)
        return
    try:
        Demo(repository.resolve(), events, database).run(leave_airflow=ui)
    except CustodyError as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(error.exit_code)


class Demo:
    """One pass over everything; prints as it goes."""

    def __init__(self, repository: Path, events: int, database: str | None) -> None:
        self._folder = repository
        self._events = events
        self._database = database
        self._console = Console(soft_wrap=True, highlight=False)
        self._failed = False

    def run(self, *, leave_airflow: bool) -> None:
        """Do all of it; raises SystemExit(1) when events went missing or a task failed."""
        started = time.monotonic()
        self._title("1. A repository and some events")
        if not (self._folder / "custody.toml").exists():
            self._command("init")
        landing = self._write_sample()
        self._command("ingest", str(landing))
        self._deliver()
        self._title("2. The pipeline, in Airflow: each task is a spark-submit")
        running = find_running(PROJECT / ".local" / "airflow")
        if running is not None:
            stop_running(PROJECT / ".local" / "airflow")
        airflow = LocalAirflow(
            PROJECT,
            repository=self._folder,
            database=self._database,
            settings={
                "CUSTODY_ROLLOVER_SCHEDULE": "",
                "CUSTODY_ROLLOVER_WATCH": str(_WATCH_SECONDS),
                # The pages alone: a door that stores would hold the one writer slot.
                "CUSTODY_SERVE_MOUNT": _MOUNT,
                "CUSTODY__SERVE__DOORS": '["pages"]',
                **(_RUNS_AS_EVENTS if leave_airflow else {}),
            },
            progress=self._say,
        )
        airflow.start()
        try:
            self._run_dag(airflow.client(), then=[_RUNS_DAG_ID] if leave_airflow else [])
            self._title("3. What the repository answers")
            self._questions()
        except BaseException:
            airflow.stop()
            raise
        if not leave_airflow:
            airflow.stop()
        self._closing(airflow if leave_airflow else None, time.monotonic() - started)
        if self._failed:
            sys.exit(1)

    def _write_sample(self) -> Path:
        folder = PROJECT / ".local" / f"sample-{self._events}"
        self._sample(folder, SampleOptions(events=self._events))
        self._say(f"simulated {self._events} events of two NiFi nodes in {folder}")
        return folder

    def _sample(self, folder: Path, options: SampleOptions) -> list[Path]:
        fs = PosixFileSystem()
        fs.make_directory(folder)
        files = []
        for name, data in sample_files(options):
            fs.write_durably(folder / name, data)
            files.append(folder / name)
        return files

    def _deliver(self) -> None:
        """Let a NiFi send events over the network, as its reporting task does."""
        self._say("\na NiFi delivers over the network, with nothing installed in it")
        with self._console.status("looking for NiFi's client"):
            client = find_client(PROJECT)
        folder = PROJECT / ".local" / "sample-nifi"
        with serving(self._folder) as url:
            self._console.print(f"[bold]$ custody site-to-site serve[/bold]   {url}")
            files = self._sample(folder, SampleOptions(events=_NIFI_EVENTS, seed=_NIFI_SEED, nodes=1))
            self._say(f"{client.name} sent {_NIFI_EVENTS} events: {client.deliver(url, files, PROJECT)}")
        self._say(
            "In a NiFi of yours, add a SiteToSiteProvenanceReportingTask (Transport Protocol: HTTP) and type:\n"
            f"  Destination URL   http://HOST:5070/nifi\n  Input Port Name   {PORT_NAME}"
        )

    def _run_dag(self, client: AirflowClient, then: list[str]) -> None:
        """Watch runs until nothing waits any more, at least one; then switch further DAGs on."""
        with client:
            client.wait_for_dag(DAG_ID)
            earlier = {run.run_id for run in client.runs(DAG_ID) if run.has_ended}
            client.unpause(DAG_ID)
            while not self._failed:
                run = self._next_run(client, earlier)
                self._watch(client, run)
                earlier.add(run)
                if not self._is_waiting():
                    break
            for dag_id in then:
                client.wait_for_dag(dag_id)
                client.unpause(dag_id)

    def _next_run(self, client: AirflowClient, earlier: set[str]) -> str:
        """Return the oldest run that is not known; one by hand where the journals start none in time."""
        deadline = time.monotonic() + (_STARTS_SECONDS_MAX if self._is_waiting() else 0)
        while not (runs := [run for run in client.runs(DAG_ID) if run.run_id not in earlier]):
            if time.monotonic() > deadline:
                run_id = client.trigger(DAG_ID)
                self._say(f"triggered {DAG_ID}, run {run_id}")
                return run_id
            time.sleep(_POLL_SECONDS)
        run = runs[-1]
        how = "journals wait, and Airflow started" if run.kind == "asset_triggered" else "Airflow goes on with"
        self._say(f"{how} {DAG_ID}, run {run.run_id}")
        return run.run_id

    def _is_waiting(self) -> bool:
        return any(writer.events_waiting for writer in Repository.open(self._folder).status().writers)

    def _watch(self, client: AirflowClient, run_id: str) -> None:
        """Wait for a run's end and show its tasks; of those that failed, the end of their logs."""
        with self._console.status("waiting for the first task") as status:
            client.wait_for_run(
                DAG_ID,
                run_id,
                timeout_s=_RUN_SECONDS_MAX,
                progress=lambda tasks: _show_progress(status, tasks),
            )
        tasks = client.task_instances(DAG_ID, run_id)
        reports = {t.task_id: client.xcom(DAG_ID, run_id, t.task_id) for t in tasks if t.state == "success"}
        self._show_tasks(tasks, reports)
        for task in tasks:
            if task.state in ("failed", "upstream_failed"):
                self._failed = True
                self._say(f"{task.task_id}: {task.state}")
            if task.state == "failed":
                log = client.task_log(DAG_ID, run_id, task.task_id, try_number=task.try_number)
                self._say("\n".join(log.splitlines()[-40:]))

    def _show_tasks(self, tasks: list[TaskRun], reports: dict[str, object]) -> None:
        table = Table(title="tasks", title_justify="left")
        for name in ("task", "state", "seconds", "events", "in the job, seconds"):
            table.add_column(name, justify="left" if name in ("task", "state") else "right")
        for task in tasks:
            report = reports.get(task.task_id)
            numbers = report if isinstance(report, dict) else {}
            duration = "" if task.duration_s is None else f"{task.duration_s:.1f}"
            events, seconds = numbers.get("events"), numbers.get("seconds")
            table.add_row(
                task.task_id,
                str(task.state),
                duration,
                "" if events is None else str(events),
                "" if seconds is None else f"{seconds:.1f}",
            )
        self._console.print(table)

    def _questions(self) -> None:
        repository = Repository.open(self._folder)
        status = repository.status()
        live = sum(writer.events_live for writer in status.writers)
        stored = sum(writer.events_live + writer.events_waiting for writer in status.writers)
        searchable = repository.search("", limit=1).total
        verdict = "equal" if stored == live == searchable else "NOT EQUAL"
        self._failed |= verdict != "equal"
        self._console.print(f"events ingested {stored} · live {live} · searchable {searchable}: {verdict}")
        self._command("search", "event_type:CLONE AND component_name:route*", "--limit", "5")
        event = self._event_with_small_lineage(repository)
        self._command("event", str(event.event_id))
        self._command("lineage", event.flowfile_uuid)
        self._command("catalog", "log")

    def _event_with_small_lineage(self, repository: Repository) -> Event:
        """Return an event whose lineage branches and still fits a screen, or just the newest one."""
        candidates = [
            stored.event for stored in repository.search("event_type:CLONE OR event_type:FORK", limit=50).events
        ]
        for event in candidates:
            if repository.lineage([event.flowfile_uuid]).events <= _TREE_EVENTS_MAX:
                return event
        return next(iter(candidates), repository.get(0))

    def _command(self, *arguments: str) -> None:
        """Run a command of custody as a user would, and show it."""
        self._console.print(f"\n[bold]$ custody {' '.join(_quoted(argument) for argument in arguments)}[/bold]")
        width = {} if self._console.is_terminal else {"COLUMNS": "160"}
        environ = {**os.environ, **width, "CUSTODY_REPOSITORY": str(self._folder)}
        done = subprocess.run([str(Path(sys.prefix) / "bin" / "custody"), *arguments], env=environ, check=False)
        self._failed |= done.returncode != 0

    def _closing(self, airflow: LocalAirflow | None, seconds: float) -> None:
        self._title(f"Done in {seconds:.0f} s" if not self._failed else "Done, but not all went well (see above)")
        bin_folder = Path(sys.prefix) / "bin"
        self._say(f"The repository is in {self._folder}. Go on with:")
        self._console.print(
            f"  export PATH={bin_folder}:$PATH CUSTODY_REPOSITORY={self._folder}\n"
            "  custody status\n"
            '  custody search "event_type:SEND AND filename:orders*"\n'
            "  custody serve --door pages    # the same in a browser: http://127.0.0.1:5080\n"
            "  custody --help"
        )
        if airflow is not None:
            self._say(f"Airflow: {airflow.url}  user {airflow.user}  password {airflow.password}")
            self._say(
                "What custody knows is there under Browse, Provenance, and in the tab Provenance of a run two minutes "
                f"after its end: {_RUNS_DAG_ID} delivers it."
            )
            self._say(
                f"It runs on until: make stop. {DAG_ID} starts whenever journals wait, after each `custody ingest` for "
                f"example; the other DAGs are paused: switch them on in the page."
            )

    def _title(self, text: str) -> None:
        self._console.rule(text, align="left")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)


def _show_progress(status: Status, tasks: list[TaskRun]) -> None:
    done = sum(task.state in ("success", "skipped") for task in tasks)
    running = [task.task_id for task in tasks if task.state in ("running", "deferred", "up_for_retry")]
    status.update(f"{done} of {len(tasks)} tasks done; now {', '.join(running) or 'between tasks'}")


def _quoted(argument: str) -> str:
    return json.dumps(argument) if " " in argument else argument


if __name__ == "__main__":
    main()
