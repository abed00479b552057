from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Transaction(_message.Message):
    __slots__ = ("revision", "uuid", "previous_uuid", "previous_digest", "commit_time_ms", "encoding", "catalog_id", "attempt_id", "reader_features", "writer_features", "actions", "next_event_id")
    class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ENCODING_UNSPECIFIED: _ClassVar[Transaction.Encoding]
        DELTA: _ClassVar[Transaction.Encoding]
        FULL: _ClassVar[Transaction.Encoding]
    ENCODING_UNSPECIFIED: Transaction.Encoding
    DELTA: Transaction.Encoding
    FULL: Transaction.Encoding
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_UUID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    CATALOG_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    READER_FEATURES_FIELD_NUMBER: _ClassVar[int]
    WRITER_FEATURES_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    revision: int
    uuid: bytes
    previous_uuid: bytes
    previous_digest: bytes
    commit_time_ms: int
    encoding: Transaction.Encoding
    catalog_id: bytes
    attempt_id: bytes
    reader_features: _containers.RepeatedScalarFieldContainer[str]
    writer_features: _containers.RepeatedScalarFieldContainer[str]
    actions: _containers.RepeatedCompositeFieldContainer[Action]
    next_event_id: int
    def __init__(self, revision: _Optional[int] = ..., uuid: _Optional[bytes] = ..., previous_uuid: _Optional[bytes] = ..., previous_digest: _Optional[bytes] = ..., commit_time_ms: _Optional[int] = ..., encoding: _Optional[_Union[Transaction.Encoding, str]] = ..., catalog_id: _Optional[bytes] = ..., attempt_id: _Optional[bytes] = ..., reader_features: _Optional[_Iterable[str]] = ..., writer_features: _Optional[_Iterable[str]] = ..., actions: _Optional[_Iterable[_Union[Action, _Mapping]]] = ..., next_event_id: _Optional[int] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("add_file", "remove_file", "add_shard", "remove_shard")
    ADD_FILE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FILE_FIELD_NUMBER: _ClassVar[int]
    ADD_SHARD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_SHARD_FIELD_NUMBER: _ClassVar[int]
    add_file: AddFile
    remove_file: RemoveFile
    add_shard: AddShard
    remove_shard: RemoveShard
    def __init__(self, add_file: _Optional[_Union[AddFile, _Mapping]] = ..., remove_file: _Optional[_Union[RemoveFile, _Mapping]] = ..., add_shard: _Optional[_Union[AddShard, _Mapping]] = ..., remove_shard: _Optional[_Union[RemoveShard, _Mapping]] = ...) -> None: ...

class AddFile(_message.Message):
    __slots__ = ("path", "size_bytes", "rows", "sha256", "table", "partition", "schema_version", "first_event_id", "last_event_id", "first_event_time_ms", "last_event_time_ms", "toc_path", "toc_sha256", "sources", "groups")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TOC_PATH_FIELD_NUMBER: _ClassVar[int]
    TOC_SHA256_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    path: str
    size_bytes: int
    rows: int
    sha256: bytes
    table: str
    partition: str
    schema_version: int
    first_event_id: int
    last_event_id: int
    first_event_time_ms: int
    last_event_time_ms: int
    toc_path: str
    toc_sha256: bytes
    sources: _containers.RepeatedCompositeFieldContainer[SourceRange]
    groups: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., rows: _Optional[int] = ..., sha256: _Optional[bytes] = ..., table: _Optional[str] = ..., partition: _Optional[str] = ..., schema_version: _Optional[int] = ..., first_event_id: _Optional[int] = ..., last_event_id: _Optional[int] = ..., first_event_time_ms: _Optional[int] = ..., last_event_time_ms: _Optional[int] = ..., toc_path: _Optional[str] = ..., toc_sha256: _Optional[bytes] = ..., sources: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ..., groups: _Optional[_Iterable[int]] = ...) -> None: ...

class SourceRange(_message.Message):
    __slots__ = ("node", "first_ordinal", "last_ordinal")
    NODE_FIELD_NUMBER: _ClassVar[int]
    FIRST_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    LAST_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    node: str
    first_ordinal: int
    last_ordinal: int
    def __init__(self, node: _Optional[str] = ..., first_ordinal: _Optional[int] = ..., last_ordinal: _Optional[int] = ...) -> None: ...

class RemoveFile(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class AddShard(_message.Message):
    __slots__ = ("name", "container", "documents", "size_bytes", "first_event_id", "last_event_id", "first_event_time_ms", "last_event_time_ms", "log_paths")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_PATHS_FIELD_NUMBER: _ClassVar[int]
    name: str
    container: str
    documents: int
    size_bytes: int
    first_event_id: int
    last_event_id: int
    first_event_time_ms: int
    last_event_time_ms: int
    log_paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., container: _Optional[str] = ..., documents: _Optional[int] = ..., size_bytes: _Optional[int] = ..., first_event_id: _Optional[int] = ..., last_event_id: _Optional[int] = ..., first_event_time_ms: _Optional[int] = ..., last_event_time_ms: _Optional[int] = ..., log_paths: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoveShard(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...
