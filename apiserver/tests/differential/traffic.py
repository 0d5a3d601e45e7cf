"""Random requests for two API servers. Sans-IO: it knows what exists only from the answers that both gave.

A request may refer to what a server has made (a uid, a resourceVersion): the `Ref`s in it are replaced by each server's
own value when it is sent.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

GROUP = "differ.example.com"


class Ref(NamedTuple):
    """A server's own value of `metadata.field` of the object at `path`, as it was last answered, or `before` that."""

    path: str
    field: str
    before: bool = False


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    query: dict[str, Any] = field(default_factory=dict)
    about: str = ""
    """The path of the object that the request may change, "" if there is none."""

    def __str__(self) -> str:
        query = "&".join(f"{key}={value}" for key, value in self.query.items())
        return f"{self.method} {self.path}{'?' + query if query else ''} {self.content_type} {self.body!r}"


def _metadata(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


def _template() -> dict[str, Any]:
    container = {"name": "c", "image": "busybox:1", "ports": [{"containerPort": 80, "name": "http"}]}
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}


def _job_template() -> dict[str, Any]:
    template = _template()
    template["spec"]["restartPolicy"] = "Never"
    return template


SELECTOR = {"matchLabels": {"app": "x"}}

KINDS: dict[str, tuple[str, str, Callable[[], dict[str, Any]]]] = {
    "configmaps": ("v1", "ConfigMap", lambda: {"data": {"a": "1", "b": "2"}}),
    "secrets": ("v1", "Secret", lambda: {"stringData": {"a": "1"}, "type": "Opaque"}),
    "services": (
        "v1",
        "Service",
        lambda: {"spec": {"selector": {"app": "x"}, "ports": [{"name": "http", "port": 80}]}},
    ),
    "serviceaccounts": ("v1", "ServiceAccount", lambda: {"automountServiceAccountToken": False}),
    "pods": (
        "v1",
        "Pod",
        lambda: {
            "spec": {
                **_template()["spec"],
                "serviceAccountName": "default",
                "automountServiceAccountToken": False,
            }
        },
    ),
    "persistentvolumeclaims": (
        "v1",
        "PersistentVolumeClaim",
        lambda: {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    ),
    "deployments": (
        "apps/v1",
        "Deployment",
        lambda: {"spec": {"replicas": 2, "selector": SELECTOR, "template": _template()}},
    ),
    "statefulsets": (
        "apps/v1",
        "StatefulSet",
        lambda: {"spec": {"serviceName": "s", "selector": SELECTOR, "template": _template()}},
    ),
    "daemonsets": ("apps/v1", "DaemonSet", lambda: {"spec": {"selector": SELECTOR, "template": _template()}}),
    "replicasets": (
        "apps/v1",
        "ReplicaSet",
        lambda: {"spec": {"replicas": 1, "selector": SELECTOR, "template": _template()}},
    ),
    "jobs": ("batch/v1", "Job", lambda: {"spec": {"template": _job_template(), "backoffLimit": 2}}),
    "cronjobs": (
        "batch/v1",
        "CronJob",
        lambda: {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": _job_template()}}}},
    ),
    "leases": (
        "coordination.k8s.io/v1",
        "Lease",
        lambda: {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    ),
    "ingresses": (
        "networking.k8s.io/v1",
        "Ingress",
        lambda: {
            "spec": {
                "rules": [
                    {
                        "host": "a.example",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        },
                    }
                ]
            }
        },
    ),
    "networkpolicies": (
        "networking.k8s.io/v1",
        "NetworkPolicy",
        lambda: {"spec": {"podSelector": SELECTOR, "policyTypes": ["Ingress"]}},
    ),
    "poddisruptionbudgets": (
        "policy/v1",
        "PodDisruptionBudget",
        lambda: {"spec": {"minAvailable": 1, "selector": SELECTOR}},
    ),
    "roles": (
        "rbac.authorization.k8s.io/v1",
        "Role",
        lambda: {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    ),
    "rolebindings": (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        lambda: {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        },
    ),
    "horizontalpodautoscalers": (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        lambda: {
            "spec": {
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            }
        },
    ),
    "gadgets": (
        f"{GROUP}/v1",
        "Gadget",
        lambda: {"spec": {"size": 3, "color": "red", "tags": ["a"], "parts": [{"name": "p"}]}},
    ),
}
"""API version, kind and a valid body of each resource."""

HAVE_STATUS = {
    "services",
    "pods",
    "persistentvolumeclaims",
    "deployments",
    "statefulsets",
    "daemonsets",
    "replicasets",
    "jobs",
    "cronjobs",
    "ingresses",
    "poddisruptionbudgets",
    "horizontalpodautoscalers",
    "gadgets",
}
HAVE_SCALE = {"deployments", "statefulsets", "replicasets", "gadgets"}

DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"gadgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": ["gd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer", "minimum": 1, "maximum": 9},
                                    "replicas": {"type": "integer", "minimum": 0, "default": 1},
                                    "color": {"type": "string", "enum": ["red", "green", "blue"]},
                                    "when": {"type": "string", "format": "date-time"},
                                    "any": {"x-kubernetes-int-or-string": True},
                                    "ratio": {"type": "number"},
                                    "on": {"type": "boolean", "nullable": True},
                                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                                    "limits": {
                                        "type": "object",
                                        "additionalProperties": {"type": "string", "maxLength": 5},
                                    },
                                    "tags": {
                                        "type": "array",
                                        "maxItems": 3,
                                        "x-kubernetes-list-type": "set",
                                        "items": {"type": "string", "pattern": "^[a-z]*$"},
                                    },
                                    "parts": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "count": {"type": "integer", "default": 1},
                                            },
                                        },
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": {"type": "string"},
                                    "replicas": {"type": "integer"},
                                    "selector": {"type": "string"},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}

