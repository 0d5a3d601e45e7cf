"""get and list: order, selectors, paging, versions."""

import base64
import json

import pytest
from conformance_kinds import config_map


def names(answer):
    return [item["metadata"]["name"] for item in answer["items"]]


@pytest.fixture
async def five(api, maps):
    for number, name in enumerate("ebdac"):
        labels = {"parity": "odd" if number % 2 else "even", name: "yes"}
        await api.create(maps, config_map(name, labels=labels))
    return maps


async def test_get_of_what_is_missing_is_not_found(api, maps):
    refused = await api.get(f"{maps}/nope")
    assert refused.refusal == (404, "NotFound")
    assert refused.details == {"name": "nope", "kind": "configmaps"}


async def test_get_with_a_version_of_the_past_answers(api, five):
    assert (await api.get(f"{five}/a", resourceVersion="0")).status == 200


async def test_a_list_is_ordered_by_name(api, five):
    listed = await api.get(five)
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert names(listed) == ["a", "b", "c", "d", "e"]


async def test_items_of_built_in_lists_have_no_kind(api, five):
    assert {"kind", "apiVersion"}.isdisjoint((await api.get(five))["items"][0])


async def test_a_list_over_all_namespaces_has_those_of_each(api, ns, maps, name):
    other = f"{name}-b"
    await api.create("/api/v1/namespaces", {"metadata": {"name": other}})
    await api.create(maps, config_map("x", labels={"of": name}))
    await api.create(f"/api/v1/namespaces/{other}/configmaps", config_map("x", labels={"of": name}))
    listed = await api.get("/api/v1/configmaps", labelSelector=f"of={name}")
    # The order is that of the string "namespace/name".
    assert [item["metadata"]["namespace"] for item in listed["items"]] == [other, ns]


async def test_an_empty_list_has_items_and_a_version(api, maps):
    listed = await api.get(maps)
    assert listed["items"] == []
    assert listed.version.isdecimal()


async def test_a_list_in_a_missing_namespace_is_empty(api, name):
    assert (await api.get(f"/api/v1/namespaces/{name}-none/configmaps"))["items"] == []


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("parity=odd", "ab"),
        ("parity==odd", "ab"),
        ("parity!=odd", "cde"),
        ("parity in (odd,even)", "abcde"),
        ("parity notin (even)", "ab"),
        ("a", "a"),
        ("!a", "bcde"),
        ("parity=even,!c", "de"),
        ("parity = even , ! c", "de"),
        ("", "abcde"),
    ],
)
async def test_label_selector(api, five, selector, selected):
    assert names(await api.get(five, labelSelector=selector)) == list(selected)


@pytest.fixture
async def numbered(api, maps):
    """The path of ConfigMaps whose label `n` is their name, or is missing."""
    for name in ("3", "5", "40", "-1", "x", "none"):
        labels = {} if name == "none" else {"n": name.replace("-1", "")}
        assert (await api.create(maps, config_map(f"m{name}", labels=labels))).status == 201
    return maps


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("n>3", ["m40", "m5"]),
        ("n > 4, n < 40", ["m5"]),
        ("n<05", ["m3"]),
        ("n in ()", ["m-1"]),
        ("n in (3,)", ["m-1", "m3"]),
        ("in", []),
        ("n notin (in,3,5,40)", ["m-1", "mnone", "mx"]),
        (" ", ["m-1", "m3", "m40", "m5", "mnone", "mx"]),
    ],
)
async def test_labels_are_compared_as_numbers_and_with_no_text(api, numbered, selector, selected):
    assert names(await api.get(numbered, labelSelector=selector)) == selected


