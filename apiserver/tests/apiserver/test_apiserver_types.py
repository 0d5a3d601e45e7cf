"""The Go types of built-in kinds, without a server."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.errors import Invalid
from kubeshard_apiserver.apply.shape import shape_of_type
from kubeshard_apiserver.schema.catalog import served_kinds, struct, type_of
from kubeshard_apiserver.schema.decoding import DecodeState, Struct
from kubeshard_apiserver.schema.internal import internal
from kubeshard_apiserver.schema.scalars import amount_of, canonical_quantity

KINDS = [served.kind for served in served_kinds()]
POD = struct("core.v1.Pod")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.api_version}-{kind.kind}")
def test_every_served_kind_has_a_type_and_a_shape(kind):
    type_ = type_of(kind)
    assert {"apiVersion", "kind"} <= type_.fields.keys()
    assert shape_of_type(type_).closed
    empty = type_.decode({}, None, DecodeState(kind.kind, kind.version))
    assert type_.decode(empty, None, DecodeState(kind.kind, kind.version)) == empty


def test_types_may_contain_themselves():
    schema = {"properties": {"a": {"items": {"type": "string", "x": 1}, "additionalProperties": False}}}
    state = DecodeState("x", "v1")
    props = struct("apiextensions.v1.JSONSchemaProps")
    decoded = props.decode(schema, None, state)
    assert decoded == {"properties": {"a": {"items": {"type": "string"}, "additionalProperties": False}}}
    assert state.dropped == []


def test_messages_show_values_with_the_names_order_and_zeros_of_internal_types():
    source = {"name": "s", "kind": "VolumeSnapshot", "apiGroup": "snapshot.storage.k8s.io"}
    selector = {"matchLabels": {"b": "1", "a": "0"}, "matchExpressions": []}
    claim = {
        "metadata": {"labels": {"b": "1", "a": "0"}, "name": "v"},
        "spec": {"selector": selector, "dataSource": source},
    }
    shown = internal("core.v1.PersistentVolumeClaim", claim)
    assert list(shown) == ["name", "labels", "Spec", "Status"]
    assert list(shown["labels"]) == ["a", "b"]
    assert shown["Spec"]["DataSource"] == {
        "APIGroup": source["apiGroup"],
        "Kind": source["kind"],
        "Name": "s",
    }
    assert shown["Spec"]["Selector"] == {"matchLabels": {"a": "0", "b": "1"}}
    assert shown["Spec"]["Resources"] == {"Limits": None, "Requests": None}
    assert (shown["Spec"]["VolumeName"], shown["Spec"]["VolumeMode"]) == ("", None)
    rolling = internal("apps.v1.StatefulSetUpdateStrategy", {"rollingUpdate": {}})["RollingUpdate"]
    assert rolling == {"Partition": 0, "MaxUnavailable": None}
    rolling = internal("apps.v1.DeploymentStrategy", {"rollingUpdate": {}})["RollingUpdate"]
    assert rolling == {"MaxUnavailable": 0, "MaxSurge": 0}
    rolling = internal("apps.v1.DaemonSetUpdateStrategy", {"rollingUpdate": {"maxSurge": "10%"}})[
        "RollingUpdate"
    ]
    assert rolling == {"MaxUnavailable": 0, "MaxSurge": "10%"}


def values_of(type_, depth=3):
    """Generates bodies that partly fit the type."""
    fields = {}
    for name, field in type_.fields.items():
        inner = field.type
        while not isinstance(inner, Struct) and hasattr(inner, "to"):
            inner = inner.to
        fields[name] = values_of(inner, depth - 1) if depth and isinstance(inner, Struct) else JSON
    return st.fixed_dictionaries({}, optional=fields)


def decoded(body):
    try:
        return POD.decode(body, None, DecodeState("Pod", "v1")), ""
    except Invalid as error:
        return None, error.message


@given(values_of(POD))
def test_what_was_decoded_is_decoded_to_itself_and_all_else_is_refused_in_words(body):
    once, problem = decoded(body)
    if once is None:
        assert problem.startswith('Pod in version "v1" cannot be handled as a Pod: ')
    else:
        state = DecodeState("Pod", "v1")
        assert (POD.decode(once, None, state), state.dropped) == (once, [])


@given(
    st.decimals(min_value=-(10**12), max_value=10**12, places=3, allow_nan=False),
    st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi", "e3", "E-3"]),
)
def test_the_canonical_is_the_same_number_and_stays(number, suffix):
    text = f"{number:f}{suffix}"
    written = canonical_quantity(text)
    assert canonical_quantity(written) == written
    if abs(amount_of(text)) < 2**63:
        assert amount_of(written) == amount_of(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1e57", str(2**63 - 1)),
        ("1e99999999", str(2**63 - 1)),
        ("-1e57", str(1 - 2**63)),
        ("0e99999999", "0"),
    ],
)
def test_a_quantity_that_is_too_large_becomes_the_largest(text, written):
    assert canonical_quantity(text) == written


@pytest.mark.system
def test_a_server_starts_without_reading_types():
    program = (
        "from kubeshard_apiserver import ApiServer; from kubeshard_apiserver.schema import catalog; ApiServer(); "
        "print(len(catalog._made))"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(made) < len(KINDS)
