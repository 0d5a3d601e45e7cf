"""Conversion between the versions of a custom resource by its webhook: when it is called, and what it may return."""

import copy

import pytest
from conformance_api import install, until
from conformance_kinds import DEFINITIONS
from conformance_webhooks import labelled

STRING = {"type": "string"}
REVIEW = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
STRUCT = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


def renamed(obj, version):
    """Version 2 calls the field `hostname` that version 1, which is stored, calls `host`."""
    converted = copy.deepcopy({**obj, "apiVersion": version})
    spec = converted.get("spec", {})
    old, new = ("host", "hostname") if version.endswith("/v2") else ("hostname", "host")
    if old in spec:
        spec[new] = spec.pop(old)
    return converted


def response(request, **fields):
    objects = [renamed(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
    return {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects, **fields}


def convert(request):
    return {**REVIEW, "response": response(request)}


class Hosts:
    """A kind with two versions, in the namespace of the case. `convert` replaces the webhook."""

    def __init__(self, api, hooks, ns):
        self.api, self.hooks, self.ns = api, hooks, ns
        self.group = f"{ns}.example.com"

    def path(self, version):
        return f"/apis/{self.group}/{version}/namespaces/{self.ns}/hosts"

    async def define(self, **conversion):
        def version(name, field):
            spec = {"host": STRING, "default": {**STRING, "default": "of " + name}, "both": STRING}
            spec[field] = spec.pop("host")
            schema = {
                "type": "object",
                "properties": {
                    "spec": {"type": "object", "properties": spec},
                    "status": {"type": "object", "properties": {"ready": STRING}},
                },
            }
            return {
                "name": name,
                "served": True,
                "storage": name == "v1",
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
                "selectableFields": [{"jsonPath": f".spec.{field}"}],
            }

        webhook = {
            "clientConfig": self.hooks.client("//convert"),
            "conversionReviewVersions": ["v3", "v1"],
            **conversion,
        }
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"hosts.{self.group}"},
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": {"plural": "hosts", "kind": "Host"},
                "conversion": {"strategy": "Webhook", "webhook": webhook},
                "versions": [version("v1", "host"), version("v2", "hostname")],
            },
        }
        await install(self.api, definition)
        await until(self._serves_the_second)

    async def _serves_the_second(self):
        return (await self.api.get(self.path("v2"))).status == 200

    def asked(self):
        """The objects that were sent to the webhook: version wanted, version given, name."""
        return [
            (request["desiredAPIVersion"].rpartition("/")[2], obj["apiVersion"].rpartition("/")[2])
            for request in self.hooks.asked.get("/convert", ())
            for obj in request["objects"]
        ]

    def body(self, version, name, **spec):
        return {
            "apiVersion": f"{self.group}/{version}",
            "kind": "Host",
            "metadata": {"name": name},
            "spec": spec,
        }

    async def create(self, version, name, /, **spec):
        return await self.api.create(self.path(version), self.body(version, name, **spec))

    def answer(self, convert):
        self.hooks.conversions["/convert"] = convert
        self.hooks.asked.clear()


@pytest.fixture
async def hosts(api, hooks, ns):
    hosts = Hosts(api, hooks, ns)
    hosts.answer(convert)
    await hosts.define()
    hooks.asked.clear()
    yield hosts
    hosts.answer(convert)
    await api.delete(f"{DEFINITIONS}/hosts.{hosts.group}")


async def test_objects_are_stored_in_one_version_and_read_in_every(api, hosts):
    made = await hosts.create("v2", "a", hostname="x")
    # Defaults are those of the version that was sent, and then those of the one that is stored.
    assert (made["apiVersion"], made["spec"]) == (f"{hosts.group}/v2", {"hostname": "x", "default": "of v2"})
    assert hosts.asked()[:2] == [("v1", "v2"), ("v2", "v1")]
    first = await api.get(f"{hosts.path('v1')}/a")
    assert first["spec"] == {"host": "x", "default": "of v2"}
    assert {**first.meta, "managedFields": made.meta["managedFields"]} == made.meta
    await hosts.create("v1", "b", host="y")
    second = await api.get(f"{hosts.path('v2')}/b")
    assert second["spec"] == {"hostname": "y", "default": "of v1"}
    for version, field in (("v1", "host"), ("v2", "hostname")):
        listed = await api.get(hosts.path(version))
        assert [(item["apiVersion"], item["spec"][field]) for item in listed["items"]] == [
            (f"{hosts.group}/{version}", "x"),
            (f"{hosts.group}/{version}", "y"),
        ]


