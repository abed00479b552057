"""The words of Site-to-Site: codes, names of headers, and the documents that its clients read.

Clients before NiFi 2.7 refuse a result with a key that they do not know, and take it for a failure. So a result has
three keys, and never more.
"""

from __future__ import annotations

import uuid
from enum import IntEnum
from typing import NamedTuple

import msgspec

VERSION_HEADER = "x-nifi-site-to-site-protocol-version"
COMPRESSION_HEADER = "x-nifi-site-to-site-use-compression"
SECONDS_HEADER = "x-nifi-site-to-site-server-transaction-ttl"
INTENT_HEADER = "x-location-uri-intent"
TRANSACTION_INTENT = "transaction-url"
HTTP_VERSION = 1
"""Of the protocol over HTTP; there is no other one."""

_NAMESPACE = uuid.UUID("5b1f1f5e-5a49-5f6e-9d5c-0f1f3a9f6d0e")
"""Of the ids of ports. NiFi keeps an id for minutes: with another namespace, transfers after an upgrade fail once."""


class ResponseCode(IntEnum):
    """What either side says of a transaction."""

    PROPERTIES_OK = 1
    CONTINUE_TRANSACTION = 10
    FINISH_TRANSACTION = 11
    CONFIRM_TRANSACTION = 12
    TRANSACTION_FINISHED = 13
    TRANSACTION_FINISHED_BUT_DESTINATION_FULL = 14
    CANCEL_TRANSACTION = 15
    BAD_CHECKSUM = 19
    UNKNOWN_PORT = 200
    PORT_NOT_IN_VALID_STATE = 201
    PORTS_DESTINATION_FULL = 202
    MISSING_PROPERTY = 232
    UNAUTHORIZED = 240
    ABORT = 250

    @property
    def has_message(self) -> bool:
        """Whether a text follows the code on a socket."""
        return self in _WITH_MESSAGE


_WITH_MESSAGE = frozenset(
    {
        ResponseCode.CONFIRM_TRANSACTION,
        ResponseCode.CANCEL_TRANSACTION,
        ResponseCode.PORT_NOT_IN_VALID_STATE,
        ResponseCode.MISSING_PROPERTY,
        ResponseCode.UNAUTHORIZED,
        ResponseCode.ABORT,
    }
)


class Peer(NamedTuple):
    """Where transactions are taken."""

    host: str
    port: int
    is_secure: bool


class _Result(msgspec.Struct):
    packets: int = msgspec.field(name="flowFileSent")
    code: int = msgspec.field(name="responseCode")
    message: str


def result(code: ResponseCode, packets: int = 0, message: str = "") -> bytes:
    """Return a result as JSON."""
    return msgspec.json.encode(_Result(packets, int(code), message))


def open_port_id(name: str) -> str:
    """Return the id of an input port that asks for no token."""
    return str(uuid.uuid5(_NAMESPACE, name))


def discovery(port_name: str, port_id: str, peer: Peer, raw_port: int | None) -> bytes:
    """Return what a NiFi asks for first: the input port, and where it is served."""
    controller = {
        "id": str(uuid.uuid5(_NAMESPACE, "controller")),
        "name": "custody",
        "remoteSiteHttpListeningPort": peer.port,
        "remoteSiteListeningPort": raw_port,
        "siteToSiteSecure": peer.is_secure,
        "inputPorts": [{"id": port_id, "name": port_name, "state": "RUNNING"}],
        # Empty, but there: without this key no client connects.
        "outputPorts": [],
    }
    return msgspec.json.encode({"controller": controller})


def peers(peer: Peer) -> bytes:
    """Return the one peer that there is."""
    entry = {"hostname": peer.host, "port": peer.port, "secure": peer.is_secure, "flowFileCount": 0}
    return msgspec.json.encode({"peers": [entry]})
