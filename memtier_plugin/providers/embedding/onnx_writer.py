"""Write an ONNX model as bytes: as much of its protobuf format as an encoder needs.

The package `onnx` does the same and much more, at 60 MB.  Field numbers are those of ``onnx.proto``
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Attribute = int | float | str

_IR_VERSION: Final = 9
_OPERATORS: Final = (("", 20), ("com.microsoft", 1))  # operator sets with their versions
_TYPES: Final = {"float32": 1, "int8": 3, "int64": 7}  # TensorProto.DataType
_VARINT, _BYTES, _FIXED32 = 0, 2, 5  # protobuf's wire types


@dataclass(slots=True)
class OnnxGraph:
    """A graph that is built node by node; tensors are referred to by name."""

    _nodes: list[bytes] = field(default_factory=list)
    _constants: dict[str, bytes] = field(default_factory=dict)

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Add a constant tensor and return its name."""
        message = b"".join(_varint_field(1, size) for size in values.shape)
        message += _varint_field(2, _TYPES[values.dtype.name]) + _text_field(8, name)
        self._constants[name] = message + _bytes_field(9, np.ascontiguousarray(values).tobytes())
        return name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: str | Sequence[str],
        domain: str = "",
        **attributes: Attribute,
    ) -> str:
        """Add an operator and return the name of its first output."""
        names = [outputs] if isinstance(outputs, str) else [*outputs]
        message = b"".join(_text_field(1, name) for name in inputs)
        message += b"".join(_text_field(2, name) for name in names)
        message += _text_field(3, names[0]) + _text_field(4, operator)
        message += b"".join(_bytes_field(5, _attribute(*item)) for item in attributes.items())
        self._nodes.append(message + (_text_field(7, domain) if domain else b""))
        return names[0]

    def to_bytes(
        self,
        input_name: str,
        input_shape: Sequence[int | str],
        output_name: str,
        output_shape: Sequence[int | str],
    ) -> bytes:
        """Return the model, with an int64 input and a float32 output."""
        graph = b"".join(_bytes_field(1, node) for node in self._nodes) + _text_field(2, "encoder")
        graph += b"".join(_bytes_field(5, tensor) for tensor in self._constants.values())
        graph += _bytes_field(11, _value(input_name, _TYPES["int64"], input_shape))
        graph += _bytes_field(12, _value(output_name, _TYPES["float32"], output_shape))
        sets = b"".join(
            _bytes_field(8, _text_field(1, domain) + _varint_field(2, version))
            for domain, version in _OPERATORS
        )
        head = _varint_field(1, _IR_VERSION) + _text_field(2, "memtier")
        return head + _bytes_field(7, graph) + sets


def _attribute(name: str, value: Attribute) -> bytes:
    message = _text_field(1, name)
    if isinstance(value, float):
        return message + _key(2, _FIXED32) + struct.pack("<f", value) + _varint_field(20, 1)
    if isinstance(value, str):
        return message + _text_field(4, value) + _varint_field(20, 3)
    return message + _varint_field(3, value) + _varint_field(20, 2)


def _value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    dims = b"".join(
        _bytes_field(1, _text_field(2, size) if isinstance(size, str) else _varint_field(1, size))
        for size in shape
    )
    tensor = _varint_field(1, kind) + _bytes_field(2, dims)
    return _text_field(1, name) + _bytes_field(2, _bytes_field(1, tensor))


def _varint_field(number: int, value: int) -> bytes:
    return _key(number, _VARINT) + _varint(value & (1 << 64) - 1)


def _text_field(number: int, text: str) -> bytes:
    return _bytes_field(number, text.encode())


def _bytes_field(number: int, data: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(data)) + data


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
