"""Names of objects that a user gives, checked before anything is made of them."""

from __future__ import annotations

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.names import is_dns_label, is_dns_subdomain


def account(given: str, option: str) -> tuple[str, str]:
    """Namespace and name of a service account. Raises ConfigurationError."""
    namespace, _, name = given.partition(":")
    if not is_dns_label(namespace) or not is_dns_subdomain(name):
        raise ConfigurationError(
            f"{option} {given}: write NAMESPACE:NAME, both of lower-case letters, digits and hyphens"
        )
    return namespace, name


def label(given: str, option: str, longest: int = 63) -> str:
    """A name that is a DNS label, as a namespace's is. Raises ConfigurationError."""
    if not is_dns_label(given) or len(given) > longest:
        raise ConfigurationError(
            f"{option} {given!r}: a name has at most {longest} lower-case letters, digits and hyphens, "
            "and neither begins nor ends with a hyphen"
        )
    return given
