import pytest

from kubeshard.core.selectors import (
    FieldSelector,
    InvalidSelector,
    LabelSelector,
    LabelSelectorRequirement,
    Selector,
)


@pytest.mark.parametrize(
    ("text", "selected", "rejected"),
    [
        ("", [None, {}, {"a": "b"}], []),
        ("a=b", [{"a": "b"}], [{}, {"a": "c"}, None]),
        ("a==b", [{"a": "b"}], [{}]),
        ("a!=b", [{}, {"a": "c"}], [{"a": "b"}]),
        ("a in (x, y)", [{"a": "x"}, {"a": "y"}], [{}, {"a": "z"}]),
        ("a notin (x,y)", [{}, {"a": "z"}], [{"a": "x"}]),
        ("example.com/a", [{"example.com/a": ""}], [{}]),
        ("!a", [{}, {"b": ""}], [{"a": ""}]),
        ("a=", [{"a": ""}], [{}, {"a": "b"}]),
        (
            "a=b,!c,d in (x,y),e notin (z)",
            [{"a": "b", "d": "x"}],
            [{"a": "b", "d": "x", "c": ""}, {"a": "b"}],
        ),
    ],
)
def test_a_selector_selects_what_the_api_server_selects(text, selected, rejected):
    selector = Selector.parse(text)
    assert all(selector.matches(labels) for labels in selected)
    assert not any(selector.matches(labels) for labels in rejected)


@pytest.mark.parametrize(
    "text", ["a=b", "a!=b", "a", "!a", "a in (x,y)", "a notin (x,y)", "a=b,c in (d,e),!f", ""]
)
def test_the_query_string_reads_back_as_the_same_selector(text):
    assert str(Selector.parse(text)) == text
    assert Selector.parse(str(Selector.parse(text))) == Selector.parse(text)


def test_selections_written_differently_are_equal_and_hash_equal():
    assert Selector.parse("b=1, a in (x)") == Selector.parse("a=x,b==1,a=x")
    assert hash(Selector.parse("b,a")) == hash(Selector.parse("a,b"))
    assert Selector.equals("a", "x") & Selector.absent("b") == Selector.parse("!b,a=x")
    assert Selector.not_in("a", ["y", "x"]) == Selector.parse("a notin (x,y)")
    assert not Selector.everything()


@pytest.mark.parametrize(
    "text", ["a in ()", "a in x", "=b", "a=b=c", "a b", "!a=b", "-a", "a=-b", "a,", "x/y/z", "a=" + "v" * 64]
)
def test_a_selector_the_server_would_refuse_is_refused(text):
    with pytest.raises(InvalidSelector):
        Selector.parse(text)


def test_the_api_type_compiles_to_the_same_selector():
    selector = LabelSelector(
        match_labels={"a": "b"},
        match_expressions=(
            LabelSelectorRequirement(key="c", operator="NotIn", values=("x", "y")),
            LabelSelectorRequirement(key="d", operator="Exists"),
            LabelSelectorRequirement(key="e", operator="DoesNotExist"),
        ),
    )
    assert str(Selector.from_label_selector(selector)) == "a=b,c notin (x,y),d,!e"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (LabelSelectorRequirement(key="a", operator="Like"), r"matchExpressions\[0\].operator: 'Like'"),
        (
            LabelSelectorRequirement(key="a", operator="Exists", values=("b",)),
            r"matchExpressions\[0\].values",
        ),
        (LabelSelectorRequirement(key="a", operator="In"), "a: operator in needs at least one value"),
        (LabelSelectorRequirement(key="", operator="Exists"), "'' is not a valid label key"),
    ],
)
def test_a_bad_expression_is_named(expression, message):
    with pytest.raises(InvalidSelector, match=message):
        Selector.from_label_selector(LabelSelector(match_expressions=(expression,)))


def test_field_selectors_match_and_read_back():
    selector = FieldSelector.parse("status.phase!=Failed, metadata.name=x")
    assert str(selector) == "metadata.name=x,status.phase!=Failed"
    assert selector.matches({"metadata.name": "x"})
    assert not selector.matches({"metadata.name": "x", "status.phase": "Failed"})
    awkward = FieldSelector.equals("a", "b,c=d\\e")
    assert FieldSelector.parse(str(awkward)) == awkward


@pytest.mark.parametrize(
    "text", ["metadata.name", "metadata name=x", "metadata..name=x", ".name=x", "name.=x", "=x"]
)
def test_a_field_selector_the_server_would_refuse_is_refused(text):
    with pytest.raises(InvalidSelector):
        FieldSelector.parse(text)


def test_a_field_selector_has_the_path_of_a_field():
    with pytest.raises(InvalidSelector, match=r"such as spec\.nodeName"):
        FieldSelector.equals("spec.node name", "x")
