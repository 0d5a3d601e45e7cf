"""Types as Go's JSON decoder reads them: a single pass checks types, drops unknown fields, accepts nulls, converts
strings to their canonical form and adds the fields that an encoder never omits.

`Type.decode` returns a new value and does not modify its arguments. A value of the wrong type results in a 400 with
the decoder's own message, which names the Go type and the path of fields to it. Source: encoding/json,
sigs.k8s.io/json, the types' own UnmarshalJSON.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from kubeshard_apiserver.schema.numbers import in_digits
from kubeshard_apiserver.schema.scalars import (
    MICROSECONDS,
    MILLI,
    SECONDS,
    canonical_quantity,
    canonical_time,
)
from kubeshard_apiserver.schema.validation import go_kind
from kubeshard_apiserver.status import bad_request

Step = Any
"""A step of a path: a `Field`, the index of an item, or the key of a map."""
At = tuple[Any, Step] | None
"""The position of a value: the position of its parent, and the last step."""


class DecodeState:
    """The state of decoding one object. `dropped` are the paths of unknown fields."""

    def __init__(self, kind: str, version: str) -> None:
        self.kind = kind
        self.version = version
        self.dropped: list[str] = []

    def drop(self, at: At, name: str) -> None:
        self.dropped.append(".".join(filter(None, (_indexed(at), name))))

    def unfit(self, value: Any, at: At, type_: Type) -> Exception:
        given = go_kind(value)
        if given == "number" and type_.go in NUMBERS:
            given = f"number {value}"
        fields = [step for step in _steps(at) if isinstance(step, Field)]
        if not fields:
            return self.refused(f"json: cannot unmarshal {given} into Go value of type {type_.go}")
        where = f"{fields[-1].struct.name}.{'.'.join(field.go_name for field in fields)}"
        return self.refused(f"json: cannot unmarshal {given} into Go struct field {where} of type {type_.go}")

    def refused(self, problem: str) -> Exception:
        return bad_request(
            f'{self.kind} in version "{self.version}" cannot be handled as a {self.kind}: {problem}'
        )


class Type:
    """`go` is the name of the type in messages. `zero` returns the value of a field that was never set; `is_empty`
    says whether an encoder omits the value from a struct.
    """

    go = "interface {}"

    def decode(self, value: Any, at: At, state: DecodeState) -> Any:
        """Decodes a value, which must not be null. Raises Invalid (400)."""
        return value

    def zero(self) -> Any:
        return None

    def is_empty(self, value: Any) -> bool:
        return False


class Scalar(Type):
    def __init__(self, go: str, python: type, zero: Any) -> None:
        self.go = go
        self.python = python
        self._zero = zero

    def decode(self, value: Any, at: At, state: DecodeState) -> Any:
        if type(value) is not self.python:
            raise state.unfit(value, at, self)
        return value

    def zero(self) -> Any:
        return self._zero

    def is_empty(self, value: Any) -> bool:
        return bool(value == self._zero)


class Integer(Scalar):
    def __init__(self, go: str, bits: int) -> None:
        super().__init__(go, int, 0)
        self._end = 1 << (bits - 1)

    def decode(self, value: Any, at: At, state: DecodeState) -> Any:
        if type(value) is not int or not -self._end <= value < self._end:
            raise state.unfit(value, at, self)
        return value


class Float(Scalar):
    def __init__(self) -> None:
        super().__init__("float64", float, 0)

    def decode(self, value: Any, at: At, state: DecodeState) -> Any:
        number = value if type(value) is int else super().decode(value, at, state)
        return in_digits(float(number))


class Named(Scalar):
    """A string with a special format; `read` returns the canonical_quantity form or raises ValueError."""

    def __init__(self, go: str, read: Callable[[str], str | None], zero: Any = None) -> None:
        super().__init__(go, str, zero)
        self._read = read

    def decode(self, value: Any, at: At, state: DecodeState) -> Any:
        text = super().decode(value, at, state)
        try:
            return self._read(text)
        except ValueError as error:
            raise state.refused(str(error)) from None


class Quantity(Type):
    go = "resource.Quantity"

    def __init__(self, finest: int | None = None) -> None:
        self._finest = () if finest is None else (finest,)

    def decode(self, value: Any, at: At, state: DecodeState) -> Any:
        text = value.strip() if isinstance(value, str) else str(value)
        try:
            return canonical_quantity(text, *self._finest)
        except ValueError as error:
            raise state.refused(str(error)) from None

    def zero(self) -> Any:
        return "0"


class IntOrString(Integer):
    def __init__(self) -> None:
        super().__init__("int32", 32)

    def decode(self, value: Any, at: At, state: DecodeState) -> Any:
        return value if type(value) is str else super().decode(value, at, state)

    def is_empty(self, value: Any) -> bool:
        """Always False, because the Go type is a struct."""
        return False


class Pointer(Type):
    """A type for which an absent value differs from zero."""

    def __init__(self, to: Type) -> None:
        self.to = to
        self.go = to.go
        self.decode = to.decode  # type: ignore[method-assign] # saves one call per value


class List(Type):
    def __init__(self, items: Type, go: str = "") -> None:
        self.items = items
        self.go = go or f"[]{items.go}"

    def decode(self, value: Any, at: At, state: DecodeState) -> Any:
        if type(value) is not list:
            raise state.unfit(value, at, self)
        items = self.items
        decode = items.decode
        return [
            items.zero() if item is None else decode(item, (at, index), state)
            for index, item in enumerate(value)
        ]

    def is_empty(self, value: Any) -> bool:
        return not value


class Map(Type):
    def __init__(self, values: Type, go: str = "") -> None:
        self.values = values
        self.go = go or f"map[string]{values.go}"

    def decode(self, value: Any, at: At, state: DecodeState) -> Any:
        if type(value) is not dict:
            raise state.unfit(value, at, self)
        values = self.values
        if type(values) is Scalar and {*map(type, value.values())} <= {values.python}:
            return value.copy()
        decode = values.decode
        return {
            key: values.zero() if item is None else decode(item, (at, key), state)
            for key, item in value.items()
        }

    def is_empty(self, value: Any) -> bool:
        return not value


class Field:
    """A field of a struct. `always` means that an encoder writes it even when it is empty. `markers` are its other
    properties: list type, keys, merge key, default.
    """

    __slots__ = (
        "always",
        "exact",
        "go_name",
        "keeps_empty",
        "markers",
        "name",
        "omits",
        "struct",
        "struct_inside",
        "type",
    )

    def __init__(self, struct: Struct, name: str, type_: Type, markers: Mapping[str, Any]) -> None:
        self.struct = struct
        self.name = name
        self.type = type_
        self.markers = markers
        self.go_name = str(markers.get("embedded", "")) + name
        self.always = bool(markers.get("always")) or isinstance(type_, Struct)
        self.exact = type_.python if type(type_) is Scalar else None
        """The Python type of which every value is decoded as it is."""
        inner = type_.to if isinstance(type_, Pointer) else type_
        self.struct_inside = inner if isinstance(inner, Struct) else None
        self.omits = type(type_).is_empty is not Type.is_empty
        """Whether an encoder omits some of its values."""
        self.keeps_empty = self.always and isinstance(type_, List)
        """Whether an empty value differs from a missing one until the object is stored."""

    def missing(self) -> Any:
        """Returns the value of a missing field."""
        if "default" in self.markers:
            return self.markers["default"]
        return self.type.filled() if isinstance(self.type, Struct) else self.type.zero()


class Struct(Type):
    """`fields` is filled in after construction, so that types may be recursive."""

    def __init__(self, go: str, *, atomic: bool = False) -> None:
        self.go = go
        self.name = go.rpartition(".")[2]
        self.atomic = atomic
        self.fields: dict[str, Field] = {}

    def decode(
        self, value: Any, at: At, state: DecodeState, former: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """`former` is what the value replaces, decoded: what is the same in both is not decoded again."""
        if type(value) is not dict:
            raise state.unfit(value, at, self)
        fields, decoded = self.fields, {}
        for name, member in value.items():
            field = fields.get(name)
            if field is None:
                state.drop(at, name)
            elif type(member) is field.exact:
                if member:
                    decoded[name] = member
            elif member is not None:
                was = None if former is None else former.get(name)
                if was and ((kind := type(was)) is dict or kind is list):
                    if member is was or (member == was and _encode(member) == _encode(was)):
                        decoded[name] = was
                        continue
                    if kind is dict and field.struct_inside is not None:
                        decoded[name] = field.struct_inside.decode(member, (at, field), state, was)
                        continue
                taken = field.type.decode(member, (at, field), state)
                if taken is not None and (
                    field.keeps_empty or not (field.omits and field.type.is_empty(taken))
                ):
                    decoded[name] = taken
        for field in self._filled:
            if field.name not in decoded:
                decoded[field.name] = field.missing()
        return decoded

    def settled(self, value: dict[str, Any]) -> dict[str, Any]:
        """Returns for a decoded value what is decoded from its stored form: this has no empty lists."""
        found = {}
        for name, member in value.items():
            field = self.fields.get(name)
            if field is None:
                found[name] = member
            elif field.keeps_empty and member == []:
                found[name] = None
            else:
                found[name] = _settled(field.type, member)
        return found

    def zero(self) -> dict[str, Any]:
        return {field.name: field.type.zero() for field in self.fields.values() if field.always}

    def filled(self) -> dict[str, Any]:
        """Returns the decoded form of `{}`."""
        return {field.name: field.missing() for field in self._filled}

    @cached_property
    def _filled(self) -> list[Field]:
        return [field for field in self.fields.values() if field.always or field.markers.get("default")]


def _settled(type_: Type, value: Any) -> Any:
    match type_:
        case Pointer():
            return _settled(type_.to, value)
        case List(items=Struct() as inner) if type(value) is list:
            return [inner.settled(item) if type(item) is dict else item for item in value]
        case Map(values=Struct() as inner) if type(value) is dict:
            return {key: inner.settled(item) if type(item) is dict else item for key, item in value.items()}
        case Struct() if type(value) is dict:
            return type_.settled(value)
    return value


class SchemaOr(Type):
    """A schema, or a value allowed instead of one. Unknown fields in it are not reported, because it decodes itself."""

    def __init__(self, schema: Struct, word: str) -> None:
        self._schema = schema
        self._lists = List(schema)
        self._word = word

    def decode(self, value: Any, at: At, state: DecodeState) -> Any:
        quiet = DecodeState(state.kind, state.version)
        if type(value) is dict:
            return self._schema.decode(value, None, quiet)
        if self._word == "bool":
            if type(value) is not bool:
                raise state.refused("boolean or JSON schema expected")
            return value
        if type(value) is list:
            items: Type = STRINGS if self._word == "strings" else self._lists
            return items.decode(value, None, quiet)
        return None


_encode = msgspec.json.Encoder().encode
ANY: Final = Type()
STRING: Final = Scalar("string", str, "")
STRINGS: Final = List(STRING)


def _base64(text: str) -> str:
    plain = text.replace("\n", "").replace("\r", "")
    try:
        return base64.b64encode(base64.b64decode(plain, validate=True)).decode()
    except (binascii.Error, ValueError):
        bad = re.search(r"[^A-Za-z0-9+/]", plain)
        at = bad.start() if bad and bad[0] != "=" else len(plain.rstrip("=")) // 4 * 4
        raise ValueError(f"illegal base64 data at input byte {at}") from None


SCALARS: Final[Mapping[str, Type]] = {
    "any": ANY,
    "string": STRING,
    "bool": Scalar("bool", bool, False),
    "int32": Integer("int32", 32),
    "int64": Integer("int64", 64),
    "float64": Float(),
    "bytes": Named("[]uint8", _base64, ""),
    "time": Named("string", lambda text: canonical_time(text, SECONDS)),
    "micro-time": Named("string", lambda text: canonical_time(text, MICROSECONDS)),
    "quantity": Quantity(),
    "int-or-string": IntOrString(),
}
RESOURCES: Final = Map(Quantity(MILLI), "v1.ResourceList")
NUMBERS = ("int32", "int64", "float64")


def _steps(at: At) -> list[Step]:
    steps = []
    while at is not None:
        at, step = at
        steps.append(step)
    return steps[::-1]


def _indexed(at: At) -> str:
    path = ""
    for step in _steps(at):
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step.name if isinstance(step, Field) else step}"
    return path.lstrip(".")