_NO_NUMBER = "for 'Gt', 'Lt' operators, the value must be an integer"
_NO_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        ("n>x", f'unable to parse requirement: values[0]: Invalid value: "x": {_NO_NUMBER}'),
        ("n>", f'unable to parse requirement: values[0]: Invalid value: "": {_NO_NUMBER}'),
        ("n<1.5", f'unable to parse requirement: values[0]: Invalid value: "1.5": {_NO_NUMBER}'),
        (f"n<{1 << 63}", f'unable to parse requirement: values[0]: Invalid value: "{1 << 63}": {_NO_NUMBER}'),
        ("n>-1", f'unable to parse requirement: values[0][n]: Invalid value: "-1": {_NO_VALUE}'),
        (
            "n in (-b,a-)",
            f'unable to parse requirement: [values[0][n]: Invalid value: "-b": {_NO_VALUE}, '
            f'values[1][n]: Invalid value: "a-": {_NO_VALUE}]',
        ),
        (
            "-n=5",
            'unable to parse requirement: <nil>: Invalid value: "-n": name part must consist of alphanumeric '
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
            "'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        ("n gt 1", "unable to parse requirement: found 'gt', expected: in, notin, =, ==, !=, gt, lt"),
        ("n>=5", "unable to parse requirement: found '=', expected: identifier"),
        ("n in 5", "unable to parse requirement: found '5' expected: '('"),
        ("n in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("n in (5", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("n in (5,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("n=5 x", "found 'x', expected: ',' or 'end of string'"),
        ("n,", "found '', expected: identifier after ','"),
        ("n,,m", "found ',', expected: identifier after ','"),
        ("(", "found '(', expected: !, identifier, or 'end of string'"),
    ],
)
async def test_what_is_wrong_with_a_label_selector_is_told(api, maps, selector, problem):
    refused = await api.get(maps, labelSelector=selector)
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == problem


@pytest.mark.parametrize("selector", ["a in", "a===b", "a in (b", "a=b,,", "=b", "a=b c"])
async def test_a_bad_label_selector_is_a_bad_request(api, maps, selector):
    refused = await api.get(maps, labelSelector=selector)
    assert refused.refusal == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "selected"),
    [("metadata.name=a", "a"), ("metadata.name!=a", "bcde"), ("metadata.name=a,metadata.name=b", "")],
)
async def test_field_selector(api, five, selector, selected):
    assert names(await api.get(five, fieldSelector=selector)) == list(selected)


async def test_field_selector_of_secrets_knows_their_type(api, ns):
    path = f"/api/v1/namespaces/{ns}/secrets"
    await api.create(path, {"metadata": {"name": "a"}})
    await api.create(path, {"metadata": {"name": "b"}, "type": "example.com/x"})
    assert names(await api.get(path, fieldSelector="type=example.com/x")) == ["b"]


async def test_an_unknown_field_is_no_selector(api, maps):
    refused = await api.get(maps, fieldSelector="spec.foo=1")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        '"spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


async def test_an_unknown_field_of_a_custom_resource_is_no_selector(api, sites):
    refused = await api.get(sites, fieldSelector="spec.theme=a")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "field label not supported: spec.theme"


async def test_a_field_selector_without_operator_is_a_bad_request(api, maps):
    refused = await api.get(maps, fieldSelector="bogus")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "invalid selector: 'bogus'; can't understand 'bogus'"


async def test_pages_are_of_one_snapshot(api, five):
    first = await api.get(five, limit=2)
    assert names(first) == ["a", "b"]
    assert first.meta["remainingItemCount"] == 3
    await api.create(five, config_map("bb"))
    await api.delete(f"{five}/d")
    await api.merge(f"{five}/c", {"data": {"late": "1"}})
    second = await api.get(five, limit=2, **{"continue": first.meta["continue"]})
    assert names(second) == ["c", "d"]
    assert "data" not in second["items"][0]
    assert second.version == first.version
    third = await api.get(five, limit=2, **{"continue": second.meta["continue"]})
    assert names(third) == ["e"]
    assert not third.meta.get("continue")
    assert "remainingItemCount" not in third.meta


async def test_a_page_may_be_followed_without_a_limit(api, five):
    first = await api.get(five, limit=2)
    assert names(await api.get(five, **{"continue": first.meta["continue"]})) == ["c", "d", "e"]


