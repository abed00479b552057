"""The services that answer questions to a provenance database: `rest` over HTTP, `rpc` over gRPC."""

from custody.swh.service.questions import Questions

__all__ = ["Questions"]
