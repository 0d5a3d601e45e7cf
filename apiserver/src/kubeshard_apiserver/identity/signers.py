"""Who may approve and sign CertificateSigningRequests: rights on signers, beside those on the requests.

Source: k8s.io/kubernetes `plugin/pkg/admission/certificates`.
"""

from __future__ import annotations

from dataclasses import replace

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.access.attributes import Attributes
from kubeshard_apiserver.access.authorizer import Authorizer
from kubeshard_apiserver.access.user import User
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.status import forbidden

_REQUESTS = GroupResource("certificates.k8s.io", "certificatesigningrequests")


def check_signer(authorizer: Authorizer, user: User, target: Target, new: Object, old: Object | None) -> None:
    """Raises Forbidden for an approval, and for a status that changes, without the right on the signer."""
    if target.group_resource != _REQUESTS or old is None or not target.subresource:
        return
    verb = "approve" if target.subresource == "approval" else "sign"
    if verb == "sign" and new["status"] == old["status"]:
        return
    signer = old["spec"]["signerName"]
    wish = Attributes(verb, group=_REQUESTS.group, version="*", resource="signers")
    for name in (signer, f"{signer.partition('/')[0]}/*"):
        if authorizer.decide(user, replace(wish, name=name)).allowed:
            return
    problem = f'user not permitted to {verb} requests with signerName "{signer}"'
    raise forbidden(_REQUESTS, target.name, problem)
