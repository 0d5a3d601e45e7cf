"""TLS against a real server with certificates made for the test."""

import json
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from kubeshard.client import Client, ClusterConfig
from kubeshard.client.config import CertificateFiles, ExecPlugin, Tls
from kubeshard.client.credentials import CERTIFICATE_AGE
from kubeshard.core import ConfigMap, ConfigurationError, Unavailable
from kubeshard.runtime.world import REAL_WORLD

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(name, issuer=None):
    """Returns certificate and key in PEM, and what is needed to issue others. Without an issuer it is a CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer_name, issuer_key = (issuer[2].subject, issuer[3]) if issuer else (subject, key)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM).decode(), private.decode(), made, key


@pytest.fixture(scope="module")
def ca():
    return certificate("ca")


@pytest.fixture(scope="module")
def served(ca):
    return certificate("kube.example.com", ca)


@pytest.fixture
def leaf(served):
    return served[0]


@pytest.fixture
async def url(ca, served, tmp_path):
    """The URL of an HTTPS server for `kube.example.com` that responds with the name in the client's certificate."""
    cert, key, *_ = served
    (tmp_path / "server.pem").write_text(cert + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    context.load_verify_locations(cadata=ca[0])
    context.verify_mode = ssl.CERT_OPTIONAL

    async def answer(request):
        peer = request.transport.get_extra_info("peercert")
        name = peer["subject"][0][0][1] if peer else "anonymous"
        return web.json_response({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


class StoppedClock:
    now = 1000.0

    def monotonic(self):
        return self.now

    boottime = wall = monotonic


async def who(url, tls):
    async with Client(ClusterConfig(url, tls=tls)) as client:
        return (await client.get(ConfigMap, "a", "n")).metadata.name


async def test_the_server_is_verified_by_ca_and_name(url, ca):
    assert await who(url, Tls(ca=ca[0], server_name="kube.example.com")) == "anonymous"
    assert await who(url, Tls(insecure=True)) == "anonymous"
    for tls, why in (
        (Tls(server_name="kube.example.com"), "certificate verify failed: self-signed"),
        (Tls(ca=ca[0]), "certificate verify failed: .*no alternative certificate subject name"),
        (
            Tls(ca=certificate("other")[0], server_name="kube.example.com"),
            "certificate verify failed: self-signed",
        ),
    ):
        with pytest.raises(Unavailable, match=why):
            await who(url, tls)


async def test_a_client_certificate_is_presented(url, ca):
    cert, key, *_ = certificate("alice", ca)
    assert await who(url, Tls(ca=ca[0], server_name="kube.example.com", certificate=cert, key=key)) == "alice"


async def test_unusable_certificates_are_a_configuration_error(ca):
    other_key = certificate("other")[1]
    for tls, message in (
        (Tls(ca="no"), "certificate-authority"),
        (Tls(certificate=ca[0], key=other_key), "do not match"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            Client(ClusterConfig("https://127.0.0.1:1", tls=tls))


@pytest.mark.system
async def test_a_certificate_of_an_exec_plugin_is_presented_and_replaced(url, ca, tmp_path):
    def give(name):
        cert, key, *_ = certificate(name, ca)
        expired = "2000-01-01T00:00:00Z"
        status = {"clientCertificateData": cert, "clientKeyData": key, "expirationTimestamp": expired}
        body = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        (tmp_path / "answer").write_text(json.dumps(body))

    plugin = ExecPlugin(command="cat", args=(str(tmp_path / "answer"),))
    tls = Tls(ca=ca[0], server_name="kube.example.com")
    async with Client(ClusterConfig(url, tls=tls, auth=plugin)) as client:
        for name in ("alice", "bob"):
            give(name)
            assert (await client.get(ConfigMap, "a", "n")).metadata.name == name


@pytest.mark.regression
async def test_a_server_s_own_certificate_is_an_authority_as_with_go_s_clients(url, leaf):
    assert await who(url, Tls(ca=leaf, server_name="kube.example.com")) == "anonymous"


@pytest.mark.regression
async def test_a_client_certificate_in_rotated_files_is_presented_anew(url, ca, tmp_path):
    files = CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key")

    def rotate(name):
        cert, key, *_ = certificate(name, ca)
        files.certificate.write_text(cert)
        files.key.write_text(key)
        return cert, key

    clock = StoppedClock()
    cert, key = rotate("alice")
    tls = Tls(ca=ca[0], server_name="kube.example.com", certificate=cert, key=key)
    async with Client(
        ClusterConfig(url, tls=tls, certificate_files=files), world=replace(REAL_WORLD, clock=clock)
    ) as client:

        async def name():
            return (await client.get(ConfigMap, "a", "n")).metadata.name

        rotate("bob")
        assert await name() == "alice"
        clock.now += CERTIFICATE_AGE
        assert await name() == "bob"
        files.certificate.write_text(certificate("carol", ca)[0])  # the key is still the old one
        clock.now += CERTIFICATE_AGE
        assert await name() == "bob"
        rotate("dave")
        clock.now += CERTIFICATE_AGE
        assert await name() == "dave"
