from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WhereIsOneRequest(_message.Message):
    __slots__ = ("mask", "swhid")
    MASK_FIELD_NUMBER: _ClassVar[int]
    SWHID_FIELD_NUMBER: _ClassVar[int]
    mask: _field_mask_pb2.FieldMask
    swhid: str
    def __init__(self, mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., swhid: _Optional[str] = ...) -> None: ...

class WhereAreOneRequest(_message.Message):
    __slots__ = ("mask", "swhid")
    MASK_FIELD_NUMBER: _ClassVar[int]
    SWHID_FIELD_NUMBER: _ClassVar[int]
    mask: _field_mask_pb2.FieldMask
    swhid: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., swhid: _Optional[_Iterable[str]] = ...) -> None: ...

class WhereIsOneResult(_message.Message):
    __slots__ = ("swhid", "anchor", "origin")
    SWHID_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    swhid: str
    anchor: str
    origin: str
    def __init__(self, swhid: _Optional[str] = ..., anchor: _Optional[str] = ..., origin: _Optional[str] = ...) -> None: ...
