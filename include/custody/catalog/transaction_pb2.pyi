from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    EXPIRED: _ClassVar[Reason]
REASON_UNSPECIFIED: Reason
EXPIRED: Reason

class Transaction(_message.Message):
    __slots__ = ("revision", "uuid", "previous_uuid", "previous_digest", "commit_time_ms", "encoding", "catalog_id", "attempt_id", "reader_features", "writer_features", "actions", "next_event_id", "naming", "epoch", "live_paths", "live_files", "waiting_since_ms", "behind_first", "behind_last", "behind_clock_ms")
    class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ENCODING_UNSPECIFIED: _ClassVar[Transaction.Encoding]
        DELTA: _ClassVar[Transaction.Encoding]
        FULL: _ClassVar[Transaction.Encoding]
    ENCODING_UNSPECIFIED: Transaction.Encoding
    DELTA: Transaction.Encoding
    FULL: Transaction.Encoding
    class Naming(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DERIVED: _ClassVar[Transaction.Naming]
        RANDOM: _ClassVar[Transaction.Naming]
    DERIVED: Transaction.Naming
    RANDOM: Transaction.Naming
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
    NAMING_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LIVE_PATHS_FIELD_NUMBER: _ClassVar[int]
    LIVE_FILES_FIELD_NUMBER: _ClassVar[int]
    WAITING_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIRST_FIELD_NUMBER: _ClassVar[int]
    BEHIND_LAST_FIELD_NUMBER: _ClassVar[int]
    BEHIND_CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
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
    naming: Transaction.Naming
    epoch: int
    live_paths: _containers.RepeatedScalarFieldContainer[str]
    live_files: _containers.RepeatedScalarFieldContainer[bytes]
    waiting_since_ms: int
    behind_first: int
    behind_last: int
    behind_clock_ms: int
    def __init__(self, revision: _Optional[int] = ..., uuid: _Optional[bytes] = ..., previous_uuid: _Optional[bytes] = ..., previous_digest: _Optional[bytes] = ..., commit_time_ms: _Optional[int] = ..., encoding: _Optional[_Union[Transaction.Encoding, str]] = ..., catalog_id: _Optional[bytes] = ..., attempt_id: _Optional[bytes] = ..., reader_features: _Optional[_Iterable[str]] = ..., writer_features: _Optional[_Iterable[str]] = ..., actions: _Optional[_Iterable[_Union[Action, _Mapping]]] = ..., next_event_id: _Optional[int] = ..., naming: _Optional[_Union[Transaction.Naming, str]] = ..., epoch: _Optional[int] = ..., live_paths: _Optional[_Iterable[str]] = ..., live_files: _Optional[_Iterable[bytes]] = ..., waiting_since_ms: _Optional[int] = ..., behind_first: _Optional[int] = ..., behind_last: _Optional[int] = ..., behind_clock_ms: _Optional[int] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("add_file", "remove_file", "add_shard", "remove_shard", "add_tombstone", "remove_tombstone", "upgrade", "prune", "seal", "absorb", "note", "add_hold", "remove_hold", "add_mark", "remove_mark", "respect_holds", "add_loss", "remove_loss")
    ADD_FILE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FILE_FIELD_NUMBER: _ClassVar[int]
    ADD_SHARD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_SHARD_FIELD_NUMBER: _ClassVar[int]
    ADD_TOMBSTONE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_TOMBSTONE_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    ABSORB_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    ADD_HOLD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_HOLD_FIELD_NUMBER: _ClassVar[int]
    ADD_MARK_FIELD_NUMBER: _ClassVar[int]
    REMOVE_MARK_FIELD_NUMBER: _ClassVar[int]
    RESPECT_HOLDS_FIELD_NUMBER: _ClassVar[int]
    ADD_LOSS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_LOSS_FIELD_NUMBER: _ClassVar[int]
    add_file: AddFile
    remove_file: RemoveFile
    add_shard: AddShard
    remove_shard: RemoveShard
    add_tombstone: AddTombstone
    remove_tombstone: RemoveTombstone
    upgrade: Upgrade
    prune: Prune
    seal: Seal
    absorb: Absorb
    note: Note
    add_hold: AddHold
    remove_hold: RemoveHold
    add_mark: AddMark
    remove_mark: RemoveMark
    respect_holds: RespectHolds
    add_loss: AddLoss
    remove_loss: RemoveLoss
    def __init__(self, add_file: _Optional[_Union[AddFile, _Mapping]] = ..., remove_file: _Optional[_Union[RemoveFile, _Mapping]] = ..., add_shard: _Optional[_Union[AddShard, _Mapping]] = ..., remove_shard: _Optional[_Union[RemoveShard, _Mapping]] = ..., add_tombstone: _Optional[_Union[AddTombstone, _Mapping]] = ..., remove_tombstone: _Optional[_Union[RemoveTombstone, _Mapping]] = ..., upgrade: _Optional[_Union[Upgrade, _Mapping]] = ..., prune: _Optional[_Union[Prune, _Mapping]] = ..., seal: _Optional[_Union[Seal, _Mapping]] = ..., absorb: _Optional[_Union[Absorb, _Mapping]] = ..., note: _Optional[_Union[Note, _Mapping]] = ..., add_hold: _Optional[_Union[AddHold, _Mapping]] = ..., remove_hold: _Optional[_Union[RemoveHold, _Mapping]] = ..., add_mark: _Optional[_Union[AddMark, _Mapping]] = ..., remove_mark: _Optional[_Union[RemoveMark, _Mapping]] = ..., respect_holds: _Optional[_Union[RespectHolds, _Mapping]] = ..., add_loss: _Optional[_Union[AddLoss, _Mapping]] = ..., remove_loss: _Optional[_Union[RemoveLoss, _Mapping]] = ...) -> None: ...

class AddFile(_message.Message):
    __slots__ = ("path", "size_bytes", "rows", "sha256", "table", "partition", "schema_version", "first_event_id", "last_event_id", "first_event_time_ms", "last_event_time_ms", "toc_path", "toc_sha256", "sources", "groups", "footer", "footer_bytes", "statistics", "schema_fingerprint", "incarnation")
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
    FOOTER_FIELD_NUMBER: _ClassVar[int]
    FOOTER_BYTES_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
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
    footer: bytes
    footer_bytes: int
    statistics: bytes
    schema_fingerprint: bytes
    incarnation: bytes
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., rows: _Optional[int] = ..., sha256: _Optional[bytes] = ..., table: _Optional[str] = ..., partition: _Optional[str] = ..., schema_version: _Optional[int] = ..., first_event_id: _Optional[int] = ..., last_event_id: _Optional[int] = ..., first_event_time_ms: _Optional[int] = ..., last_event_time_ms: _Optional[int] = ..., toc_path: _Optional[str] = ..., toc_sha256: _Optional[bytes] = ..., sources: _Optional[_Iterable[_Union[SourceRange, _Mapping]]] = ..., groups: _Optional[_Iterable[int]] = ..., footer: _Optional[bytes] = ..., footer_bytes: _Optional[int] = ..., statistics: _Optional[bytes] = ..., schema_fingerprint: _Optional[bytes] = ..., incarnation: _Optional[bytes] = ...) -> None: ...

class FileStatistics(_message.Message):
    __slots__ = ("columns",)
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[ColumnStatistics]
    def __init__(self, columns: _Optional[_Iterable[_Union[ColumnStatistics, _Mapping]]] = ...) -> None: ...

class ColumnStatistics(_message.Message):
    __slots__ = ("column", "minimum", "maximum", "nulls", "blooms")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    NULLS_FIELD_NUMBER: _ClassVar[int]
    BLOOMS_FIELD_NUMBER: _ClassVar[int]
    column: str
    minimum: Value
    maximum: Value
    nulls: int
    blooms: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, column: _Optional[str] = ..., minimum: _Optional[_Union[Value, _Mapping]] = ..., maximum: _Optional[_Union[Value, _Mapping]] = ..., nulls: _Optional[int] = ..., blooms: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("integer", "number", "text", "binary", "flag")
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    integer: int
    number: float
    text: str
    binary: bytes
    flag: bool
    def __init__(self, integer: _Optional[int] = ..., number: _Optional[float] = ..., text: _Optional[str] = ..., binary: _Optional[bytes] = ..., flag: bool = ...) -> None: ...

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
    __slots__ = ("path", "reason")
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    path: str
    reason: Reason
    def __init__(self, path: _Optional[str] = ..., reason: _Optional[_Union[Reason, str]] = ...) -> None: ...

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
    __slots__ = ("name", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: Reason
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[_Union[Reason, str]] = ...) -> None: ...

class AddTombstone(_message.Message):
    __slots__ = ("id", "event_ids", "flowfile_uuids", "from_time_ms", "to_time_ms", "attributes", "before_event_id", "reason", "created_ms", "erased", "erased_groups", "event_types", "unless", "by_retention", "who")
    ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_IDS_FIELD_NUMBER: _ClassVar[int]
    FLOWFILE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TO_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    BEFORE_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    ERASED_FIELD_NUMBER: _ClassVar[int]
    ERASED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPES_FIELD_NUMBER: _ClassVar[int]
    UNLESS_FIELD_NUMBER: _ClassVar[int]
    BY_RETENTION_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    event_ids: _containers.RepeatedScalarFieldContainer[int]
    flowfile_uuids: _containers.RepeatedScalarFieldContainer[str]
    from_time_ms: int
    to_time_ms: int
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    before_event_id: int
    reason: str
    created_ms: int
    erased: _containers.RepeatedCompositeFieldContainer[SourceKeys]
    erased_groups: _containers.RepeatedScalarFieldContainer[int]
    event_types: _containers.RepeatedScalarFieldContainer[str]
    unless: _containers.RepeatedCompositeFieldContainer[Condition]
    by_retention: bool
    who: str
    def __init__(self, id: _Optional[bytes] = ..., event_ids: _Optional[_Iterable[int]] = ..., flowfile_uuids: _Optional[_Iterable[str]] = ..., from_time_ms: _Optional[int] = ..., to_time_ms: _Optional[int] = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ..., before_event_id: _Optional[int] = ..., reason: _Optional[str] = ..., created_ms: _Optional[int] = ..., erased: _Optional[_Iterable[_Union[SourceKeys, _Mapping]]] = ..., erased_groups: _Optional[_Iterable[int]] = ..., event_types: _Optional[_Iterable[str]] = ..., unless: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., by_retention: bool = ..., who: _Optional[str] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("event_ids", "flowfile_uuids", "from_time_ms", "to_time_ms", "attributes", "before_event_id", "event_types")
    EVENT_IDS_FIELD_NUMBER: _ClassVar[int]
    FLOWFILE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TO_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    BEFORE_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPES_FIELD_NUMBER: _ClassVar[int]
    event_ids: _containers.RepeatedScalarFieldContainer[int]
    flowfile_uuids: _containers.RepeatedScalarFieldContainer[str]
    from_time_ms: int
    to_time_ms: int
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    before_event_id: int
    event_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, event_ids: _Optional[_Iterable[int]] = ..., flowfile_uuids: _Optional[_Iterable[str]] = ..., from_time_ms: _Optional[int] = ..., to_time_ms: _Optional[int] = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ..., before_event_id: _Optional[int] = ..., event_types: _Optional[_Iterable[str]] = ...) -> None: ...

class AddHold(_message.Message):
    __slots__ = ("name", "condition", "reason", "who", "created_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    condition: Condition
    reason: str
    who: str
    created_ms: int
    def __init__(self, name: _Optional[str] = ..., condition: _Optional[_Union[Condition, _Mapping]] = ..., reason: _Optional[str] = ..., who: _Optional[str] = ..., created_ms: _Optional[int] = ...) -> None: ...

class RemoveHold(_message.Message):
    __slots__ = ("name", "reason", "who", "created_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    who: str
    created_ms: int
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., who: _Optional[str] = ..., created_ms: _Optional[int] = ...) -> None: ...

class AddMark(_message.Message):
    __slots__ = ("id", "paths", "shards", "groups", "events", "size_bytes", "created_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    paths: _containers.RepeatedScalarFieldContainer[str]
    shards: _containers.RepeatedCompositeFieldContainer[MarkedShard]
    groups: _containers.RepeatedScalarFieldContainer[int]
    events: int
    size_bytes: int
    created_ms: int
    def __init__(self, id: _Optional[bytes] = ..., paths: _Optional[_Iterable[str]] = ..., shards: _Optional[_Iterable[_Union[MarkedShard, _Mapping]]] = ..., groups: _Optional[_Iterable[int]] = ..., events: _Optional[int] = ..., size_bytes: _Optional[int] = ..., created_ms: _Optional[int] = ...) -> None: ...

class MarkedShard(_message.Message):
    __slots__ = ("name", "container")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    name: str
    container: str
    def __init__(self, name: _Optional[str] = ..., container: _Optional[str] = ...) -> None: ...

class RemoveMark(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    def __init__(self, id: _Optional[bytes] = ...) -> None: ...

class RespectHolds(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class SourceKeys(_message.Message):
    __slots__ = ("node", "firsts", "counts", "first_times_ms", "last_times_ms")
    NODE_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    node: str
    firsts: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    first_times_ms: _containers.RepeatedScalarFieldContainer[int]
    last_times_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node: _Optional[str] = ..., firsts: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., first_times_ms: _Optional[_Iterable[int]] = ..., last_times_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class Attribute(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class RemoveTombstone(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    def __init__(self, id: _Optional[bytes] = ...) -> None: ...

class AddLoss(_message.Message):
    __slots__ = ("id", "firsts", "counts", "events", "path", "reason", "created_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    firsts: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    events: int
    path: str
    reason: str
    created_ms: int
    def __init__(self, id: _Optional[bytes] = ..., firsts: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., events: _Optional[int] = ..., path: _Optional[str] = ..., reason: _Optional[str] = ..., created_ms: _Optional[int] = ...) -> None: ...

class RemoveLoss(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    def __init__(self, id: _Optional[bytes] = ...) -> None: ...

class Upgrade(_message.Message):
    __slots__ = ("reader_features", "writer_features")
    READER_FEATURES_FIELD_NUMBER: _ClassVar[int]
    WRITER_FEATURES_FIELD_NUMBER: _ClassVar[int]
    reader_features: _containers.RepeatedScalarFieldContainer[str]
    writer_features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, reader_features: _Optional[_Iterable[str]] = ..., writer_features: _Optional[_Iterable[str]] = ...) -> None: ...

class Prune(_message.Message):
    __slots__ = ("floor", "checkpoint_digest")
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    floor: int
    checkpoint_digest: bytes
    def __init__(self, floor: _Optional[int] = ..., checkpoint_digest: _Optional[bytes] = ...) -> None: ...

class Seal(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Absorb(_message.Message):
    __slots__ = ("writer", "database", "catalog_id", "revision", "digest", "first_event_id")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    CATALOG_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    writer: str
    database: str
    catalog_id: bytes
    revision: int
    digest: bytes
    first_event_id: int
    def __init__(self, writer: _Optional[str] = ..., database: _Optional[str] = ..., catalog_id: _Optional[bytes] = ..., revision: _Optional[int] = ..., digest: _Optional[bytes] = ..., first_event_id: _Optional[int] = ...) -> None: ...

class Note(_message.Message):
    __slots__ = ("kind", "text", "lost_revisions", "repairs", "finished", "who")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Note.Kind]
        REPAIRED: _ClassVar[Note.Kind]
        REBUILT: _ClassVar[Note.Kind]
        FENCED: _ClassVar[Note.Kind]
        MENDING: _ClassVar[Note.Kind]
    KIND_UNSPECIFIED: Note.Kind
    REPAIRED: Note.Kind
    REBUILT: Note.Kind
    FENCED: Note.Kind
    MENDING: Note.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOST_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    REPAIRS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    kind: Note.Kind
    text: str
    lost_revisions: _containers.RepeatedScalarFieldContainer[int]
    repairs: _containers.RepeatedCompositeFieldContainer[FileRepair]
    finished: _containers.RepeatedScalarFieldContainer[bytes]
    who: str
    def __init__(self, kind: _Optional[_Union[Note.Kind, str]] = ..., text: _Optional[str] = ..., lost_revisions: _Optional[_Iterable[int]] = ..., repairs: _Optional[_Iterable[_Union[FileRepair, _Mapping]]] = ..., finished: _Optional[_Iterable[bytes]] = ..., who: _Optional[str] = ...) -> None: ...

class FileRepair(_message.Message):
    __slots__ = ("id", "kind", "name", "reason", "expected_sha256", "found_sha256", "offsets", "firsts", "counts", "events")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[FileRepair.Kind]
        LOG_RESTORED: _ClassVar[FileRepair.Kind]
        TOC_REWRITTEN: _ClassVar[FileRepair.Kind]
        LOG_REWRITTEN: _ClassVar[FileRepair.Kind]
        LOG_GIVEN_UP: _ClassVar[FileRepair.Kind]
        SHARD_REBUILT: _ClassVar[FileRepair.Kind]
    KIND_UNSPECIFIED: FileRepair.Kind
    LOG_RESTORED: FileRepair.Kind
    TOC_REWRITTEN: FileRepair.Kind
    LOG_REWRITTEN: FileRepair.Kind
    LOG_GIVEN_UP: FileRepair.Kind
    SHARD_REBUILT: FileRepair.Kind
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SHA256_FIELD_NUMBER: _ClassVar[int]
    FOUND_SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    kind: FileRepair.Kind
    name: str
    reason: str
    expected_sha256: bytes
    found_sha256: bytes
    offsets: _containers.RepeatedScalarFieldContainer[int]
    firsts: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    events: int
    def __init__(self, id: _Optional[bytes] = ..., kind: _Optional[_Union[FileRepair.Kind, str]] = ..., name: _Optional[str] = ..., reason: _Optional[str] = ..., expected_sha256: _Optional[bytes] = ..., found_sha256: _Optional[bytes] = ..., offsets: _Optional[_Iterable[int]] = ..., firsts: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., events: _Optional[int] = ...) -> None: ...
