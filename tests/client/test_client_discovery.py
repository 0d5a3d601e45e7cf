"""What is asked of a server about its kinds, and what is made of odd answers."""

from __future__ import annotations

import pytest

from kubeshard.client.discovery import Discovery
from kubeshard.core import NotFound
from kubeshard.core.errors import UnexpectedResponse


async def test_a_server_without_groups_is_no_api_server_and_not_one_without_kinds() -> None:
    async def fetch(path: str) -> bytes:
        raise NotFound(f"{path}: no page here", code=404, reason="NotFound")

    with pytest.raises(UnexpectedResponse, match="there are no groups"):
        await Discovery(fetch).all_kinds("list")
