"""The certificate of the metrics page."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from kubeshard.manager.metrics_access import self_signed
from kubeshard.runtime.certificate_authority import new_authority
from kubeshard.runtime.clock import SystemClock
from kubeshard.webhook import selfsigned
from kubeshard.webhook.certificates import ServingCertificate
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import virtual_world


def certificate_shown(context: ssl.SSLContext, name: str | None) -> bytes:
    """Returns the certificate from a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return shown


@virtual_time
async def test_a_certificate_is_made_for_the_first_client_and_shown_to_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    real = selfsigned.renewed
    monkeypatch.setattr(selfsigned, "renewed", lambda *given: made.append(given) or real(*given))
    context = self_signed(virtual_world(clock=SystemClock()))  # OpenSSL uses the machine's clock
    assert not made
    first = certificate_shown(context, None)
    assert certificate_shown(context, "metrics.example") == first
    assert len(made) == 1


@virtual_time
async def test_a_certificate_that_clients_can_verify_is_shown_as_soon_as_there_is_one() -> None:
    world = virtual_world(clock=SystemClock())
    there: list[ssl.SSLContext] = []
    context = self_signed(world, lambda: there[0] if there else None)
    before = certificate_shown(context, None)
    serving = ServingCertificate(clock=world.clock)
    serving.install(selfsigned.renewed(None, ("sharder.example",), world.clock.wall()).serving)
    there.append(serving.context)
    assert certificate_shown(context, None) == certificate_shown(serving.context, None) != before


@virtual_time
async def test_scrapers_need_no_certificate_of_the_control_plane(tmp_path: Path) -> None:
    """Only the webhook asks for one: the metrics page asks for a token."""
    world = virtual_world(clock=SystemClock())
    serving, authority = ServingCertificate(clock=world.clock), tmp_path / "ca.crt"
    authority.write_bytes(new_authority("control-plane", world.clock.wall(), 86400).certificate)
    serving.require_clients_of(authority)
    serving.install(selfsigned.renewed(None, ("sharder.example",), world.clock.wall()).serving)
    certificate_shown(self_signed(world, lambda: serving.context), None)
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        certificate_shown(serving.context, None)


@pytest.mark.system
def test_a_process_that_nobody_scrapes_does_without_the_package_of_webhooks() -> None:
    program = "import sys, kubeshard.manager.metrics_access; print('kubeshard.webhook' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
