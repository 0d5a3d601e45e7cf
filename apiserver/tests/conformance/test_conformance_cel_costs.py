"""What CEL rules may cost at most: a definition with rules that may become too slow is refused."""

import pytest
from conformance_kinds import DEFINITIONS
from conformance_schemas import fields

TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
LONG = "a" * 40


def short(length):
    return {**TEXT, "maxLength": length}


def rules(*texts):
    return {"x-kubernetes-validations": [{"rule": text} for text in texts]}


def text(rule, **limits):
    return {**TEXT, **limits, **rules(rule)}


def items(of, *texts, **limits):
    return {"type": "array", "items": of, **limits, **(rules(*texts) if texts else {})}


def values(of, rule, **limits):
    return {"type": "object", "additionalProperties": of, **limits, **rules(rule)}


def parts(rule, **properties):
    return {"type": "object", "properties": properties, **rules(rule)}


SPECS = {
    "numbers": items(NUMBER, "self.all(x, self.all(y, true))", maxItems=2000),
    "texts": items(TEXT, "self.all(x, x.matches('^[a-z]+$'))"),
    "short texts": items(short(60), "self.all(x, x.matches('^[a-z]+$'))", maxItems=500000),
    "unique": items(WHOLE, "self.all(x, self.exists_one(y, x == y))", maxItems=2000),
    "list functions": items(WHOLE, "self.sum() > 3 && self.min() > 1 && self.isSorted()", maxItems=9000000),
    "sorted texts": items(short(50), "self.isSorted()", maxItems=2500000),
    "contains": text("self.contains(self)", maxLength=9000),
    "split": text("self.split(',', 3).all(x, x.startsWith('a') && x.size() > 3)", maxLength=30000000),
    "replace": text("self.replace('a', 'bb').matches('^aaaa$')", maxLength=30000000),
    "found": text("self.lowerAscii().trim().substring(3).find('[0-9]+').size() > 1", maxLength=30000000),
    "join": text("self.findAll('[a-z]+').join(',').size() > 3", maxLength=3000000),
    "quantity": text("quantity(self).isGreaterThan(quantity('1'))", maxLength=60000000),
    "compared": text("self < oldSelf || self == 'x' || self in ['a', 'b']", maxLength=90000000),
    "map": values(TEXT, "self.all(k, k.size() > 3 && self[k].startsWith('a'))"),
    "map of lists": values(items(TEXT), "self.all(k, self[k].all(x, x.size() > 0))", maxProperties=50),
    "in each item": items(parts("self.a == self.b", a=TEXT, b=TEXT)),
    "in some items": items(parts("self.a == self.b", a=TEXT, b=TEXT), maxItems=30),
    "in items of items": items(items(parts("self.a > 3", a=WHOLE), maxItems=900), maxItems=9000),
    "comprehensions": parts("self.l.map(x, x + 1).filter(x, x > 3).exists(x, x == 5)", l=items(WHOLE)),
    "one by another": parts(
        "self.l.all(x, self.m.exists(y, x == y.name))",
        l=items(TEXT, maxItems=100),
        m=items({**fields(name=short(63)), "required": ["name"]}, maxItems=1000),
    ),
    "choices": items(parts(f"self.e.matches('{LONG}')", e={**TEXT, "enum": ["aa", "bbbb"]})),
    "int or string": parts(
        f"type(self.x) == string ? self.x.matches('{LONG}') : self.x > 3",
        x={"x-kubernetes-int-or-string": True},
    ),
    "sets": parts(
        "sets.equivalent(self.l, self.m)", l=items(WHOLE, maxItems=4000), m=items(WHOLE, maxItems=4000)
    ),
    "optional": parts(f"self.?a.orValue('x').matches('{LONG}')", a=TEXT),
    "addresses": parts("cidr('10.0.0.0/8').containsIP(self.s) && isIP(self.s)", s=short(30000000)),
    "made lists": parts(
        "self.l.distinct().size() > 2 || self.l.sort().size() > 1", l=items(WHOLE, maxItems=3000)
    ),
    "sums": parts(
        "self.l.sum() == self.l.max() && self.l.min() + self.l.sum() < self.l.max() && "
        "self.m.map(x, x.sum()).sum() == self.m.map(x, x.max()).min()",
        l=items(WHOLE, maxItems=40),
        m=items(items(WHOLE, maxItems=5), maxItems=6),
    ),
    "shown sums": parts("string(self.l.sum()) == string(self.l.max())", l=items(WHOLE, maxItems=40)),
    "numbers of two types": parts(
        "self.n * 2.0 == self.n * self.n && self.?n.orValue(1.0) == self.?n.orValue(2.0) && self.n > self.i",
        n=NUMBER,
        i=WHOLE,
    ),
    "optional numbers": parts("optional.of(self.n) == optional.none() && self.?n == self.?n", n=WHOLE),
    "quoted": parts("strings.quote(self.s) == strings.quote(self.s + 'a')", s=short(100)),
    "same values": parts(
        "[self.s].map(x, quantity(x)).all(q, q == q) && [ip(self.s)][0] == [ip(self.s)][0] && "
        "(self.b ? semver(self.s) : semver('1.0.0')) == (self.b ? semver('1.0.0') : semver(self.s))",
        s=short(100),
        b={"type": "boolean"},
    ),
    "other values": parts("quantity(self.s) != quantity('1')", s=short(100)),
    "same addresses": items(parts("url(self.s) == url(self.t)", s=short(100), t=TEXT), maxItems=39),
    "formats": items(
        parts("!format.named('uuid').value().validate(self.s).hasValue()", s=short(100)), maxItems=9330
    ),
    "sorted by": items(
        parts(
            "self.l.sort().size() > 2 && self.m.sortBy(x, x.k).size() > 1",
            l=items(short(9), maxItems=30),
            m=items(fields(k=short(9)), maxItems=12),
        ),
        maxItems=6000,
    ),
    "cheap": parts("self.a == self.b || has(self.a)", a=short(10), b=short(10)),
}


