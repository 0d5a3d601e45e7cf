"""Every field of every served kind can be decoded from protobuf."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard_apiserver.schema import protobuf

SCHEMA = files("kubeshard_apiserver.schema")
TYPES = json.loads((SCHEMA / "types.json").read_text())
NUMBERS = json.loads((SCHEMA / "field_numbers.json").read_text())


def numbered(name: str) -> set[str]:
    fields: set[str] = set()
    for said in NUMBERS.get(name, {}).values():
        fields |= numbered(said[1:]) if said.startswith("+") else {said.removeprefix("*")}
    return fields


@pytest.mark.parametrize("name", TYPES)
def test_every_field_has_a_number(name):
    fields = set(TYPES[name]["fields"]) - {"apiVersion", "kind"}
    assert fields <= numbered(name)


@given(st.binary(max_size=200))
def test_whatever_is_sent_is_an_object_or_refused(data):
    config_map = b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap"
    for body in data, protobuf.MAGIC + data, protobuf.MAGIC + config_map + data:
        with suppress(ValueError):
            assert isinstance(protobuf.decode(body), dict)


def test_a_number_below_zero():
    lease = b"\x0a\x1f\x0a\x16coordination.k8s.io/v1\x12\x05Lease"
    spec = b"\x12\x0b\x10" + b"\xff" * 9 + b"\x01"
    assert protobuf.decode(protobuf.MAGIC + lease + b"\x12" + bytes((len(spec),)) + spec)["spec"] == {
        "leaseDurationSeconds": -1
    }


@pytest.mark.parametrize("time", [b"\x08" + b"\xff" * 8 + b"\x7f", b"\x0d\0\0\0\0", b"\x0a\x01x"])
def test_a_time_that_is_none_is_refused(time):
    lease = b"\x0a\x1f\x0a\x16coordination.k8s.io/v1\x12\x05Lease"
    spec = b"\x12" + bytes((len(time) + 2, 0x1A, len(time))) + time
    with pytest.raises(ValueError, match=r"a field|wrong wireType"):
        protobuf.decode(protobuf.MAGIC + lease + b"\x12" + bytes((len(spec),)) + spec)