async def test_the_version_that_is_stored_needs_no_webhook(api, hosts):
    hosts.answer(lambda _: b"")
    await hosts.create("v1", "a", host="x")
    await api.merge(f"{hosts.path('v1')}/a", {"spec": {"host": "y"}})
    await api.get(hosts.path("v1"))
    assert (await api.delete(f"{hosts.path('v1')}/a")).status == 200


async def test_writes_in_another_version_are_converted_both_ways(api, hosts):
    await hosts.create("v1", "a", host="x")
    at = f"{hosts.path('v2')}/a"
    merged = await api.merge(at, {"spec": {"hostname": "y"}})
    assert (merged["spec"]["hostname"], merged.meta["generation"]) == ("y", 2)
    applied = await api.apply(at, hosts.body("v2", "a", both="z"))
    assert (applied["spec"]["hostname"], applied["spec"]["both"]) == ("y", "z")
    reported = await api.merge(f"{at}/status", {"status": {"ready": "yes"}})
    assert reported["status"] == {"ready": "yes"}
    replaced = await api.replace(at, {**reported.body, "spec": {"hostname": "q"}})
    assert replaced["spec"]["hostname"] == "q"
    stored = await api.get(f"{hosts.path('v1')}/a")
    assert (stored["spec"]["host"], stored["status"]) == ("q", {"ready": "yes"})


async def test_a_dry_run_shows_what_would_come_back(api, hosts):
    made = await api.create(hosts.path("v2"), hosts.body("v2", "a", hostname="x"), dryRun="All")
    assert made["spec"] == {"hostname": "x", "default": "of v2"}
    assert hosts.asked() == [("v1", "v2"), ("v2", "v1")]
    assert (await api.get(f"{hosts.path('v1')}/a")).status == 404


async def test_a_watch_converts(api, hosts):
    start = (await api.get(hosts.path("v1"))).version
    await hosts.create("v1", "a", host="x")
    await api.merge(f"{hosts.path('v1')}/a", {"spec": {"host": "y"}})
    await api.delete(f"{hosts.path('v1')}/a")
    async with api.watch(hosts.path("v2"), resourceVersion=start) as events:
        seen = [await events.next() for _ in range(3)]
    assert [(event["type"], event["object"]["spec"]["hostname"]) for event in seen] == [
        ("ADDED", "x"),
        ("MODIFIED", "y"),
        ("DELETED", "y"),
    ]


async def test_fields_are_selected_in_the_version_of_the_request(api, hosts):
    await hosts.create("v1", "a", host="x")
    await hosts.create("v1", "b", host="y")
    listed = await api.get(hosts.path("v2"), fieldSelector="spec.hostname=y")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["b"]


async def test_labels_and_annotations_are_the_only_metadata_that_a_webhook_may_change(api, hosts):
    def relabelled(request):
        answer = response(request)
        for obj in answer["convertedObjects"]:
            obj["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"]}
        return {**REVIEW, "response": answer}

    await hosts.create("v1", "a", host="x")
    hosts.answer(relabelled)
    read = await api.get(f"{hosts.path('v2')}/a")
    assert (read.meta["labels"], read.meta["annotations"]) == ({"a": "b"}, {"c": "d"})
    assert "finalizers" not in read.meta


async def test_what_a_webhook_returns_is_pruned_but_not_validated(api, hosts):
    def wild(request):
        answer = response(request)
        for obj in answer["convertedObjects"]:
            obj["spec"] |= {"unknown": 1, "both": 1}
        return {**REVIEW, "response": answer}

    await hosts.create("v1", "a", host="x")
    hosts.answer(wild)
    read = await api.get(f"{hosts.path('v2')}/a")
    assert read["spec"] == {"hostname": "x", "default": "of v1", "both": 1}


async def test_deletions_need_the_webhook_and_keep_what_is_stored(api, hosts):
    await hosts.create("v1", "a", host="x")
    at = f"{hosts.path('v2')}/a"
    await api.merge(at, {"metadata": {"finalizers": ["example.com/f"]}})
    hosts.answer(lambda request: {**REVIEW, "response": response(request, result={"message": "no"})})
    assert (await api.delete(at)).status == 500
    hosts.answer(convert)
    kept = await api.delete(at)
    assert (kept["apiVersion"], kept["spec"]["hostname"]) == (f"{hosts.group}/v2", "x")
    assert kept.meta["deletionTimestamp"]
    assert (await api.get(f"{hosts.path('v1')}/a"))["spec"]["host"] == "x"
    await api.merge(at, {"metadata": {"finalizers": None}})
    assert (await api.get(at)).status == 404


