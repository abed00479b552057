"""The Spark job of `custody ngsi check --base-uri hdfs://…`: runs cases end to end with Spark's HDFS client.

One driver runs all cases, each with a repository of its own, and prints a line of JSON for each verdict. `submitted`
is the other side: it submits the job and reads the verdicts.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from custody.config import load_settings
from custody.errors import ConfigurationError, CustodyError
from custody.spark.hdfs import rpc_files
from custody.spark.session import start_session
from custody.spark.submit import run_submitted, step_command
from custody_conformance.case import EXPECT, Case, read_cases
from custody_conformance.checking import Verdict, check_cases, shipped_cases
from custody_conformance.end_to_end import EndToEnd, FsUri

NAME = "ngsi_check"
_MESSAGE_PREFIX = "custody: "
_VERDICT_PREFIX = '{"verdict":'
_VERDICT = msgspec.json.Decoder(dict[str, Verdict])


def main(argv: Sequence[str] | None = None) -> int:
    """Run cases; print a line for each verdict and return the process's exit code, 0 also where some fail."""
    arguments = _parser().parse_args(argv)
    try:
        base = FsUri.parse(arguments.base_uri)
        access = load_settings(arguments.repository, is_needed=False).ngsi
        files = [read_cases(file.read_bytes(), str(file)) for file in arguments.files]
        cases = [case for file in files for case in file] if files else shipped_cases()
        session = start_session(NAME)
        try:
            run_one = EndToEnd(base, rpc_files(session), access).run
            chosen = [case for case in cases if not arguments.case or case.id in arguments.case]
            for verdict in check_cases(chosen, arguments.profile, run_one):
                # Written and flushed one by one: where the job dies later, the verdicts so far are known.
                sys.stdout.write(f"{msgspec.json.encode({'verdict': asdict(verdict)}).decode()}\n")
                sys.stdout.flush()
        finally:
            session.stop()
    except CustodyError as error:
        sys.stderr.write(f"{_MESSAGE_PREFIX}{error}\n")
        return error.exit_code
    return 0


def submitted(
    base_uri: str,
    repository: Path,
    cases: Sequence[Case],
    files: Sequence[Path],
    profile: str,
    on_line: Callable[[str], None],
) -> Iterator[Verdict]:
    """Submit the job; yield the verdict on each case, in their order, and one that says why for those that it left out.

    `files` are those that the cases were read from, none for the shipped ones; `on_line` gets what else the job says.
    The settings of the repository say who logs in, so that no password is on a command line.

    Raises:
        ConfigurationError: nobody can log in there, or something else of the job has to be set up first.
    """
    arguments = [
        f"--base-uri={base_uri}",
        f"--repository={repository}",
        f"--profile={profile}",
        *(f"--case={case.id}" for case in cases),
    ]
    command = step_command(NAME, [*arguments, *(str(file.absolute()) for file in files)], master="local[1]")
    verdicts: dict[str, Verdict] = {}

    def read(line: str) -> None:
        if line.startswith(_VERDICT_PREFIX):
            verdict = _VERDICT.decode(line)["verdict"]
            verdicts[verdict.id] = verdict
        else:
            on_line(line)

    code, tail = run_submitted(command, read, os.environ)
    if code == ConfigurationError.exit_code and not verdicts:
        messages = [line.removeprefix(_MESSAGE_PREFIX) for line in tail if line.startswith(_MESSAGE_PREFIX)]
        raise ConfigurationError("\n".join(messages) or f"the job {NAME} ended with exit code {code}")
    why = (f"the job ended with exit code {code}", *tail[-3:])
    for case in cases:
        yield verdicts.get(case.id) or Verdict(case.id, case.title, why)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spark-submit ngsi_check.py",
        description="custody, cases of NGSI end to end: prints a line of JSON for each verdict.",
    )
    parser.add_argument("files", nargs="*", type=Path, help="files of cases; without one the shipped ones")
    parser.add_argument("--base-uri", required=True, help="folder that the cases write below: hdfs://host:8020/folder")
    parser.add_argument(
        "--repository", type=Path, default=Path("repository"), help="folder of the repository whose settings log in"
    )
    parser.add_argument("--profile", default=EXPECT, help="compare with what another system does instead")
    parser.add_argument("--case", action="append", default=[], help="run the case with this id only; may be repeated")
    return parser