NAMES = ["a", "b", "c", "d.e", "a-1"]
ODD_NAMES = ["", "A", "a_b", "-a", "a" * 64, "a" * 254, "a/b", "..", "ä", "a b", "1"]
VALUES: list[Any] = [
    None,
    "",
    "x",
    "true",
    "1",
    0,
    1,
    -1,
    3,
    80,
    1.5,
    1.0,
    70000,
    2**31,
    2**63 - 1,
    True,
    False,
    [],
    {},
    ["a"],
    [1],
    {"a": "b"},
    {"a": 1},
    [{"name": "x"}],
    "2024-01-01T00:00:00Z",
    "a" * 300,
    "UPPER",
    "é",
    "10Mi",
    "0.5",
    "blue",
]
LABELS = [
    {"app": "x"},
    {"app": "y", "tier": "1"},
    {},
    {"a/b/c": "x"},
    {"app": "no good"},
    {"x" * 64: "a"},
    {"n": "5"},
]
SELECTORS = [
    "app=x",
    "app!=x",
    "app in (x,y)",
    "app notin (x)",
    "app",
    "!app",
    "n>3",
    "n<4",
    "app=",
    "a b",
    "=x",
    "app in ()",
    "app==x,n",
    ",",
    "app in (x",
]
FIELD_SELECTORS = [
    "metadata.name=a",
    "metadata.name!=a",
    "metadata.namespace=x",
    "spec.color=red",
    "status.phase=Pending",
    "nothing=1",
    "metadata.name",
    "type=Opaque",
    "spec.nodeName=",
]
FINALIZERS = [["example.com/f"], ["foregroundDeletion"], ["nodomain"], ["example.com/f", "example.com/f"]]


