"""What is said about a Service that is valid. Source: k8s.io/kubernetes `pkg/api/service`; k8s.io/apimachinery
`util/validation`.
"""

from __future__ import annotations

from ipaddress import IPv6Address

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.addresses import is_standard, parsed_address
from kubeshard_apiserver.resources.service_rules import is_headless

_HINTS = "service.kubernetes.io/topology-aware-hints"
_MODE = "service.kubernetes.io/topology-mode"


def service_warnings(service: Object) -> list[str]:
    spec = service["spec"]
    headless, external = is_headless(spec), spec.get("type") == "ExternalName"
    outside = spec.get("externalIPs") or ()
    found: list[str] = []
    if _HINTS in (service["metadata"].get("annotations") or {}):
        found.append(f"annotation {_HINTS} is deprecated, please use {_MODE} instead")
    if headless:
        ignored = {
            "loadBalancerIP": bool(spec.get("loadBalancerIP")),
            "externalIPs": bool(outside),
            "SessionAffinity": spec.get("sessionAffinity") != "None",
        }
        found += [
            f"spec.{field} is ignored for headless services" for field, holds in ignored.items() if holds
        ]
    for index, address in enumerate(outside):
        found += _address_warnings(f"spec.externalIPs[{index}]", address)
    if outside and not headless and not external:
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if outside and external:
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if spec.get("externalName") and not external:
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


def _address_warnings(path: str, text: str) -> list[str]:
    address = parsed_address(text)
    if address is None:
        return []
    if not is_standard(text):
        return [f'{path}: non-standard IP address "{text}" is invalid: use "{address}"']
    if isinstance(address, IPv6Address) and str(address) != text:
        told = f'should be in RFC 5952 canonical format ("{address}")'
        return [f'{path}: IPv6 address "{text}" {told}']
    return []
