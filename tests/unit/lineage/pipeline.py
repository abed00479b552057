"""A pipeline of OpenLineage: three datasets, and two jobs between them, of which the second may fail."""

from __future__ import annotations

import json

from custody.capture import Accepted, Format, dataset_uuid
from custody.model import Event
from tests.unit.capture.sample_inputs import Json, read, run_event

RAW, CLEAN, REPORT = (
    ("s3://lake", "raw/orders"),
    ("s3://lake", "clean/orders"),
    ("postgres://shop:5432", "daily report"),
)
RAW_UUID, CLEAN_UUID, REPORT_UUID = (dataset_uuid(*name) for name in (RAW, CLEAN, REPORT))
CLEANING, REPORTING = "0195aaaa-0000-7000-8000-000000000001", "0195aaaa-0000-7000-8000-000000000002"


def named(dataset: tuple[str, str]) -> Json:
    return {"namespace": dataset[0], "name": dataset[1]}


def taken_in(*documents: Json) -> list[Event]:
    found = [outcome for one in documents for outcome in read(json.dumps(one).encode(), Format.OPENLINEAGE)]
    assert all(isinstance(one, Accepted) for one in found), found
    return [one.event for one in found if isinstance(one, Accepted)]


def documents(*, ends: str = "COMPLETE") -> list[Json]:
    """What the two jobs tell: each a start, and an end with what it read and wrote."""
    clean = {"job": {"namespace": "shop", "name": "clean orders"}}
    report = {"job": {"namespace": "shop", "name": "report"}}
    return [
        run_event("START", 1, inputs=[named(RAW)], **clean),
        run_event("COMPLETE", 1, inputs=[named(RAW)], outputs=[named(CLEAN)], **clean),
        run_event("START", 2, inputs=[named(CLEAN)], **report),
        run_event(ends, 2, inputs=[named(CLEAN)], outputs=[named(REPORT)], **report),
    ]


def pipeline(*, ends: str = "COMPLETE") -> list[Event]:
    """The events of the pipeline."""
    return taken_in(*documents(ends=ends))