async def test_pages_of_selected_objects_do_not_count_the_rest(api, five):
    first = await api.get(five, limit=1, labelSelector="parity=even")
    assert names(first) == ["c"]
    assert first.meta["continue"]
    assert "remainingItemCount" not in first.meta


async def test_a_limit_of_all_there_is_needs_no_other_page(api, five):
    listed = await api.get(five, limit=5)
    assert len(listed["items"]) == 5
    assert not listed.meta.get("continue")


async def test_a_negative_limit_is_none(api, five):
    assert len((await api.get(five, limit=-1))["items"]) == 5


async def test_a_limit_that_is_no_number_is_a_bad_request(api, maps):
    refused = await api.get(maps, limit="x")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == 'strconv.ParseInt: parsing "x": invalid syntax'


async def test_a_list_from_version_0_has_no_pages(api, five):
    listed = await api.get(five, limit=2, resourceVersion="0")
    assert len(listed["items"]) >= 2
    assert not listed.meta.get("continue")


async def test_a_broken_continue_token_is_a_bad_request(api, maps):
    refused = await api.get(maps, **{"continue": "abc"})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.startswith("invalid continue token: continue key is not valid: ")


def token(text):
    return base64.urlsafe_b64encode(text.encode("latin-1")).decode().rstrip("=")


SOUND = {"v": "meta.k8s.io/v1", "rv": 5, "start": "a"}


@pytest.mark.parametrize(
    "broken",
    [
        "x",
        "!",
        "a=b",
        token("{"),
        token("[]"),
        token("1"),
        token("{}"),
        token("null"),
        token("{'v': 1}"),
        token('{"v":"meta.k8s.io/v1",}'),
        token('{"v":"a\x01"}'),
        token('{"v":tru}'),
        token('{"v":-}'),
        token('{"v":1.}'),
        token('{"v":1e}'),
        token('{"v":"\\x"}'),
        token('{"v":"\\u12g4"}'),
        token('{"v" "x"}'),
        token("[1 2]"),
        token("{} x"),
        token("nul"),
        token("\xff"),
        *(
            token(json.dumps({**SOUND, **change}))
            for change in (
                {"v": "v2"},
                {"v": 1},
                {"rv": 0},
                {"rv": "x"},
                {"rv": 1.5},
                {"start": ""},
                {"start": 1},
                {"start": "../x"},
                {"start": "a//b"},
            )
        ),
    ],
)
async def test_what_is_wrong_with_a_continue_token_is_told(api, maps, broken):
    refused = await api.get(maps, limit=1, **{"continue": broken})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.startswith("invalid continue token: continue key is not valid")


async def test_a_broken_continue_token_is_told_before_a_version_beside_it(api, maps):
    refused = await api.get(maps, resourceVersion="5", **{"continue": "x"})
    assert refused.message.startswith("invalid continue token: ")


@pytest.mark.parametrize(
    "selector",
    [
        "=x",
        "a=b=c",
        "a=b\\=c",
        "a=b\\,c",
        "a=b\\d",
        "a=b\\",
        "a",
        ".a=b",
        " metadata.name=a",
        "metadata.name==a,",
    ],
)
async def test_a_field_selector_is_read_as_the_server_reads_it(api, maps, selector):
    answer = await api.get(maps, fieldSelector=selector)
    assert answer.status == (200 if "==" in selector else 400), answer.text


@pytest.mark.parametrize(
    ("path", "field"),
    [("namespaces", "name"), ("persistentvolumes", "name"), ("persistentvolumes", "status.phase")],
)
async def test_what_is_no_field_to_select_by_is_refused(api, path, field):
    assert (await api.get(f"/api/v1/{path}", fieldSelector=f"{field}=a")).refusal == (400, "BadRequest")


async def test_a_continue_token_takes_no_version_beside_it(api, five):
    first = await api.get(five, limit=2)
    refused = await api.get(five, resourceVersion="5", **{"continue": first.meta["continue"]})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "specifying resource version is not allowed when using continue"


def token(version, start):
    """Returns a continue token in the server's form."""
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