async def test_an_admission_webhook_sees_the_version_of_its_rule(api, hosts, hooks, registered):
    rule = {
        "apiGroups": [hosts.group],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["hosts"],
    }
    await registered.mutating(registered.webhook("/m.one", rules=[rule]))
    hooks.responders["/m.one"] = lambda request: labelled(request, "seen")
    made = await hosts.create("v2", "a", hostname="x")
    assert (made.meta["labels"], made["spec"]["hostname"]) == ({"seen": "yes"}, "x")
    (request,) = hooks.asked["/m.one"]
    assert (request["object"]["apiVersion"], request["object"]["spec"]["host"]) == (f"{hosts.group}/v1", "x")


def changed(**fields):
    """A webhook whose response has these fields."""
    return lambda request: {**REVIEW, "response": response(request, **fields)}


def each(change):
    """A webhook that changes each converted object further."""

    def convert(request):
        answer = response(request)
        for obj in answer["convertedObjects"]:
            change(obj)
        return {**REVIEW, "response": answer}

    return convert


def named(**fields):
    return each(lambda obj: obj["metadata"].update(fields))


@pytest.mark.parametrize(
    ("convert", "problem"),
    [
        (lambda _: b"", "failed: 0-length response with status code: 200 and content type: application/json"),
        (
            lambda _: b"x",
            "failed: couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type "
            f"{STRUCT}",
        ),
        (lambda _: REVIEW, "failed: no response provided"),
        (
            lambda request: {**convert(request), "kind": "X"},
            'failed: no kind "X" is registered for version "apiextensions.k8s.io/v1" in scheme '
            '"pkg/runtime/scheme.go:111"',
        ),
        (changed(result={"status": "Failed", "message": "no way"}), "failed: no way"),
        (changed(result={"status": "Failed"}), "failed: response.result.status was 'Failed', not 'Success'"),
        (changed(result={}), "failed: response.result.status was '', not 'Success'"),
        (changed(convertedObjects=[]), "returned 0 objects, expected 1"),
        (changed(convertedObjects=[{}, {}]), "returned 2 objects, expected 1"),
        (
            each(lambda obj: obj.update(apiVersion="x/v9")),
            "returned invalid object at index 0: invalid groupVersion (expected {group}/v2, received x/v9)",
        ),
        (
            each(lambda obj: obj.update(kind="Y")),
            "returned invalid object at index 0: invalid kind (expected Host, received Y)",
        ),
        (named(name="z"), "returned invalid object: must have the same name: a != z"),
        (named(namespace="z"), "returned invalid object: must have the same namespace: {ns} != z"),
        (named(uid="z"), "returned invalid object: must have the same UID: {uid} != z"),
        (each(lambda obj: obj.pop("metadata")), "returned invalid object: must have the same name: a != "),
        (
            named(labels=[]),
            "returned invalid metadata: invalid metadata.labels of type []interface {{}} in converted object",
        ),
        (
            named(annotations={"a": 1}),
            "returned invalid metadata: metadata.annotations[a] must be a string, but is int64 in converted object",
        ),
        (
            named(labels={"a": "-"}),
            'returned invalid metadata: metadata.labels: Invalid value: "-": a valid label must be an empty string or '
            "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
            "character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ],
)
async def test_what_is_wrong_with_a_conversion_is_told(api, hosts, convert, problem):
    made = await hosts.create("v1", "a", host="x")
    hosts.answer(convert)
    refused = await api.get(f"{hosts.path('v2')}/a")
    assert refused.refusal == (500, "InternalError")
    if problem.startswith("failed: couldn't"):
        said = problem
    else:
        said = problem.format(group=hosts.group, ns=hosts.ns, uid=made.meta["uid"])
    assert refused.message == (
        f"Internal error occurred: StorageError: corrupt object, Code: 7, Key: /{hosts.group}/hosts/{hosts.ns}/a, "
        f"ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={made.version}: conversion webhook for "
        f"{hosts.group}/v1, Kind=Host {said}"
    )
    assert (await api.get(f"{hosts.path('v1')}/a"))["spec"]["host"] == "x"


async def test_a_response_to_another_request_is_refused(api, hosts):
    await hosts.create("v1", "a", host="x")
    hosts.answer(changed(uid="other"))
    refused = await api.get(f"{hosts.path('v2')}/a")
    assert refused.status == 500
    assert refused.message.endswith(', got "other"')


async def test_nothing_is_stored_that_cannot_be_converted(api, hosts):
    hosts.answer(changed(result={"status": "Failed", "message": "no way"}))
    refused = await hosts.create("v2", "a", hostname="x")
    assert refused.status == 500
    assert refused.message == f"conversion webhook for {hosts.group}/v2, Kind=Host failed: no way"
    assert (await api.get(f"{hosts.path('v1')}/a")).status == 404
