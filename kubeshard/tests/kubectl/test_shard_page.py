"""docs/kubectl-shard.md shows what is printed, and its role is sufficient and minimal."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import page_scene
import pytest
import yaml
from commands import Done, KubectlShard, reader_grants

from kubeshard.core.kinds import GroupResource
from kubeshard.manager.roles import roles
from kubeshard_apiserver.testing import EmbeddedApi

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "kubectl-shard.md").read_text()
EXAMPLES = re.findall(r"^```console\n\$ kubectl shard (.*)\n([^`]*)^```", PAGE, re.M)
BLOCKS = [block for block in EXAMPLES if block[0].split()[0] not in ("doctor", "release")]
"""`doctor` examines an installation, and `release` needs a dead shard, which the scene of the page has not:
`test_shard_doctor` and `test_shard_release` have them.
"""
RESOURCES = (GroupResource("", "secrets"), GroupResource("", "configmaps"))
COMMANDS = (
    ["status"],
    ["where", "secret/db-1", "-n", "team"],
    ["why", "configmap/db-1-last", "-n", "team"],
    ["why", "secret/moving", "-n", "team"],
    ["plan", "--shards", "4"],
)


@pytest.fixture(scope="module")
def api() -> Iterator[EmbeddedApi]:
    api = EmbeddedApi(controllers=False, pods=False)
    api.call(page_scene.build)
    yield api
    api.stop()


@pytest.fixture(autouse=True)
def _renewed(api: EmbeddedApi) -> None:
    api.call(page_scene.renew)


def timeless(text: str) -> str:
    """Replaces times, which differ from run to run and are minutes on a busy machine, and the width of their column."""
    return re.sub(r" +", " ", re.sub(r"\b\d+ ?[sm]\b", "0s", text)).strip()


def test_the_page_has_answers() -> None:
    assert {shlex.split(command)[0] for command, _ in BLOCKS} >= {
        "status",
        "where",
        "why",
        "plan",
        "top",
        "drain",
    }


@pytest.mark.parametrize(("command", "output"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_a_command_of_the_page_prints_what_stands_there(
    api: EmbeddedApi, kubectl_shard: KubectlShard, command: str, output: str
) -> None:
    done = kubectl_shard.at(api.kubeconfig)(*shlex.split(command))
    assert timeless(done.out + done.err) == timeless(output)


def documented() -> list[dict[str, Any]]:
    (block,) = re.findall(r"^```yaml\n(kind: ClusterRole[^`]*|apiVersion: rbac[^`]*)^```", PAGE, re.M)
    return list(yaml.safe_load_all(block))


def test_the_roles_of_the_page_are_those_that_are_rendered() -> None:
    assert documented() == list(roles(reader_grants(RESOURCES), "ring-reader"))


class Reader:
    """A service account with some rules."""

    def __init__(self, api: EmbeddedApi, folder: Path) -> None:
        self._api = api
        account = {"name": "reader", "namespace": "team"}
        api.install({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        path = "/api/v1/namespaces/team/serviceaccounts/reader/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = api.call(lambda client: client.raw("POST", path, json.dumps(request).encode()))
        document = yaml.safe_load(api.kubeconfig.read_text())
        document["users"][0]["user"] = {"token": json.loads(answer.body)["status"]["token"]}
        self.kubeconfig = folder / "reader"
        self.kubeconfig.write_text(yaml.safe_dump(document))

    def may(self, rules: list[dict[str, Any]]) -> None:
        """Grants exactly these rules."""
        self._api.install(*rules)


def bound() -> list[dict[str, Any]]:
    return list(roles(reader_grants(RESOURCES), "ring-reader", account=("team", "reader")))


def without(rules: list[dict[str, Any]], number: int, verb: str) -> list[dict[str, Any]]:
    """Returns the roles without one verb of one rule, counted over all roles."""
    rules, counted = json.loads(json.dumps(rules)), -1
    for role in rules:
        for rule in role.get("rules", ()):
            counted += 1
            if counted == number:
                rule["verbs"] = [each for each in rule["verbs"] if each != verb] or ["none"]
    return rules


RULES = [
    (number, verb)
    for number, rule in enumerate([rule for role in bound() for rule in role.get("rules", ())])
    for verb in rule["verbs"]
]


@pytest.fixture
def reader(api: EmbeddedApi, tmp_path: Path) -> Reader:
    return Reader(api, tmp_path)


def answers(kubectl_shard: KubectlShard, kubeconfig: Path, *further: list[str]) -> list[Done]:
    kubectl_shard.at(kubeconfig)
    return [
        Done(done.code, timeless(done.out), done.err)
        for done in (kubectl_shard(*command) for command in (*COMMANDS, *further))
    ]


def test_the_role_of_the_page_is_enough(
    api: EmbeddedApi, kubectl_shard: KubectlShard, reader: Reader
) -> None:
    reader.may(bound())
    assert answers(kubectl_shard, reader.kubeconfig) == answers(kubectl_shard, api.kubeconfig)


@pytest.mark.parametrize(
    ("number", "verb"), [each for each in RULES if each[1] != "watch"], ids=lambda value: str(value)
)
def test_no_verb_of_it_is_too_much(
    api: EmbeddedApi, kubectl_shard: KubectlShard, reader: Reader, number: int, verb: str
) -> None:
    reader.may(bound())
    complete = answers(kubectl_shard, reader.kubeconfig, ["doctor"])
    reader.may(without(bound(), number, verb))
    assert answers(kubectl_shard, reader.kubeconfig, ["doctor"]) != complete


@pytest.mark.parametrize("resource", ["secrets", "configmaps", "namespaces", "leases"])
def test_a_live_picture_says_what_it_may_not_watch(
    api: EmbeddedApi, kubectl_shard: KubectlShard, reader: Reader, resource: str
) -> None:
    rules = bound()
    for role in rules:
        changed = []
        for rule in role.get("rules", ()):
            others = [each for each in rule["resources"] if each != resource]
            changed += [{**rule, "resources": others}] if others else []
            if len(others) < len(rule["resources"]):
                changed.append({**rule, "resources": [resource], "verbs": ["list"]})
        if changed:
            role["rules"] = changed
    reader.may(rules)
    done = kubectl_shard.at(reader.kubeconfig)("top", "--once")
    assert done.code == 1
    assert "the picture is incomplete: " in done.out
    assert re.search(rf"{resource}[\w.]*: you may not list and watch them", done.out)