async def test_a_page_of_a_forgotten_snapshot_is_expired_and_offers_the_rest_of_the_present(
    target, api, five
):
    target.forget(int((await api.get(five)).version))
    expired = await api.get(five, **{"continue": token(2, "/b\0")})
    assert expired.refusal == (410, "Expired")
    assert expired.message.startswith(
        "The provided continue parameter is too old to display a consistent list result."
    )
    assert names(await api.get(five, **{"continue": expired.meta["continue"]})) == ["c", "d", "e"]


async def test_an_exact_list_of_a_forgotten_version_is_expired(target, api, five):
    target.forget(int((await api.get(five)).version))
    refused = await api.get(five, resourceVersion="2", resourceVersionMatch="Exact")
    assert refused.refusal == (410, "Expired")
    assert refused.message == "The resourceVersion for the provided list is too old."


async def test_an_exact_version_is_the_state_of_then(api, maps):
    then = await api.create(maps, config_map("a"))
    await api.create(maps, config_map("b"))
    await api.delete(f"{maps}/a")
    listed = await api.get(maps, resourceVersion=then.version, resourceVersionMatch="Exact")
    assert names(listed) == ["a"]
    assert listed.version == then.version


async def test_not_older_than_is_the_present_or_newer(api, maps):
    made = await api.create(maps, config_map("a"))
    listed = await api.get(maps, resourceVersion=made.version, resourceVersionMatch="NotOlderThan")
    assert names(listed) == ["a"]
    assert int(listed.version) >= int(made.version)


async def test_a_limited_list_of_a_version_is_exact(api, maps):
    then = await api.create(maps, config_map("a"))
    await api.create(maps, config_map("b"))
    listed = await api.get(maps, resourceVersion=then.version, limit=5)
    assert names(listed) == ["a"]


async def test_a_version_of_the_future_times_out(api, maps):
    refused = await api.get(maps, resourceVersion="99999999")
    assert refused.refusal == (504, "Timeout")
    assert refused.message.startswith("Timeout: Too large resource version: 99999999, current: ")
    assert refused.details["retryAfterSeconds"] == 1
    assert [cause["reason"] for cause in refused.details["causes"]] == ["ResourceVersionTooLarge"]


async def test_a_version_that_is_no_number_is_a_bad_request(api, maps):
    refused = await api.get(maps, resourceVersion="abc")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": '
        "invalid syntax"
    )
    large = await api.get(maps, resourceVersion="18446744073709551616")
    assert large.refusal == (400, "BadRequest")
    assert large.message.endswith(': parsing "18446744073709551616": value out of range')


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"resourceVersionMatch": "Exact"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Bogus", "resourceVersion": "1"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "1", "continue": "x"}, "resourceVersionMatch"),
        ({"sendInitialEvents": "true"}, "sendInitialEvents"),
    ],
    ids=["no-version", "exact-0", "unknown", "continue", "initial-events"],
)
async def test_list_options_that_do_not_go_together_are_invalid(api, maps, query, field):
    refused = await api.get(maps, **query)
    assert refused.refusal == (422, "Invalid")
    assert refused.details["kind"] == "ListOptions"
    assert refused.details["group"] == "meta.k8s.io"
    assert refused.fields == {field}


async def test_what_was_written_is_read_at_once(api, maps):
    for number in range(5):
        await api.create(maps, config_map(f"a{number}"))
        assert len((await api.get(maps))["items"]) == number + 1


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/secrets",
        "/api/v1/namespaces",
        "/api/v1/events",
        "/api/v1/pods",
        "/api/v1/replicationcontrollers",
        "/api/v1/serviceaccounts",
        "/apis/apps/v1/replicasets",
        "/apis/apps/v1/deployments",
        "/apis/batch/v1/jobs",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        "/apis/events.k8s.io/v1/events",
    ],
)
async def test_a_field_that_is_not_selectable_is_refused_in_the_words_of_its_kind(api, path):
    answer = await api.get(path, fieldSelector="x=y")
    assert answer.refusal == (400, "BadRequest")
