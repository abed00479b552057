"""A version of a published table as the first release wrote it: its field ids and names are for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadataV2

from custody import iceberg
from custody.iceberg.event_columns import FIELD_IDS, name_mapping, partition_spec, table_schema
from custody.iceberg.table_folder import TableFolder
from custody.repository import Repository
from tests.support import append, event, run_steps

GOLDEN = Path(__file__).parent / "iceberg" / "v1.metadata.json"


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(GOLDEN.read_bytes())
    return document


def test_columns_have_the_ids_that_they_had(golden: dict[str, Any]) -> None:
    stored = TableMetadataV2(**golden)
    before = {field.field_id: field for field in stored.schema().fields}
    now = {field.field_id: field for field in table_schema().fields}
    assert {number: now[number] for number in before} == before
    assert stored.spec() == partition_spec()
    mapped = json.loads(golden["properties"]["schema.name-mapping.default"])
    assert [each for each in mapped if each not in json.loads(name_mapping())] == []
    assert (FIELD_IDS["event_id"], FIELD_IDS["parent_uuids"], FIELD_IDS["extra"]) == (1, 21, 37)


def test_a_version_of_the_first_release_is_read_and_followed_by_the_next(
    golden: dict[str, Any], tmp_path: Path
) -> None:
    found = Repository.create(tmp_path / "repository")
    append(found, [event(0), event(1)])
    run_steps(found.settings)
    folder = TableFolder(found.workspace().catalog.objects)
    folder.store.put(folder.version_key(4), GOLDEN.read_bytes())
    assert folder.read(4) == golden
    done = iceberg.publish(found.workspace())
    assert (done.version, done.revision, done.written) == (5, 0, True)
    assert folder.versions() == [5]  # that of another catalog shows what this one has not
