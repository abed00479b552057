"""The report of a soak: docs/soak.md, and the figures as JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version

import msgspec
import numpy as np

from benchmarks.append.machine import Machine
from soak.pipeline import RETENTION, ROLLOVER
from soak.processes import KINDS
from soak.soak import Outcome

_MIB = 1 << 20
_ROWS_MAX = 32
_PERCENTS = (50, 99)
_PACKAGES = ("custody", "apache-airflow", "apache-airflow-providers-apache-spark", "pyspark", "pyarrow")
_HEAD = """# The soak

A soak lets everything run side by side and kills parts of it at random with SIGKILL: producers append all the while,
the pipeline rolls over and lets old events expire under a size limit that bites and under two legal holds, and a reader
asks and compares each answer with what must be there. What producers were told is written down outside of the
repository, event by event, with a digest, and synced.

In the end the pipeline comes to rest, and everything is read twice, in sequence and by search: each acknowledged event
that the catalog's marks do not say to be expired is there once and as it was, nothing else is there but whole batches
that were sent, and `custody verify` finds nothing.

This page is written by the command that does it, `make soak` (`python -m soak --help` has its options); the
figures are those of its last run.
"""


def page(outcome: Outcome, machine: Machine) -> str:
    """Return the page."""
    parts = [_HEAD, *_verdict(outcome), *_setting(outcome, machine), *_events(outcome), *_kills(outcome)]
    parts += [*_answers(outcome), *_room(outcome), *_memory(outcome)]
    return "\n".join(parts)


def document(outcome: Outcome, machine: Machine) -> bytes:
    """Return everything as JSON."""
    results = {
        "holds": outcome.holds,
        "problems": outcome.problems(),
        "plan": outcome.plan,
        "machine": machine.document(),
        "pipeline": outcome.pipeline,
        "counts": outcome.final.counts,
        "verified": outcome.verified,
        "notices": outcome.notices,
        "asked": outcome.asker.asked,
        "kills": outcome.killer.done,
        "restarts": outcome.restarts,
        "missed": outcome.killer.missed,
        "runs": outcome.runs,
        "lives": outcome.producers.lives,
        "samples": outcome.watcher.samples,
        "committed": outcome.watcher.committed,
    }
    return msgspec.json.format(msgspec.json.encode(results), indent=1)


def _verdict(outcome: Outcome) -> list[str]:
    """Say first whether it holds."""
    lines = ["## The verdict", ""]
    if outcome.holds:
        lines += ["Everything held: no problem was found, while it ran and in the end.", ""]
    else:
        lines += ["**It did not hold:**", "", *(f"- {line}" for line in outcome.problems()), ""]
    rows = sorted(outcome.final.counts.items()) + sorted(outcome.verified.items())
    lines += _table(("what", "count"), [(name, f"{count:,}") for name, count in rows])
    if outcome.notices:
        lines += ["`custody verify` has these notices, which are no damage:", ""]
        lines += [*(f"- {text}" for text in outcome.notices[:_ROWS_MAX]), ""]
    return lines


def _setting(outcome: Outcome, machine: Machine) -> list[str]:
    plan = outcome.plan
    rows = [
        ("when", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())),
        ("machine", f"{machine.processors} processors ({machine.processor}), {machine.memory_bytes >> 30} GiB"),
        ("system", f"{machine.kernel}, Python {machine.python}"),
        ("versions", ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)),
        ("revision", machine.revision),
        ("disk", f"{machine.disk.file_system}, a sync of 4 KB p50 {machine.disk.sync_p50_ms:.2f} ms"),
        ("pipeline", outcome.pipeline),
        ("time", f"{plan.seconds / 60:g} minutes, then {outcome.rest_seconds:.0f} s until everything rested"),
        (
            "load of the machine",
            f"{_spread([sample.load for sample in outcome.watcher.samples], '')}; more than its "
            "processors means that all is slower than it need be",
        ),
        ("seed of the kills", str(plan.seed)),
        ("producers", f"{plan.producers} processes of {plan.threads} threads, {plan.rate:g} events a second"),
        ("settings", "; ".join(line for line in plan.settings_file().splitlines() if not line.startswith("["))),
    ]
    return ["## What ran", "", *_table(("what", "value"), rows)]


def _events(outcome: Outcome) -> list[str]:
    lags, ledger = outcome.lags_ms(), outcome.ledger
    rows = [
        ("acknowledged", f"{ledger.events_told:,} events in {len(ledger.told):,} batches"),
        ("sent and not acknowledged", f"{ledger.events_sent - ledger.events_told:,} events"),
        ("refused (back pressure)", f"{len(ledger.refused):,} batches"),
        ("logs that became live", f"{len(outcome.watcher.committed):,}"),
        ("logs that expired", f"{outcome.watcher.expired_logs:,}"),
        ("acknowledged to found by search", _spread(outcome.asker.fresh_ms, "ms")),
        ("acknowledged to live (in an event log, indexed, committed)", _spread([ms / 1000 for ms in lags], "s")),
    ]
    text = (
        "A search looks into journals too, so an event is found as soon as it is acknowledged. The first lag is\n"
        "measured from the newest acknowledgement that was known when the question was asked to its answer: it is the\n"
        "time of the question and of the looking up of what to expect. The second one is that of the pipeline, kills\n"
        "included.\n"
    )
    return ["## Events", "", *_table(("what", "value"), rows), text]


def _kills(outcome: Outcome) -> list[str]:
    done = Counter(kill.kind for kill in outcome.killer.done)
    missed = Counter(kill.kind for kill in outcome.killer.missed)
    rows = [(kind, str(done[kind]), str(missed[kind])) for kind in KINDS]
    by_work = Counter(
        (kill.kind, kill.doing.partition("/")[0]) for kill in outcome.killer.done if kill.kind != KINDS[0]
    )
    killed = [(kind, what, str(count)) for (kind, what), count in sorted(by_work.items())]
    states = sorted({run.state for run in outcome.runs})
    runs = []
    for kind in (ROLLOVER, RETENTION):
        own = [run for run in outcome.runs if run.kind == kind]
        counts = Counter(run.state for run in own)
        well = [run.seconds for run in own if run.state == "success"]
        retried, recovered = sum(run.retried for run in own), sum(run.recovered for run in own)
        figures = [*(counts[state] for state in states), retried, recovered]
        runs.append((kind, *map(str, figures), _spread(well, "s")))
    names = ("run", *states, "tasks tried again", "with recovery", "seconds of those that ended well")
    return [
        "## Kills, runs, recoveries",
        "",
        *_table(("killed with SIGKILL", "times", "nobody was there"), rows),
        *_table(("kind", "what it was doing", "times"), killed),
        *_table(names, runs),
        *_restarts(outcome),
        f"Producers were started {sum(outcome.producers.lives) + outcome.plan.producers} times; each start recovers "
        "what the life before left.\n",
    ]


def _restarts(outcome: Outcome) -> list[str]:
    if not outcome.restarts:
        return []
    return [
        f"A worker that was killed took the lock of the LocalExecutor's queue with it {_times(outcome.restarts)}; the "
        "local Airflow noticed that tasks stay queued, and started its scheduler again "
        "([what was killed](airflow.md#what-was-killed-and-who-goes-on)).\n"
    ]


def _answers(outcome: Outcome) -> list[str]:
    asker = outcome.asker
    rows = [
        (name, f"{count:,}", f"{asker.empty[name]:,}", _spread([s * 1000 for s in asker.seconds.get(name, [])], "ms"))
        for name, count in sorted(asker.asked.items())
    ]
    lines = ["## Questions while it ran", ""]
    lines += _table(("question", "asked", "the events had expired", "time, with the looking up"), rows)
    if asker.notices:
        lines += [
            "Notices in answers (an index that cannot be read in this moment is replaced by its log):",
            "",
        ]
        lines += [*(f"- {count} × {text}" for text, count in asker.notices.most_common(5)), ""]
    return lines


def _room(outcome: Outcome) -> list[str]:
    samples, limit = outcome.watcher.samples, outcome.plan.limit_bytes
    most = max(sample.used_bytes for sample in samples)
    step = max(-(-len(samples) // _ROWS_MAX), 1)
    rows = [
        (f"{part[0].at / 60:.1f}", _mib(max(sample.used_bytes for sample in part)), str(part[-1].live_logs))
        for part in (samples[start : start + step] for start in range(0, len(samples), step))
    ]
    return [
        "## Room on disk",
        "",
        f"Limit {_mib(limit)} MiB. Headroom {_mib(outcome.headroom_bytes())} MiB, as "
        "[retention.md](retention.md#the-limit-and-the-headroom) says: three times the journals that came in between "
        f"two passes of retention that ended well ({_mib(outcome.largest_inflow())} MiB at most, grace included), and "
        f"256 KiB a catalog. Most on disk: {_mib(most)} MiB, at rest {_mib(samples[-1].used_bytes)} MiB. Written to "
        f"journals in all: {_mib(samples[-1].journal_bytes)} MiB.\n",
        *_table(("minute", "most MiB on disk", "live logs"), rows),
    ]


def _memory(outcome: Outcome) -> list[str]:
    """The memory of the producer that lived all the time."""
    seen = [(sample.at, sample.memory_bytes[0]) for sample in outcome.watcher.samples if 0 in sample.memory_bytes]
    step = max(len(seen) // 10, 1)
    rows = [(f"{at / 60:.1f}", _mib(size)) for at, size in seen[::step]]
    return [
        "## Memory of a writer",
        "",
        "Resident memory of the producer process that was never killed; its made-up events are in it.",
        "",
        *_table(("minute", "MiB"), rows),
    ]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}", *lines, ""] if lines else []


def _spread(values: Sequence[float], unit: str) -> str:
    if not values:
        return "–"
    half, nearly = np.percentile(values, _PERCENTS)
    return f"p50 {half:.0f} {unit}, p99 {nearly:.0f} {unit}, most {max(values):.0f} {unit}"


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
