from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeshard.runtime.certificate_authority import new_authority, new_server_leaf
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.tls import CertificatePair
from kubeshard.webhook.certificates import Identity, ServingCertificate
from kubeshard.webhook.selfsigned import AUTHORITY_LIFETIME, DAY, LEAF_LIFETIME, renewed

NAMES = ("sharder.sharding-system.svc", "sharder.sharding-system", "10.0.0.1")
NOW = SystemClock().wall()


def leaf(identity: Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(identity.serving.certificate)


def trusts(bundle: bytes, identity: Identity) -> bool:
    for authority in x509.load_pem_x509_certificates(bundle):
        try:
            leaf(identity).verify_directly_issued_by(authority)
        except Exception:
            continue
        return True
    return False


def test_a_first_identity_is_one_authority_and_a_leaf_for_the_names() -> None:
    identity = renewed(None, NAMES, NOW)
    (authority,) = x509.load_pem_x509_certificates(identity.bundle)
    certificate = leaf(identity)
    assert trusts(identity.bundle, identity)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == set(NAMES)
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == NAMES[0]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert 89 * DAY < certificate.not_valid_after_utc.timestamp() - NOW < 91 * DAY
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert ServingCertificate(NAMES[0], clock=SystemClock()).install(identity.serving)


def test_nothing_changes_before_two_thirds_of_the_leafs_life() -> None:
    identity = renewed(None, NAMES, NOW)
    assert renewed(identity, NAMES, NOW + 59 * DAY) is identity
    assert renewed(identity, tuple(reversed(NAMES)), NOW) is identity


def test_a_due_leaf_is_renewed_under_the_same_authority() -> None:
    identity = renewed(None, NAMES, NOW)
    later = renewed(identity, NAMES, NOW + 61 * DAY)
    assert later.bundle == identity.bundle
    assert later.serving != identity.serving
    assert trusts(identity.bundle, later)


def test_changed_names_renew_the_leaf_at_once() -> None:
    identity = renewed(None, NAMES, NOW)
    later = renewed(identity, ("elsewhere",), NOW)
    assert later.bundle == identity.bundle
    assert later.serving != identity.serving


def test_over_years_each_bundle_trusts_the_leaf_before_and_after_the_next_renewal() -> None:
    identity = renewed(None, NAMES, NOW)
    changes = 0
    authorities = set()
    for day in range(0, 3 * 365, 4):
        later = renewed(identity, NAMES, NOW + day * DAY)
        if later is not identity:
            changes += 1
            assert trusts(identity.bundle, later)
            assert trusts(later.bundle, identity)
            assert len(later.authorities) <= 2
            assert leaf(later).not_valid_after_utc.timestamp() > NOW + (day + 25) * DAY
            identity = later
        authorities.add(identity.authorities[-1])
    assert 18 <= changes <= 30
    assert len(authorities) >= 4


def test_an_authority_about_to_end_is_not_used_for_another_leaf() -> None:
    identity = renewed(None, NAMES, NOW)
    late = NOW + AUTHORITY_LIFETIME - 10 * DAY
    later = renewed(identity, NAMES, late)
    assert trusts(later.bundle, later)
    assert not trusts(identity.bundle, later)
    newest = x509.load_pem_x509_certificates(later.bundle)[-1]
    assert newest.not_valid_after_utc >= leaf(later).not_valid_after_utc


def verifies(identity: Identity, at: float) -> bool:
    """Verifies the chain like an API server that trusts the bundle: the leaf and its issuer are valid at that time."""
    issuers = [
        authority
        for authority in x509.load_pem_x509_certificates(identity.bundle)
        if trusts(authority.public_bytes(Encoding.PEM), identity)
    ]
    return bool(issuers) and all(
        each.not_valid_before_utc.timestamp() <= at < each.not_valid_after_utc.timestamp()
        for each in (*issuers, leaf(identity))
    )


def begins(identity: Identity | None, at: float) -> Identity:
    """Creates certificates as earlier versions did: valid from the time of their creation."""
    kept = identity.authorities if identity else ()
    authority = new_authority(NAMES[0], at, AUTHORITY_LIFETIME)
    return Identity((*kept, authority), new_server_leaf(authority, NAMES, at, LEAF_LIFETIME))


@pytest.mark.regression
@pytest.mark.parametrize("ahead", [DAY, 61 * DAY, 366 * DAY, 40_000 * DAY])
def test_what_a_clock_ahead_has_made_is_valid_by_all_other_clocks(ahead: float) -> None:
    healthy = renewed(None, NAMES, NOW)
    later = renewed(healthy, NAMES, NOW + ahead)
    assert verifies(later, NOW)
    assert renewed(later, NAMES, NOW) is later


@pytest.mark.regression
@pytest.mark.parametrize("healthy", [True, False], ids=["beside a valid authority", "alone"])
def test_certificates_that_are_not_valid_yet_are_replaced_at_once_by_valid_ones(healthy: bool) -> None:
    before = renewed(None, NAMES, NOW) if healthy else None
    ahead = begins(before, NOW + 366 * DAY)
    assert not verifies(ahead, NOW)
    mended = renewed(ahead, NAMES, NOW)
    assert verifies(mended, NOW)
    assert trusts(before.bundle if before else mended.bundle, mended)
    assert renewed(mended, NAMES, NOW) is mended
    assert len(mended.authorities) == 1


@pytest.mark.regression
def test_an_authority_that_is_not_valid_yet_issues_nothing_while_a_valid_one_exists() -> None:
    healthy = renewed(None, NAMES, NOW)
    future = new_authority(NAMES[0], NOW + 366 * DAY, AUTHORITY_LIFETIME)
    both = Identity((*healthy.authorities, future), healthy.serving)
    assert renewed(both, NAMES, NOW) is both
    later = renewed(both, NAMES, NOW + 61 * DAY)
    assert later.authorities == healthy.authorities
    assert verifies(later, NOW + 61 * DAY)
    beside = renewed(both, NAMES, NOW + 59 * DAY + AUTHORITY_LIFETIME * 2 / 3)
    assert verifies(beside, NOW + 59 * DAY + AUTHORITY_LIFETIME * 2 / 3)


@pytest.mark.regression
@pytest.mark.parametrize("first", [None, 0.0, 366 * DAY], ids=["nothing there", "of today", "of next year"])
@pytest.mark.parametrize(
    "clocks",
    [
        (0.0, 366 * DAY),
        (0.0, 61 * DAY, 366 * DAY, -366 * DAY),
        (0.0, -NOW),  # a clock without a battery: 1970
        (0.0, 300 * DAY, 10.0, 600 * DAY, -200 * DAY),
    ],
)
def test_replicas_whose_clocks_differ_agree_after_a_bounded_number_of_writes(
    clocks: tuple[float, ...], first: float | None
) -> None:
    identity = begins(None, NOW + first) if first is not None else None
    writes = 0
    for _ in range(10):
        for clock in clocks:
            wanted = renewed(identity, NAMES, NOW + clock)
            writes += wanted is not identity
            identity = wanted
    assert identity is not None
    assert all(renewed(identity, NAMES, NOW + clock) is identity for clock in clocks)
    assert verifies(identity, NOW)
    assert writes <= 2 * len(clocks)
    assert len(identity.authorities) <= len(clocks)


def test_a_damaged_identity_is_replaced() -> None:
    good, other = renewed(None, NAMES, NOW), renewed(None, NAMES, NOW)
    damaged = [
        Identity((), good.serving),
        Identity(other.authorities, good.serving),
        Identity(good.authorities, CertificatePair(good.serving.certificate, other.serving.private_key)),
        Identity(good.authorities, CertificatePair(b"", b"")),
        Identity((CertificatePair(b"x", b"y"),), good.serving),
    ]
    for identity in damaged:
        fresh = renewed(identity, NAMES, NOW)
        assert fresh is not identity
        assert trusts(fresh.bundle, fresh)
