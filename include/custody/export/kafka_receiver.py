"""Events as records of a Kafka topic: the key is the writer, so that its events are in one partition and in order.

The client is confluent-kafka, which wraps librdkafka. It is idempotent and waits for all replicas, so that a record
is neither lost nor doubled by the client's own retries.
"""

from __future__ import annotations

from typing import Any

import msgspec

from custody.capture.nifi_json import event_to_json
from custody.config import ExportTarget
from custody.errors import ConfigurationError
from custody.export.receiver import EventBatch, RefusedError, UnavailableError
from custody.extras import install_command

_REFUSED = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_RECORD", "_INVALID_ARG", "INVALID_MSG_SIZE"})
"""Errors that are about a record and would come again."""
_NOT_LET_IN = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "_AUTHENTICATION",
        "_UNKNOWN_TOPIC",
        "UNKNOWN_TOPIC_OR_PART",
        "INVALID_TOPIC_EXCEPTION",
    }
)
"""Errors that are about the topic or the client."""
_OURS = ("bootstrap.servers", "acks", "enable.idempotence", "delivery.timeout.ms")


class KafkaReceiver:
    """A topic."""

    def __init__(self, name: str, target: ExportTarget) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise ConfigurationError(
                f"exports of the kind kafka: confluent-kafka is not installed. Run: {install_command('kafka')}"
            ) from error
        for option in _OURS:
            if option in target.options:
                raise ConfigurationError(
                    f"exports.{name}: options must not set {option!r}: custody's promise rests on it."
                )
        self._library: Any = confluent_kafka
        self._topic = target.topic
        self._seconds = target.timeout_seconds
        self._settings: dict[str, Any] = {
            "client.id": f"custody-{name}",
            **target.options,
            "bootstrap.servers": target.url,
            "acks": "all",
            "enable.idempotence": True,
            "delivery.timeout.ms": int(target.timeout_seconds * 1000),
        }
        self._brokers = target.url
        self._producer: Any = None

    def deliver(self, batch: EventBatch) -> None:
        """Hand a batch over; on return all replicas that are in sync have every record."""
        producer = self._opened()
        failures: list[Any] = []

        def on_answer(error: Any, _: Any) -> None:  # noqa: ANN401 - the library has no types
            if error is not None:
                failures.append(error)

        try:
            for event in batch.events():
                producer.produce(
                    self._topic,
                    key=batch.writer.encode(),
                    value=msgspec.json.encode(event_to_json(event)),
                    timestamp=max(event.event_time, 0),
                    headers={"custody.event_id": str(event.event_id).encode()},
                    on_delivery=on_answer,
                )
                producer.poll(0)
        except (self._library.KafkaException, BufferError) as error:
            failures.append(error.args[0] if isinstance(error, self._library.KafkaException) else error)
        left = producer.flush(self._seconds + 1)
        if left or failures:
            # Records that still are on their way must not come behind those of the next try.
            producer.purge()
            self._producer = None
            self._raise(failures)

    def close(self) -> None:
        """Let the client go; nothing is on its way."""
        self._producer = None

    def _opened(self) -> Any:  # noqa: ANN401 - the library has no types
        if self._producer is None:
            try:
                self._producer = self._library.Producer(self._settings)
            except (self._library.KafkaException, ValueError, TypeError) as error:
                raise ConfigurationError(f"Kafka: expected settings of librdkafka, got: {error}") from error
        return self._producer

    def _raise(self, failures: list[Any]) -> None:
        place = f"Kafka topic {self._topic!r} at {self._brokers}"
        names = {_name(item): str(item) for item in failures}
        for name, text in names.items():
            if name in _NOT_LET_IN:
                raise ConfigurationError(f"{place}: expected to be let in, got {name}: {text}.")
        for name, text in names.items():
            if name in _REFUSED:
                raise RefusedError(f"{place}: expected the record to be taken, got {name}: {text}")
        name, text = next(iter(names.items()), ("_TIMED_OUT", "no answer in time"))
        raise UnavailableError(f"{place}: expected an answer, got {name}: {text}")


def _name(failure: Any) -> str:  # noqa: ANN401 - the library has no types
    name = getattr(failure, "name", None)
    return str(name()) if callable(name) else type(failure).__name__
