"""The operator of chaos runs, without a cluster."""

from __future__ import annotations

import pytest
from chaos_operator import parsed, sharding


@pytest.mark.parametrize(
    "words",
    ["--mode shard", "--mode both --strict", "--mode both --ranges"],
    ids=["service", "in-manager", "ranges"],
)
def test_it_is_a_shard_in_each_mode_of_the_command(words: str) -> None:
    rest = "--ring chaos --shard a --namespace chaos --journal none --lease-seconds 10"
    options = parsed([*rest.split(), *words.split()])
    assert (sharding(options)._delivery.divided is not None) is options.ranges
