"""The log of a server on stderr: a line for people, or an object a line for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal


class JsonLines(logging.Formatter):
    """Makes one JSON object of each record, with the fields of a request where it is about one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object, without line breaks."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        document: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            document |= fields
        else:
            document["message"] = record.getMessage()
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=True, default=str)


def log_to_stderr(form: Literal["text", "json"], level: int) -> None:
    """Write what is logged to stderr, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