CHEAP = (
    *("cheap", "map", "in some items", "one by another", "int or string"),
    *("sums", "numbers of two types", "optional numbers", "quoted", "same values"),
)


def definition(name, spec):
    plural = "".join(chr(ord("a") + int(digit, 16)) for digit in name.removeprefix("case-")) + "s"
    group = "costs.example.com"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": fields(spec=spec)},
    }
    names = {
        "plural": plural,
        "singular": plural[:-1],
        "kind": plural[:-1].title(),
        "listKind": plural.title(),
    }
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}


@pytest.mark.parametrize("what", SPECS)
async def test_what_rules_may_cost_is_estimated_as_on_the_server(api, name, what):
    tried = await api.create(DEFINITIONS, definition(name, SPECS[what]), dryRun="All")
    assert tried.status == (201 if what in CHEAP else 422), tried.text
    assert what in CHEAP or "exceeds budget by factor of" in tried.message


@pytest.mark.parametrize("message", ["'a' + string(self.n)", "'a' + self.s", "self.l.join(', ')"])
async def test_a_message_has_a_cost_of_its_own(api, name, message):
    spec = fields(n=WHOLE, s=TEXT, l=items(TEXT))
    spec["x-kubernetes-validations"] = [{"rule": "true", "messageExpression": message}]
    await api.create(DEFINITIONS, definition(name, spec), dryRun="All")


async def test_what_is_too_expensive_by_itself_or_together_is_named(api, name):
    spec = items(TEXT, *(f"self.all(x, x.matches('{number}{LONG}'))" for number in range(6)))
    refused = await api.create(DEFINITIONS, definition(name, spec), dryRun="All")
    together = [field for field, _, message in refused.causes if "contributed to" in message]
    assert len(together) == 4
