"""The output of `kubectl shard`, for people and for programs, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from commands import KubectlShard
from ring_cluster import RING, RingCluster, name_on

from kubeshard.cli.kubectl import program
from kubeshard.client import Client
from kubeshard_apiserver.testing import EmbeddedApi, KubeApi

NAME = name_on("a", "a", "b")
KUBECONFIG = """
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: x}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""


@pytest.fixture
def filled(written: KubeApi) -> KubeApi:
    """A server with an object on a and its child, and an object without a shard."""

    async def fill(client: Client) -> None:
        cluster = RingCluster(client)
        await cluster.child("child", await cluster.secret(NAME, "a"), "a")
        await cluster.secret("none")

    written.call(fill)
    return written


def test_status_for_people(filled: KubeApi, kubectl_shard: KubectlShard) -> None:
    done = kubectl_shard("status", RING)
    lines = [line.split() for line in done.out.splitlines()]
    assert (done.code, done.err) == (0, "")
    assert lines[:2] == [
        ["RING", "READY", "SHARDS", "OBJECTS", "UNASSIGNED", "DRAINING"],
        [RING, "Unknown", "2/2", "3", "1", "0"],
    ]
    assert lines[3] == ["SHARD", "LEASE", "RENEWED", "SECRETS", "CONFIGMAPS", "DRAINING"]
    assert [line[0:2] + line[3:] for line in lines[4:6]] == [
        ["a", "ready", "1", "1", "0"],
        ["b", "ready", "0", "0", "0"],
    ]
    assert "  ! secrets without a shard: 1 (team/none)" in done.out.splitlines()


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_answers_for_programs(
    filled: KubeApi, kubectl_shard: KubectlShard, output: str, read: Callable[[str], object]
) -> None:
    found = read(kubectl_shard("status", RING, "-o", output).out)
    assert isinstance(found, dict)
    (ring,) = found["rings"]
    assert [shard["objects"] for shard in ring["shards"]] == [
        {"secrets": 1, "configmaps": 1},
        {"secrets": 0, "configmaps": 0},
    ]
    found = read(kubectl_shard("why", f"secret/{NAME}", "-n", "team", "-o", output).out)
    assert isinstance(found, dict)
    assert found["placements"][0]["shardState"] == "ready"


def test_names_for_pipes(filled: KubeApi, kubectl_shard: KubectlShard) -> None:
    assert (
        kubectl_shard("status", RING, "-o", "name").out == f"controllerring.sharding.timebertt.dev/{RING}\n"
    )
    assert kubectl_shard("where", f"secret/{NAME}", "-n", "team", "-o", "name").out == "a\n"
    assert kubectl_shard("where", "secret/none", "-n", "team", "-o", "name").out == ""
    assert kubectl_shard("why", "secret", "none", "-n", "team", "-o", "name").out == "Unassigned\n"


def test_where_for_people(filled: KubeApi, kubectl_shard: KubectlShard) -> None:
    done = kubectl_shard("where", "secret", NAME, "--namespace", "team")
    assert [line.split() for line in done.out.splitlines()] == [
        ["RING", "OBJECT", "SHARD", "LEASE", "HASH", "RING"],
        [RING, "secrets", f"team/{NAME}", "a", "ready", "a", "Placed"],
    ]


def test_why_for_people(filled: KubeApi, kubectl_shard: KubectlShard) -> None:
    done = kubectl_shard("why", "cm/child", "-n", "team")
    lines = done.out.splitlines()
    assert lines[0] == f"configmaps team/child in ring {RING}"
    facts = dict(line.strip().split("  ", 1) for line in lines[1:])
    assert facts["owner"].strip() == f"Secret {NAME}: a"
    assert facts["hash key"].strip().startswith(f"/Secret/team/{NAME} -> ")
    assert facts["why"].strip() == "Placed: a is the shard of its owner, Secret s1"


def test_an_object_that_does_not_exist(filled: KubeApi, kubectl_shard: KubectlShard) -> None:
    done = kubectl_shard("where", "secret/gone", "-n", "team")
    assert (done.code, done.err) == (1, "Error: secrets team/gone does not exist\n")
    assert "NotFound" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("status", "rr"), "there is no ring rr; did you mean r?"),
        (("where", "pod/p"), "no ring shards pod; the rings shard configmaps, secrets"),
    ],
)
def test_a_question_without_an_answer(
    written: KubeApi, kubectl_shard: KubectlShard, arguments: tuple[str, ...], message: str
) -> None:
    done = kubectl_shard(*arguments)
    assert (done.code, done.out, done.err) == (1, "", f"Error: {message}\n")


def test_a_wrong_word(written: KubeApi, kubectl_shard: KubectlShard) -> None:
    done = kubectl_shard("where", "secret")
    assert (done.code, done.err) == (2, "Error: secret: write KIND/NAME or KIND NAME, as in secret/foo\n")
    assert kubectl_shard("stats").code == 2
    assert kubectl_shard("status", "-o", "xml").code == 2


