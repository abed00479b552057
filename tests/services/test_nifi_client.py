"""The input port for NiFi with NiFi's own client, 1.28.1 and 2.6.0: each event once, while the server is killed."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from pathlib import Path

import pytest

from custody.spark.java import find_java
from tests.behaviour.test_killed_site_to_site import by_node, check_each_event_once, served
from tests.services.jars import jars

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
EVENTS = 10_000
BATCH = 500
KILLS = 4
SECONDS_MAX = 600
JAVA_2 = 21
"""The least version of Java that NiFi 2 runs on."""


def java(least: int) -> Path:
    """A Java of at least this version that can start a source file, or skip."""
    places = [find_java(os.environ).executable, *sorted(Path("/usr/lib/jvm").glob("*/bin/java"))]
    for place in places:
        said = subprocess.run([str(place), "--list-modules"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"java\.base@(\d+)", said)
        if version and int(version[1]) >= least and "jdk.compiler" in said:
            return place
    pytest.skip(f"no JDK of Java {least} or newer is installed")


@pytest.mark.parametrize("transport", ["HTTP", "RAW"])
@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize(("release", "least"), [("nifi1", 17), ("nifi2", JAVA_2)])
def test_nifi_s_own_client_delivers_each_event_once_while_the_server_is_killed(
    tmp_path: Path, release: str, least: int, transport: str, is_compressed: bool
) -> None:
    program = java(least)
    path = os.pathsep.join(map(str, jars(HERE / f"{release}.jars")))
    events = by_node(EVENTS, 1)
    [items] = events.values()
    batches = []
    for start in range(0, len(items), BATCH):
        batches.append(tmp_path / f"{start:06d}.json")
        batches[-1].write_text(json.dumps(items[start : start + BATCH]))
    dice = random.Random(f"{release} {transport} {is_compressed}")  # noqa: S311 - a test's chance
    with served(tmp_path / "r") as server:
        command = [str(program), "-cp", path, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        command += [str(HERE / "NifiSender.java"), server.url, "provenance", transport, str(is_compressed).lower()]
        with subprocess.Popen(
            [*command, str(SECONDS_MAX), *map(str, batches)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as sender:
            ended = tmp_path / "r" / "site-to-site" / "ended"
            for _ in range(KILLS):
                stored = len(list(ended.iterdir()))
                # Only where something was acknowledged since the last one.
                while sender.poll() is None and len(list(ended.iterdir())) <= stored:
                    time.sleep(0.05)
                if sender.poll() is not None:
                    break
                time.sleep(dice.random())
                server.kill()
                server.start()
            said, _ = sender.communicate(timeout=SECONDS_MAX)
        assert said.startswith("left=0 "), said
        assert server.end() == 0
    check_each_event_once(tmp_path / "r", events)