class Traffic:
    """The requests of one seed, in one namespace. Call `answered` after each, with whether both servers now have the
    object it was about.
    """

    def __init__(self, seed: int, namespace: str) -> None:
        self._random = random.Random(seed)
        self._namespace = namespace
        self.known: dict[str, None] = {}

    def collection(self, resource: str) -> str:
        version = KINDS[resource][0]
        root = "/api" if version == "v1" else "/apis"
        return f"{root}/{version}/namespaces/{self._namespace}/{resource}"

    def __iter__(self) -> Iterator[Request]:
        while True:
            yield self._next()

    def answered(self, request: Request, exists: bool) -> None:
        if request.about:
            if exists:
                self.known[request.about] = None
            else:
                self.known.pop(request.about, None)

    # -- one request

    def _next(self) -> Request:
        pick = self._random
        resource = pick.choice(list(KINDS))
        kinds: list[tuple[int, Callable[[str], Request]]] = [
            (8, self._create),
            (5, self._replace),
            (6, self._merge),
            (4, self._json_patch),
            (4, self._strategic),
            (7, self._apply),
            (4, self._get),
            (4, self._list),
            (3, self._delete),
            (1, self._delete_collection),
            (2, self._status),
            (1, self._scale),
            (1, self._strange),
        ]
        make = pick.choices([make for _, make in kinds], [weight for weight, _ in kinds])[0]
        return make(resource)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _object(self, resource: str) -> str:
        """The path of an object, mostly of one that exists."""
        mine = [path for path in self.known if path.startswith(f"{self.collection(resource)}/")]
        if mine and self._chance(0.85):
            return self._random.choice(mine)
        return f"{self.collection(resource)}/{self._random.choice(NAMES)}"

    def _options(self) -> dict[str, Any]:
        query: dict[str, Any] = {}
        if self._chance(0.06):
            query["dryRun"] = self._random.choice(["All", "All", "Some", ""])
        if self._chance(0.08):
            query["fieldValidation"] = self._random.choice(["Strict", "Warn", "Ignore", "Nonsense"])
        if self._chance(0.06):
            query["fieldManager"] = self._random.choice(["m1", "m" * 129, "a\u00e9"])
        return query

    def _body(self, resource: str, name: str) -> dict[str, Any]:
        version, kind, fields = KINDS[resource]
        metadata = _metadata(name)
        if self._chance(0.3):
            metadata["labels"] = copy.deepcopy(self._random.choice(LABELS))
        if self._chance(0.1):
            metadata["annotations"] = copy.deepcopy(
                self._random.choice([{"a": "b"}, {"a/b": "c"}, {"A b": "c"}, {"x": ""}])
            )
        if self._chance(0.08):
            metadata["finalizers"] = list(self._random.choice(FINALIZERS))
        if self._chance(0.04):
            metadata["namespace"] = self._random.choice([self._namespace, "other", ""])
        if self._chance(0.03):
            metadata["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": "a",
                    "uid": self._random.choice(["u", "", "0-0"]),
                }
            ]
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, **copy.deepcopy(fields())}
        while self._chance(0.3):
            self._mutate(body)
        return body

    def _places(self, value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, inner in items:
            yield (*path, key)
            yield from self._places(inner, (*path, key))

    def _mutate(self, body: dict[str, Any]) -> None:
        """Changes one place of the body: another value, none, or a field that is not known."""
        places = [p for p in self._places(body) if p not in (("metadata",), ("apiVersion",), ("kind",))]
        if not places:
            return
        *parents, last = self._random.choice(places)
        at: Any = body
        for key in parents:
            at = at[key]
        roll = self._random.random()
        if roll < 0.15:
            del at[last]
        elif roll < 0.3 and isinstance(at, dict):
            at[self._random.choice(["unknown", "Name", "x-y", ""])] = copy.deepcopy(
                self._random.choice(VALUES)
            )
        elif roll < 0.4 and isinstance(at, list):
            at.append(copy.deepcopy(self._random.choice([at[last], *VALUES])))
        else:
            at[last] = copy.deepcopy(self._random.choice(VALUES))

    def _create(self, resource: str) -> Request:
        name = self._random.choice(NAMES if self._chance(0.93) else ODD_NAMES)
        body = self._body(resource, name)
        query = self._options()
        if self._chance(0.02):
            body["metadata"]["resourceVersion"] = self._random.choice(["1", "", "x"])
        about = f"{self.collection(resource)}/{name}" if name in NAMES else ""
        return Request("POST", self.collection(resource), body, query=query, about=about)

    def _replace(self, resource: str) -> Request:
        path = self._object(resource)
        body = self._body(resource, path.rpartition("/")[2] if self._chance(0.97) else "other")
        if self._chance(0.5):
            body["metadata"]["resourceVersion"] = Ref(path, "resourceVersion", before=self._chance(0.2))
        if self._chance(0.1):
            body["metadata"]["uid"] = Ref(path, "uid") if self._chance(0.7) else "other"
        return Request("PUT", path, body, query=self._options(), about=path)

    def _partial(self, resource: str) -> dict[str, Any]:
        """A patch: some parts of a body."""
        body = self._body(resource, "a")
        patch: dict[str, Any] = {}
        for *parents, last in self._random.sample(
            places := list(self._places(body)), min(len(places), self._random.randint(1, 3))
        ):
            if parents[:1] == ["metadata"] and last == "name":
                continue
            source, at = body, patch
            usable = True
            for key in parents:
                if not isinstance(key, str):
                    usable = False
                    break
                source = source[key]
                inner = at.setdefault(key, {})
                if not isinstance(inner, dict):
                    usable = False
                    break
                at = inner
            if usable and isinstance(last, str):
                at[last] = None if self._chance(0.15) else copy.deepcopy(source[last])
        if self._chance(0.3):
            patch.setdefault("metadata", {})
            if isinstance(patch["metadata"], dict):
                patch["metadata"]["labels"] = {"app": self._random.choice(["x", "y", None, 1])}
        return patch

    def _merge(self, resource: str) -> Request:
        path = self._object(resource)
        patch = self._partial(resource)
        if self._chance(0.1):
            patch.setdefault("metadata", {})
            if isinstance(patch["metadata"], dict):
                patch["metadata"]["resourceVersion"] = Ref(path, "resourceVersion", before=self._chance(0.3))
        return Request("PATCH", path, patch, MERGE, query=self._options(), about=path)

    def _strategic(self, resource: str) -> Request:
        path = self._object(resource)
        patch = self._partial(resource)
        if self._chance(0.2):
            patch["$patch"] = self._random.choice(["replace", "delete", "merge", "nonsense"])
        if self._chance(0.2) and isinstance(patch.get("spec"), dict):
            patch["spec"]["$retainKeys"] = self._random.choice([["replicas"], [], "x"])
        return Request("PATCH", path, patch, STRATEGIC, query=self._options(), about=path)

    def _json_patch(self, resource: str) -> Request:
        path = self._object(resource)
        body = self._body(resource, path.rpartition("/")[2])
        places = [
            "/".join(("", *(str(key).replace("~", "~0").replace("/", "~1") for key in place)))
            for place in self._places(body)
        ]
        places += [
            "",
            "/metadata/labels/new",
            "/metadata/annotations",
            "/spec/nope/deep",
            "/-",
            "/spec/ports/-",
            "nopointer",
        ]
        operations: list[Any] = []
        for _ in range(self._random.randint(1, 3)):
            op = self._random.choice(["add", "add", "replace", "remove", "test", "move", "copy", "nonsense"])
            operation: dict[str, Any] = {"op": op, "path": self._random.choice(places)}
            if op in ("add", "replace", "test"):
                operation["value"] = copy.deepcopy(self._random.choice(VALUES))
            if op in ("move", "copy"):
                operation["from"] = self._random.choice(places)
            operations.append(operation)
        return Request("PATCH", path, operations, JSON_PATCH, query=self._options(), about=path)

    def _apply(self, resource: str) -> Request:
        path = self._object(resource)
        body = self._body(resource, path.rpartition("/")[2])
        for part in [key for key in body if key not in ("apiVersion", "kind", "metadata")]:
            if self._chance(0.2):
                del body[part]
        query = {**self._options(), "fieldManager": self._random.choice(["one", "two", "three"])}
        if self._chance(0.5):
            query["force"] = self._random.choice(["true", "true", "false"])
        return Request("PATCH", path, body, APPLY, query=query, about=path)

    def _get(self, resource: str) -> Request:
        path = self._object(resource)
        query: dict[str, Any] = {}
        if self._chance(0.1):
            query["resourceVersion"] = self._random.choice(["0", "x", Ref(path, "resourceVersion")])
        accept = (
            JSON
            if self._chance(0.8)
            else self._random.choice(
                [
                    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                    "text/html",
                    "application/yaml",
                    "*/*",
                    "application/json;as=Nonsense;g=meta.k8s.io;v=v1",
                ]
            )
        )
        return Request("GET", path, query=query, accept=accept)

    def _list(self, resource: str) -> Request:
        query: dict[str, Any] = {}
        if self._chance(0.5):
            query["labelSelector"] = self._random.choice(SELECTORS)
        if self._chance(0.3):
            query["fieldSelector"] = self._random.choice(FIELD_SELECTORS)
        if self._chance(0.3):
            query["limit"] = self._random.choice(["1", "2", "0", "-1", "x"])
        if self._chance(0.15):
            query["resourceVersion"] = self._random.choice(["0", "", "x", "-1"])
        if self._chance(0.1):
            query["resourceVersionMatch"] = self._random.choice(["NotOlderThan", "Exact", "Nonsense"])
        if self._chance(0.05):
            query["continue"] = self._random.choice(["x", "e30="])
        return Request("GET", self.collection(resource), query=query)

    def _delete_options(self, path: str) -> Any:
        if self._chance(0.6):
            return None
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if self._chance(0.5):
            options["propagationPolicy"] = self._random.choice(
                ["Foreground", "Background", "Orphan", "Nonsense", ""]
            )
        if self._chance(0.3):
            options["preconditions"] = self._random.choice(
                [
                    {"uid": Ref(path, "uid")},
                    {"uid": "other"},
                    {"resourceVersion": Ref(path, "resourceVersion", before=True)},
                    {"resourceVersion": Ref(path, "resourceVersion")},
                ]
            )
        if self._chance(0.3):
            options["gracePeriodSeconds"] = self._random.choice([0, 5, -1])
        if self._chance(0.1):
            options["orphanDependents"] = self._random.choice([True, False])
        if self._chance(0.1):
            options["dryRun"] = self._random.choice([["All"], ["Some"], "All"])
        return options

    def _delete(self, resource: str) -> Request:
        path = self._object(resource)
        query = {"propagationPolicy": "Background"} if self._chance(0.1) else {}
        return Request("DELETE", path, self._delete_options(path), query=query, about=path)

    def _delete_collection(self, resource: str) -> Request:
        query = {"labelSelector": self._random.choice(SELECTORS)}
        return Request("DELETE", self.collection(resource), query=query)

    def _status(self, resource: str) -> Request:
        path = self._object(resource)
        if self._chance(0.5):
            body = self._body(resource, path.rpartition("/")[2])
            body["status"] = self._random.choice(
                [{"replicas": 1}, {"phase": "x"}, {"conditions": []}, {}, 1, {"observedGeneration": 2}]
            )
            return Request("PUT", f"{path}/status", body, query=self._options(), about=path)
        status = self._random.choice([{"replicas": 2}, {"phase": "Ready"}, None, {"observedGeneration": 1}])
        return Request(
            "PATCH", f"{path}/status", {"status": status}, MERGE, query=self._options(), about=path
        )

    def _scale(self, resource: str) -> Request:
        path = self._object(resource)
        if self._chance(0.3):
            return Request("GET", f"{path}/scale")
        patch = {"spec": {"replicas": self._random.choice([0, 1, 5, -1, "x", None])}}
        return Request("PATCH", f"{path}/scale", patch, MERGE, query=self._options(), about=path)

    def _strange(self, resource: str) -> Request:
        """Requests that no client library sends."""
        path = self._object(resource)
        made = [
            Request("POST", path, {}),
            Request("PUT", self.collection(resource), {}),
            Request("GET", f"{path}/nothing"),
            Request("PATCH", path, {}, JSON, about=path),
            Request("PATCH", path, {}, "text/plain", about=path),
            Request("POST", self.collection(resource), [], about=""),
            Request("POST", self.collection(resource), {"kind": "Other"}),
            Request("PUT", path, "text", about=path),
            Request("GET", f"{self.collection(resource)}s"),
            Request("PATCH", path, [], MERGE, about=path),
            Request("PATCH", path, {"a": 1}, JSON_PATCH, about=path),
        ]
        return self._random.choice(made)
