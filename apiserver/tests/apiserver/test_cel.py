"""Kubernetes' dialect of CEL. The conformance cases about policies compare it with the real server."""

from __future__ import annotations

import sys

import pytest

from kubeshard.core.errors import ConfigurationError
from kubeshard_apiserver.cel import CelError, compile_expression
from kubeshard_apiserver.cel import program as cel_program

SELF = {"self": {"replicas": 3, "tags": ["b", "a"], "labels": {"a": "1"}, "nothing": None}}


def evaluate(expression: str) -> object:
    return compile_expression(expression, ("self",)).evaluate(SELF)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("self.replicas <= 3.5", True),
        ("has(self.replicas) && !has(self.missing)", True),
        ("self.tags.exists_one(tag, tag == 'a')", True),
        ("self.tags.map(tag, tag + '!')", ["b!", "a!"]),
        ("self.labels.all(key, value, key == 'a' && value == '1')", True),
        ("self.?missing.orValue(7)", 7),
        ("self.labels[?'a'].hasValue()", True),
        ("self.tags.isSorted()", False),
        ("self.tags.max()", "b"),
        ("[1, 2].sum()", 3),
        ("[2.5, 1.0].min()", 1.0),
        ("sets.contains(self.tags, ['a'])", True),
        ("'a1b22'.find('[0-9]+')", "1"),
        ("'a1b22'.findAll('[0-9]+')", ["1", "22"]),
        ("'a1b22'.findAll('[0-9]+', 1)", ["1"]),
        ("'%s-%d'.format(['a', 1])", "a-1"),
        ("quantity('1Gi') == quantity('1024Mi')", True),
        ("quantity('500m').add(quantity('1500m')).asInteger()", 2),
        ("quantity('1k').isLessThan(quantity('1Ki'))", True),
        ("sign(quantity('-1'))", -1),
        ("isQuantity('1x')", False),
        ("url('https://a.b:8/c?d=e').getHostname()", "a.b"),
        ("url('https://[::1]:8/c').getPort()", "8"),
        ("url('/a%20b').getEscapedPath()", "/a%20b"),
        ("url('https://a?d=e').getQuery()['d']", ["e"]),
        ("isURL('a b')", False),
        ("ip('::1').isLoopback()", True),
        ("ip('10.0.0.1').isGlobalUnicast()", True),
        ("ip.isCanonical('2001:0::1')", False),
        ("isIP('::ffff:1.2.3.4')", False),
        ("cidr('10.1.0.0/16').containsIP('10.1.2.3')", True),
        ("cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')", False),
        ("cidr('10.1.2.3/16').masked() == cidr('10.1.0.0/16')", True),
        ("cidr('10.1.2.3/16').ip() == ip('10.1.2.3')", True),
        ("semver('1.10.0').isGreaterThan(semver('1.9.0'))", True),
        ("semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))", True),
        ("isSemver('v1.0') || !isSemver('v1.0', true)", False),
    ],
)
def test_an_expression_has_the_value(expression, value):
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("self.missing", "no such key: missing"),
        ("1 / (self.replicas - 3)", "division by zero"),
        ("self.tags[2]", "index out of bounds: 2"),
        ("self.replicas + 'a'", "no such overload"),
        ("self.replicas.name", "no such overload"),
        ("[].min()", "min called on empty list"),
        ("self.replicas.isSorted()", "no such overload"),
        ("sign(quantity('x'))", "quantities must match the regular expression"),
        ("ip('1.2.3').family()", 'IP Address "1.2.3" parse error'),
        ("optional.of(1)", "optional"),
    ],
)
def test_what_cannot_be_evaluated_is_an_error_in_words(expression, message):
    with pytest.raises(CelError, match=message.replace("(", r"\(")):
        evaluate(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("other == 1", "undeclared reference to 'other' (in container '')"),
        ("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("self.", "Syntax error"),
        ("self.foo()", "undeclared reference to 'foo'"),
        ("math.sqrt(4.0) == 2.0", "undeclared reference to 'math'"),
        ("self.name.matches('[')", "invalid matches argument"),
        ("self.name in ['a', 1]", "expected type 'string' but found 'int'"),
    ],
)
def test_what_cannot_be_meant_is_found_when_compiling(expression, message):
    with pytest.raises(CelError) as caught:
        compile_expression(expression, ("self",))
    assert str(caught.value).startswith("compilation failed: ERROR: <input>:1:")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "returns"),
    [
        ("true", "bool"),
        ("1", "int"),
        ("self.a", "dyn"),
        ("'a'", "string"),
        ("[1]", "list(int)"),
        ("null", "null_type"),
    ],
)
def test_a_program_knows_the_type_it_returns(expression, returns):
    assert compile_expression(expression, ("self",)).returns == returns


def test_an_error_on_the_other_side_of_a_decided_or_does_not_count():
    assert evaluate("self.missing == 1 || self.replicas == 3") is True


def test_without_the_library_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    cel_program._environment.cache_clear()
    with pytest.raises(ConfigurationError, match=r"pip install '\./kubeshard\[apiserver\]'"):
        compile_expression("'only here' == ''", ("self",))
