"""The option `--feature-gates` of `kubeshard apiserver`."""

from __future__ import annotations

import click
import pytest

from kubeshard.client import Client, ClusterConfig
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.hash_ranges import fnv1a
from kubeshard_apiserver import ApiServer, Front, InMemoryTransport
from kubeshard_apiserver.cli.command import apiserver


def gates(text: str) -> frozenset[str]:
    option = next(each for each in apiserver.params if each.name == "feature_gates")
    found = option.process_value(click.Context(apiserver), text)
    assert isinstance(found, frozenset)
    return found


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("", []),
        ("ShardedListAndWatch=true", ["ShardedListAndWatch"]),
        ("ShardedListAndWatch=false", []),
        (" ShardedListAndWatch=True, ShardedListAndWatch=false", []),
    ],
)
def test_a_gate_is_on_if_its_last_word_is_true(text: str, on: list[str]) -> None:
    assert gates(text) == frozenset(on)


@pytest.mark.parametrize("text", ["Other=true", "ShardedListAndWatch", "ShardedListAndWatch=yes"])
def test_what_is_no_gate_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(click.BadParameter, match="ShardedListAndWatch"):
        gates(text)


async def test_without_the_feature_the_parameter_is_ignored() -> None:
    async with Client(
        ClusterConfig("http://in-memory"), transport=InMemoryTransport(Front(ApiServer()))
    ) as client:
        await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
        listed = await client.raw("GET", "/api/v1/configmaps?shardSelector=bad")
    assert b'"a"' in listed.body
    assert b"shardInfo" not in listed.body


@pytest.mark.parametrize(
    ("names", "ranges"),
    [
        ([f"team-{number}" for number in range(1, 10)], 1),
        ([f"tenant-{number:03}" for number in range(1000)], 17),
    ],
    ids=["team-1 to team-9", "tenant-000 to tenant-999"],
)
def test_names_that_differ_in_their_last_characters_are_in_few_of_1024_ranges(
    names: list[str], ranges: int
) -> None:
    assert len({fnv1a(name) >> 54 for name in names}) == ranges
