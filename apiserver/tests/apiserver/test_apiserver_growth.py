"""What a request costs does not depend on how much is stored: counted in calls, not in seconds."""

import gc
import sys
from dataclasses import replace

import pytest

from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.controllers import Controllers
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.patching import MergePatch
from kubeshard_apiserver.verbs.deleting import DeleteOptions
from kubeshard_lab.virtual_time import run_virtual, settle
from kubeshard_lab.virtual_world import virtual_world

LABELS = {"app": "a"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
BODIES = {
    "configmaps": {"data": {"a": "1"}},
    "services": {"spec": {"selector": {"app": "none"}, "ports": [{"port": 80}]}},
    "pods": {"spec": TEMPLATE["spec"]},
    "ingresses": {"spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}},
    "deployments": {"spec": {"replicas": 0, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}},
}
GROUPS = {"ingresses": "networking.k8s.io", "deployments": "apps"}
SLACK = 60
"""A search in a sorted list takes a few more steps if it is longer."""
TRIES = 3
"""What else goes on in a process now and then makes calls, too; what grows does so each time."""


class Names:
    def __init__(self):
        self._number = 0

    def uniform(self, low, high):
        return low

    def token(self):
        self._number += 1
        return f"{self._number:08x}-0000-4000-8000-000000000000"


async def calls_of_each_verb(kind, stored):
    """Returns the number of calls that each verb makes, with all that the controllers do because of it."""
    server = ApiServer(world=replace(virtual_world(), rng=Names()))
    resource = server.registry.find(GROUPS.get(kind, ""), "v1", kind)

    def fill(count):
        # In another namespace: whoever must look at all objects of a namespace may do that.
        for number in range(count):
            server.create(
                Target(resource, "kube-public"), {"metadata": {"name": f"o{number}"}, **BODIES[kind]}
            )

    async with Controllers(server):
        fill(stored)
        await settle()
        target = Target(resource, "default", "mine")
        body = {"metadata": {"name": "mine"}, **BODIES[kind]}
        verbs = {
            "create": lambda: server.create(Target(resource, "default"), body),
            "get": lambda: server.get(target),
            "patch": lambda: server.patch(target, MergePatch({"metadata": {"labels": {"a": "b"}}})),
            "delete": lambda: server.delete(target, DeleteOptions(grace=0)),
        }
        return {name: await calls_of(verb) for name, verb in verbs.items()}


async def calls_of(verb):
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()  # finalizers of what other tests left would count
    sys.setprofile(counted)
    try:
        verb()
        await settle()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in ("pods", "deployments") else pytest.param(kind, marks=pytest.mark.nightly)
        for kind in BODIES
    ],
)
def test_a_request_makes_as_many_calls_with_ten_times_as_many_objects(kind):
    run_virtual(calls_of_each_verb(kind, 1))  # fills the caches of types and patterns
    for _ in range(TRIES):
        few, many = (run_virtual(calls_of_each_verb(kind, stored)) for stored in (20, 200))
        grown = {verb: (few[verb], many[verb]) for verb in few if many[verb] > few[verb] + SLACK}
        if not grown:
            return
    pytest.fail(f"calls with few and with many objects: {grown}")
