"""Tokens with which other systems can refuse the calls of a former owner."""

from __future__ import annotations

import asyncio

import pytest
from app_cluster import App, app, app_cluster

from kubeshard import Context, Controller
from kubeshard.controller import FencingToken
from kubeshard.controller.fencing import fencing_token
from kubeshard.core import MergePatch
from kubeshard.sharding.names import shard_label
from kubeshard_lab.virtual_time import virtual_time


def test_tokens_and_their_texts_have_one_order() -> None:
    tokens = [FencingToken(term, version) for term in (0, 9, 10, 10**12) for version in (1, 99, 100, 2**63)]
    assert sorted(tokens, key=str) == sorted(tokens) == tokens
    assert len({len(str(token)) for token in tokens}) == 1


@pytest.mark.parametrize("version", ["", "abc", "-1", "\u0661"])
def test_an_object_without_a_decimal_version_has_no_token(version: str) -> None:
    with pytest.raises(ValueError, match="not a decimal number"):
        fencing_token(app(resource_version=version), 0)


@virtual_time
async def test_the_next_shard_has_a_greater_token_than_all_of_the_former_one() -> None:
    """Both shards reconcile all states of the object that are theirs."""
    label = shard_label("ring")
    seen: dict[str, list[FencingToken]] = {"a": [], "b": []}

    async def reconcile(ctx: Context, obj: App) -> None:
        if shard := (obj.metadata.labels or {}).get(label):
            seen[shard].append(ctx.fencing_token(obj))

    async with app_cluster() as cluster:
        await cluster.client.create(app(labels={label: "a"}))
        async with cluster.running(Controller(name="app", reconciler=reconcile, primary=App)):
            for size in (1, 2):
                await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": size}}))
                await asyncio.sleep(5)
            await cluster.client.patch(
                App, "a", "default", MergePatch({"metadata": {"labels": {label: "b"}}})
            )
            await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": 3}}))
            await asyncio.sleep(5)
    assert seen["a"]
    assert seen["b"]
    assert max(seen["a"]) < min(seen["b"])
    assert seen["a"] == sorted(seen["a"])
    assert {token.term for tokens in seen.values() for token in tokens} == {0}
