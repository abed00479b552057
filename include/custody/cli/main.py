"""The command `custody`: which commands there are, and where; each is imported when it is used."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from custody.cli.error_report import Program
from custody.cli.groups import CommandPlace
from custody.errors import ExitCode


def _place(where: str, short_help: str) -> CommandPlace:
    module, attribute = where.split(":")
    return CommandPlace(f"custody.cli.{module}", attribute, short_help)


# The texts are the first sentences of the commands' docstrings, so that help needs none of their modules.
_PLACES = {
    "airflow-runs": _place(
        "airflow_runs_cmd:airflow_runs", "Look at the events of Airflow's runs, and add those that its listener lost."
    ),
    "attest": _place(
        "verify_cmd:attest_head",
        "Sign the newest revision, for an auditor to keep; `custody verify --against` checks it later.",
    ),
    "backup": _place(
        "backup_cmd:backup",
        "Back the repository up in TARGET, a folder or the URL of a bucket, while events are stored and passes run.",
    ),
    "catalog": _place(
        "catalog_change_cmd:catalog", "Look at the catalog, which says what is live, and take care of it."
    ),
    "compact": _place(
        "compact_cmd:compact",
        "Write live logs anew without the events that were forgotten, and small neighbours as one log.",
    ),
    "containers": _place(
        "containers_cmd:containers", "Look at the containers of all writers, forget a lost one, claim a name."
    ),
    "content": _place("content_cmd:content", "Read the contents that events speak of."),
    "erasures": _place(
        "erasures_cmd:erasures",
        "Print the requests of `custody forget --erase`, or with ID what was removed or overwritten where.",
    ),
    "event": _place("events_cmd:event", "Print the event with the id EVENT_ID in full."),
    "events": _place(
        "events_cmd:events", "Print events in the order of their ids, those included that are not live yet."
    ),
    "example": _place(
        "example_cmd:example", "Run a whole flow to try things with: steps, queues, contents and events."
    ),
    "export": _place("export_cmd:export", "Deliver events to the receivers NAMES of the settings, or to all of them."),
    "forget": _place(
        "forget_cmd:forget",
        "Let no answer give out events that fulfil all conditions given; later events are not meant.",
    ),
    "handoff": _place(
        "handoff_cmd:handoff",
        "Hand sealed groups and contents of this machine over to the store, and say what is not handed over yet.",
    ),
    "hold": _place("hold_cmd:hold", "Keep events from being expired or erased, whatever the settings say."),
    "index": _place("index_cmd:index", "Take care of the search index."),
    "ingest": _place("ingest_cmd:ingest", "Store the events of FILES, each event once."),
    "init": _place("init_cmd:init", "Make a repository in FOLDER (or in --repository)."),
    "jobs": _place(
        "jobs_cmd:jobs",
        "Print long work that was begun in the pages or by the API, newest first, and how far each is.",
    ),
    "landing": _place(
        "landing_cmd:landing",
        "Print the files in the landing folders of an interval: which wait, and what became of the others.",
    ),
    "lineage": _place(
        "lineage_cmd:lineage",
        "Print the lineage of WHAT: a FlowFile's uuid, an alternate identifier of it, or the id of an event of it.",
    ),
    "ngsi": _place("ngsi_cmd:ngsi", "Take notifications of context brokers to HDFS and Hive."),
    "plan": _place(
        "plan_cmd:plan", "Say what a repository becomes with so many events a day, what breaks first, and what helps."
    ),
    "quarantine": _place("quarantine_cmd:quarantine", "Look at rejected input and try it again."),
    "queue": _place(
        "queue_cmd:queue", "Look at the queues in which FlowFiles wait, make them, change their bounds, empty them."
    ),
    "recover": _place(
        "recover_cmd:recover",
        "Deal with what interrupted work left: seal a dead writer's journals, remove what no transaction lists.",
    ),
    "repair": _place(
        "repair_cmd:repair",
        "Look at everything as `custody verify` does, print what would mend it, and do that.",
    ),
    "replay": _place("replay_cmd:replay", "Send FlowFiles again into the queues that they came from, each once."),
    "restore": _place(
        "backup_cmd:restore",
        "Make a repository in FOLDER, which has to be empty, of a backup in TARGET, and verify it.",
    ),
    "retention": _place("retention_cmd:retention", "Let events go that are too old, or for which there is no room."),
    "run": _place("run_cmd:run", "Submit the Spark job of STEP, or do its work in this process with --local."),
    "runs": _place(
        "runs_cmd:runs",
        "Print the runs of steps whose reports are kept, newest first; or what the steps of RUN, one of them, did.",
    ),
    "sample": _place("sample_cmd:sample", "Write files of simulated NiFi provenance events into FOLDER."),
    "scrub": _place(
        "scrub_cmd:scrub", "Read the part of the repository that is due, and keep how far it is and what was found."
    ),
    "search": _place(
        "search_cmd:search", "Print the events that match QUERY, newest first; without QUERY all of them."
    ),
    "serve": _place(
        "serve_cmd:serve",
        "Take events over HTTP from all kinds of producers until SIGTERM; each is durable before it is answered.",
    ),
    "spool": _place(
        "spool_cmd:spool", "Look at the spools of producers, and deliver them to a server or into a repository."
    ),
    "site-to-site": _place(
        "site_to_site_cmd:site_to_site", "Take provenance from NiFi's own reporting task, over Site-to-Site."
    ),
    "sql": _place(
        "sql_cmd:sql",
        "Print the rows of QUERY, one SELECT over all events of all writers, those included that are not live yet.",
    ),
    "status": _place(
        "status_cmd:status",
        "Show what is live, what waits, what is in the quarantine, and the room that all of it takes.",
    ),
    "swh": _place("swh_cmd:swh", "Where was this content? The provenance tables of Software Heritage (docs/swh.md)."),
    "tokens": _place(
        "tokens_cmd:tokens",
        "Make, list and revoke the tokens that `custody serve` asks for; changes count within a second.",
    ),
    "verify": _place(
        "verify_cmd:verify_all",
        "Look at everything on containers and store, and name each defect, what it costs and what mends it.",
    ),
    "writers": _place(
        "writers_cmd:writers",
        "List writers, place one in a store of its own, retire one that is done, take up the retired in an archive.",
    ),
}


@click.group(cls=Program, places=_PLACES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="custody")
@click.option(
    "--repository",
    "-r",
    envvar="CUSTODY_REPOSITORY",
    type=click.Path(path_type=Path),
    default=Path("repository"),
    show_default=True,
    help="Folder of the repository.",
)
@click.pass_context
def cli(ctx: click.Context, repository: Path) -> None:
    """Keep, search and prove the chain of custody of data.

    \b
    Example:
      custody init demo
      custody -r demo ingest provenance-*.json
      custody -r demo run all
      custody -r demo search "event_type:SEND AND filename:orders*"

    A command that deletes or overwrites shows its plan and asks. With --yes it does not ask, with --dry-run it only
    shows the plan. Commands of the daily work, such as ingest, run or recover, act at once.

    Exit codes: 0 done, 1 some work failed, 2 wrong usage, 10 to 23 an error of custody, 130 interrupted (docs/cli.md).
    """
    ctx.obj = repository


class _NoPandas:
    """Refuses pandas, which pyarrow imports where it is installed, to see whether a value is one of its.

    That takes longer than all other imports together, and no command has such values. Only the installed command does
    so, in a process that is its own: a program that uses custody as a library keeps its pandas.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed by custody", name=name)


def main() -> None:
    """Entry point of the installed command."""
    sys.meta_path.insert(0, _NoPandas)
    # To look for plugins, pydantic reads the metadata of every installed package; the settings have none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        cli()
    except SystemExit as ended:
        if ended.code == ExitCode.OUTPUT_UNREAD:
            # A reader goes away in the middle of the work, when threads of libraries still run: to take the process
            # down in order then aborts now and then ("terminate called without an active exception"). Nothing is left
            # to be said or written.
            os._exit(ExitCode.OUTPUT_UNREAD)
        raise
