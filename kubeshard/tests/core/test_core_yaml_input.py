"""YAML and JSON mean what they mean to kubectl.

The tables are what sigs.k8s.io/yaml v1.6 and `YAMLOrJSONDecoder` of k8s.io/apimachinery v0.36 make of the texts.
"""

import json

import pytest
import yaml

from kubeshard.core.yaml_input import Unreadable, documents_in, read_yaml

VALUES = [
    ("y", True),
    ("On", True),
    ("no", False),
    ("tRue", "tRue"),
    ("~", None),
    ("", None),
    ("01", 1),
    ("0777", 511),
    ("0o17", 15),
    ("08", 8),
    ("0x1F", 31),
    ("-0b11", -3),
    ("1_000", 1000),
    ("1_0.5", 10.5),
    ("_1", "_1"),
    ("1e3", 1000),
    ("1.0", 1),
    ("1.5", 1.5),
    ("1e", "1e"),
    ("1e400", "1e400"),
    (".5", 0.5),
    ("._5", "._5"),
    ("2024-01-01", "2024-01-01"),
    ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
    ("22:22", "22:22"),
    ("190:20:30", "190:20:30"),
    ("18446744073709551615", 18446744073709551615),
    ("<<", "<<"),
    ("=", "="),
    ("1,000", "1,000"),
    ('"on"', "on"),
    ("!!str on", "on"),
    ("!!float 1", 1),
    ("!!binary |\n  aGVs\n  bG8=", "hello"),
    ("!!binary gIA=", "\ufffd\ufffd"),
    ("!!timestamp 2024-01-01", "2024-01-01"),
    ("!foo 1", "1"),
    ("|-\n  x\n  y", "x\ny"),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_value_is_what_it_is_to_kubectl(text: str, value: object) -> None:
    (found,) = documents_in(f"a: {text}\n".encode())
    assert json.dumps(found) == json.dumps({"a": value})  # 1 is not 1.0, and not True


@pytest.mark.parametrize(
    "text", [".inf", ".nan", "!!int 1.5", "!!bool 1", "!!binary x", "!!timestamp 5", "*b", "@b"]
)
def test_what_kubectl_refuses_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match=r"^not YAML"):
        documents_in(f"a: {text}\n".encode())


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("on", "true"),
        ("n", "false"),
        ("1", "1"),
        ("0x10", "16"),
        ("1.50", "1.5"),
        ("1000000.0", "1e+06"),
        ("12e5", "1.2e+06"),
        ("16777217.0", "1.6777216e+07"),
        ("0.00001", "1e-05"),
        ("1e10", "1e+10"),
        (".inf", ".inf"),
        ("2024-01-01", "2024-01-01"),
        ("'on'", "on"),
    ],
)
def test_a_key_is_the_text_that_it_is_to_kubectl(text: str, key: str) -> None:
    assert documents_in(f"{text}: v\n".encode()) == [{key: "v"}]


@pytest.mark.parametrize("text", ["~: v", "null: v", "? \n: v", "18446744073709551615: v"])
def test_a_key_that_json_does_not_have_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(Unreadable, match=r"write it in quotes$"):
        documents_in(text.encode())


@pytest.mark.parametrize("text", ["[1]: 2", "{a: b}: c", "? [a]\n: b"])
def test_a_collection_is_no_key(text: str) -> None:
    with pytest.raises(Unreadable, match="invalid map key"):
        documents_in(text.encode())


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ('{"a":1}{"b":2}', [{"a": 1}, {"b": 2}]),
        ('{"a":1}\n{"b":2}\n', [{"a": 1}, {"b": 2}]),
        ('{"a":1}\n---\nb: 2\n', [{"a": 1}, {"b": 2}]),
        ('{"a":1}\n---\n---\n{"b":1}', [{"a": 1}, {"b": 1}]),
        ('{\n\t"a": 1\n}\n', [{"a": 1}]),
        ('---\n{\n\t"a": 1\n}\n', [{"a": 1}]),
        ('\ufeff{"a":1}', [{"a": 1}]),
        ("\ufeffa: 1\n---\nb: 1\n", [{"a": 1}, {"b": 1}]),
        ("a: 1\r\n---\r\nb: |\r\n  x\r\n  y\r\n", [{"a": 1}, {"b": "x\ny\n"}]),
        ("a: 1\n--- # more\nb: 2\n---   \n", [{"a": 1}, {"b": 2}]),
        ("---\n---\na: 1\n---\nnull\n---\n# none\n", [{"a": 1}]),
        ("{a: 1}\n---\nb: 2", [{"a": 1}, {"b": 2}]),
        ('{"a":1} # one\n', [{"a": 1}]),
        ('{"a": "\t"}', [{"a": "\t"}]),
        ('{"a":1,"a":2}', [{"a": 2}]),
        ("a: 1\na: 2\n", [{"a": 2}]),
        ("x: &x {b: 1}\nc:\n  b: 2\n  <<: *x\n", [{"x": {"b": 1}, "c": {"b": 1}}]),
        ('!!merge "\\x3c\\x3c": {a: 1}\n', [{"a": 1}]),
        ("- a\n", [["a"]]),
        ("", []),
        ("\n# none\n", []),
    ],
)
def test_the_documents_of_a_file_are_those_of_kubectl(text: str, documents: list[object]) -> None:
    assert documents_in(text.encode()) == documents


def test_utf_16_is_read() -> None:
    assert documents_in("a: é\n".encode("utf-16")) == [{"a": "é"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b\n---\nc: [\n", "not YAML on line 4: "),
        ('{"a":1}\n{"b":2}\n{"c":}\n', "not JSON on line 3: "),
        ('{"a":1}\n---\nb: [\n', "not YAML on line 4: "),
        ('{"a": NaN}\n{', "not YAML on line 2: "),
        ("a: \x01\n", "not YAML"),
        ("{" * 3000, "not YAML"),
        ('{"a":' * 100_000, "not YAML"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(Unreadable, match=f"^{message}") as caught:
        documents_in(text.encode())
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(Unreadable, match=r"^not YAML"):
        documents_in(b'{"a": "\xff"}')


def test_where_pyyaml_reads_the_same_it_is_the_same_document() -> None:
    text = "a: [1, two, {three: 3}]\nb: &b 'x'\nc: *b\nd: >-\n  folded\n  text\n"
    assert read_yaml(text.encode())[0] == yaml.safe_load(text)