def test_a_user_without_rights_is_told_which_to_ask_for(
    written: KubeApi, kubectl_shard: KubectlShard, tmp_path: Path
) -> None:
    document = yaml.safe_load(written.kubeconfig.read_text())
    accounts = "/api/v1/namespaces/team/serviceaccounts"
    written.install(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": "team"}}
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = written.call(
        lambda client: client.raw("POST", f"{accounts}/nobody/token", json.dumps(request).encode())
    )
    document["users"][0]["user"] = {"token": json.loads(answer.body)["status"]["token"]}
    (tmp_path / "nobody").write_text(yaml.safe_dump(document))
    done = kubectl_shard.at(tmp_path / "nobody")("status")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "Error: you may not list controllerrings.sharding.timebertt.dev: ask for the rule"
        ' {apiGroups: ["sharding.timebertt.dev"], resources: ["controllerrings"], verbs: ["list"]}'
        "\n"
    )


def test_a_question_is_asked_as_somebody_else(written: KubeApi, kubectl_shard: KubectlShard) -> None:
    done = kubectl_shard("status", RING, "--as", "nobody")
    assert (done.code, done.out) == (1, "")
    assert "you may not list controllerrings.sharding.timebertt.dev" in done.err
    for groups in (["system:masters"], ["system:masters", "others"], ["others", "system:masters"]):
        flags = [flag for group in groups for flag in ("--as-group", group)]
        assert kubectl_shard("status", RING, "--as", "nobody", *flags).code == 0
    done = kubectl_shard("status", RING, "--as-group", "system:masters")
    assert (done.code, done.err.splitlines()[-1]) == (2, "Error: --as-group requires --as")


def test_text_from_the_cluster_does_not_steer_the_terminal(
    filled: KubeApi, kubectl_shard: KubectlShard
) -> None:
    hostile = "\x1b[2J\x07all is well\r\n"
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Broken",
        "message": hostile,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    said = {"observedGeneration": 1, "shards": 2, "availableShards": 2, "conditions": [condition]}
    status = json.dumps({"status": said}).encode()
    ring = f"/apis/sharding.timebertt.dev/v1alpha1/controllerrings/{RING}/status"
    merge = "application/merge-patch+json"
    filled.call(lambda client: client.raw("PATCH", ring, status, content_type=merge))
    owner = {"apiVersion": "v1", "kind": hostile, "name": "x", "uid": "x", "controller": True}
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "odd", "namespace": "team", "ownerReferences": [owner]},
    }
    filled.install(child)
    for words in (["status", RING], ["where", "cm/odd", "-n", "team"], ["why", "cm/odd", "-n", "team"]):
        done = kubectl_shard(*words)
        assert done.code == 0
        assert all(character.isprintable() or character == "\n" for character in done.out + done.err)
    assert r"\x1b[2J\x07all is well\r\n" in done.out
    assert r"is False: \x1b[2J\x07all is well\r\n" in kubectl_shard("status", RING).out


@pytest.fixture
def bare(kubectl_shard: KubectlShard) -> Iterator[KubectlShard]:
    """An empty server."""
    api = EmbeddedApi(controllers=False, pods=False)
    yield kubectl_shard.at(api.kubeconfig)
    api.stop()


def test_a_cluster_without_rings(bare: KubectlShard) -> None:
    done = bare("status")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "Error: there is no ring: neither a ControllerRing, as the CustomResourceDefinition"
        " controllerrings.sharding.timebertt.dev is not installed (`kubeshard manifests sharder` prints it),"
        ' nor an operator with a sharder inside; one with Sharding(..., mode="both") makes its ring when it starts\n'
    )


def test_no_cluster(kubectl_shard: KubectlShard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "away").write_text(KUBECONFIG)
    done = kubectl_shard.at(tmp_path / "away")("status")
    assert done.code == 1
    assert done.err.startswith("Error: cannot reach the cluster (GET /version: ")
    assert len(done.err.splitlines()) == 1
    done = kubectl_shard("status", "--kubeconfig", str(tmp_path / "missing"))
    assert done.code == 2
    done = kubectl_shard("status", "--context", "other")
    assert done.code == 2


def test_an_interrupt_ends_it_quietly(
    written: KubeApi, kubectl_shard: KubectlShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubeshard.inspection import cluster

    async def interrupted(client: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "read_cluster", interrupted)
    done = kubectl_shard("status")
    assert (done.code, done.out, done.err.strip()) == (130, "", "")


def test_kubectl_is_told_how_a_command_line_goes_on(kubectl_shard: KubectlShard) -> None:
    def words(*arguments: str) -> list[str]:
        lines = kubectl_shard(*arguments, entry=program.complete).out.splitlines()
        assert lines[-1] == ":4"
        return [line.split("\t")[0] for line in lines[:-1]]

    assert words("st") == ["status"]
    assert words("where", "-o", "j") == ["json"]
    assert "--context" in words("why", "--c")
    assert "status" in words("")


def test_shells_complete_the_program_by_clicks_own_means(
    kubectl_shard: KubectlShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_KUBECTL_SHARD_COMPLETE", "zsh_source")
    done = kubectl_shard()
    assert "compdef _kubectl_shard_completion kubectl-shard" in done.out
