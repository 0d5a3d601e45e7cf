"""The operator of chaos runs, without a cluster."""

from __future__ import annotations

import pytest
from chaos_operator import parsed, sharding


@pytest.mark.parametrize(
    "words",
    ["--mode shard", "--mode both --strict", "--mode both --by uid", "--mode both --by namespace"],
    ids=["service", "in-manager", "ranges", "namespaces"],
)
def test_it_is_a_shard_in_each_mode_of_the_command(words: str) -> None:
    rest = "--ring chaos --shard a --namespace chaos --journal none --lease-seconds 10"
    options = parsed([*rest.split(), *words.split()])
    divided = sharding(options)._delivery.divided
    assert (divided.by if divided else "") == options.by
