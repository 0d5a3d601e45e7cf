"""What is written as YAML is read as the same JSON by every parser: YAML 1.1, YAML 1.2, and Kubernetes' own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kubeshard.core.yaml_output import as_yaml, documents, scalar
from kubeshard_apiserver.front.bodies import read_yaml
from puzzling_texts import PUZZLING

TEXT = st.one_of(
    st.sampled_from(PUZZLING),
    st.from_regex(r"[-+.]{0,2}[0-9ebox_:.+TZ-]{1,12}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text("yn0123456789eExXoObB_.:+-~ \n\t#'\"|>&*!%@`?,[]{}=<", max_size=8),
)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


class Yaml12(yaml.SafeLoader):
    """Scalars by the core schema of YAML 1.2."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for tag, pattern in {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}.items():
    Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), None)


def as_kubernetes_does(text: str) -> Any:
    document, repeated = read_yaml(text.encode())
    assert not repeated
    return document


READERS: dict[str, Callable[[str], Any]] = {
    "YAML 1.1": yaml.safe_load,
    "YAML 1.2": lambda text: yaml.load(text, Yaml12),
    "Kubernetes": as_kubernetes_does,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@given(document=st.dictionaries(TEXT, JSON, max_size=4))
@example(document={text: [text, {"": text}] for text in PUZZLING})
def test_every_parser_reads_what_was_written(read: Callable[[str], Any], document: dict[str, Any]) -> None:
    assert read(as_yaml(document)) == document


@pytest.mark.parametrize("text", PUZZLING)
def test_a_text_within_a_file_is_read_as_that_text(text: str) -> None:
    for read in READERS.values():
        if "\n" not in text:
            assert read(f"a: {scalar(text)}\nb: {{c: {scalar(text)}}}\n") == {"a": text, "b": {"c": text}}


@given(st.lists(st.dictionaries(TEXT, TEXT, min_size=1, max_size=2), max_size=4))
def test_documents_stay_apart(found: list[dict[str, str]]) -> None:
    assert list(yaml.safe_load_all(documents(found))) == found


def test_what_is_read_by_people_has_no_needless_quotes() -> None:
    plain = (
        "example.com/v1",
        "Deployment",
        "10m",
        "64Mi",
        "0s",
        "--log-level=info",
        ".status.phase",
        "a-b.c_d",
        "y-1",
    )
    assert as_yaml({"kind": list(plain)}) == "kind:\n" + "".join(f"- {each}\n" for each in plain)
    assert as_yaml({"a": "one\n  two\n", "y": "n"}) == "a: |\n  one\n    two\n'y': 'n'\n"
