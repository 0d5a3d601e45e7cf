"""CertificateSigningRequests. There is no signer: a test that needs one provides it.

Source: k8s.io/kubernetes `pkg/apis/certificates/validation`, `pkg/registry/certificates/certificates`,
`plugin/pkg/admission/certificates/subjectrestriction`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

from kubeshard_apiserver.access import MASTERS, User, user_info
from kubeshard_apiserver.apply.shape import Path
from kubeshard_apiserver.objects import Object, own_items
from kubeshard_apiserver.resources.field_rules import field_rule_errors
from kubeshard_apiserver.resources.metadata import NameRule, label_name, subdomain_name
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)

APPROVAL = "approval"
_OF_REQUESTOR = ("username", "uid", "groups", "extra")
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
_LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_DECIDED = ("Approved", "Denied")
_ALWAYS_TRUE = (*_DECIDED, "Failed")
_STATUSES = ("False", "True", "Unknown")
_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)


class SigningRequests(Typed):
    selectable = ("metadata.name", "spec.signerName")

    def selector_problem(self, path: str) -> str:
        return f"field label not supported: {path}"

    def stamp(self, new: Object, old: Object | None, user: User, now: str) -> None:
        spec = new["spec"]
        if old is None:
            for name in _OF_REQUESTOR:
                spec.pop(name, None)
            spec |= user_info(user)
            self._check_subject(new)
            return
        before = {(c["type"], c["status"]): c for c in _conditions(old)}
        for condition in own_items(new["status"], "conditions"):
            same = before.get((condition["type"], condition["status"]), {})
            condition["lastUpdateTime"] = condition.get("lastUpdateTime") or now
            condition["lastTransitionTime"] = (
                condition.get("lastTransitionTime") or same.get("lastTransitionTime") or now
            )

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        new["spec"] = old["spec"]
        status = dict(new.get("status") or {})
        if not subresource:
            status = dict(old["status"])
        elif subresource == APPROVAL:
            status.pop("certificate", None)
            if certificate := old["status"].get("certificate"):
                status["certificate"] = certificate
        elif conditions := status.get("conditions"):
            status["conditions"] = _with_decisions(conditions, _conditions(old))
        new["status"] = status

    def resets(self, subresource: str, path: Path) -> bool:
        if not subresource:
            return path[0] == "f:status"
        return path[0] == "f:spec" or (subresource == APPROVAL and path[:2] == ("f:status", "f:certificate"))

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors = _request_errors(spec.get("request") or "")
        errors += field_rule_errors("certificates.v1.CertificateSigningRequestSpec#usages", "spec", spec)
        errors += _signer_errors(spec.get("signerName") or "")
        return errors + field_rule_errors("certificates.v1.CertificateSigningRequestSpec", "spec", spec)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        errors = _condition_errors(_conditions(new)) if subresource else []
        before, after = old["status"].get("certificate"), new["status"].get("certificate")
        if after and subresource == "status":
            errors += _certificate_errors(after)
        for kind in _ALWAYS_TRUE:
            theirs, ours = _of_type(_conditions(old), kind), _of_type(_conditions(new), kind)
            if len(ours) < len(theirs):
                problem = f'updates may not remove a condition of type "{kind}"'
                errors.append(forbidden_field("status.conditions", problem))
            elif len(ours) > len(theirs) and subresource != APPROVAL and kind in _DECIDED:
                problem = f'updates may not add a condition of type "{kind}"'
                errors.append(forbidden_field("status.conditions", problem))
        if before and before != after:
            problem = "updates may not modify existing certificate content"
            errors.append(forbidden_field("status.certificate", problem))
        return errors

    def _check_subject(self, obj: Object) -> None:
        if obj["spec"].get("signerName") != _CLIENT_SIGNER:
            return
        if MASTERS in _organizations(obj["spec"].get("request") or ""):
            problem = f"use of {_CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
            raise forbidden(self.kind.group_resource, obj["metadata"].get("name") or "", problem)


def _conditions(obj: Object) -> list[dict[str, Any]]:
    return obj["status"].get("conditions") or []


def _of_type(conditions: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [condition for condition in conditions if condition["type"] == kind]


def _with_decisions(new: list[dict[str, Any]], old: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep earlier decisions unchanged in the status. Validation reports decisions that were removed."""
    for kind in _DECIDED:
        kept = _of_type(old, kind)
        if len(kept) == len(_of_type(new, kind)):
            left = iter(kept)
            new = [next(left) if condition["type"] == kind else condition for condition in new]
    return new


def _condition_errors(conditions: Sequence[dict[str, Any]]) -> list[FieldError]:
    errors: list[FieldError] = []
    kinds = [condition["type"] for condition in conditions]
    for index, condition in enumerate(conditions):
        at, kind, status = f"status.conditions[{index}]", condition["type"], condition["status"]
        known = ("True",) if kind in _ALWAYS_TRUE else _STATUSES
        if not kind:
            errors.append(required(f"{at}.type"))
        if not status:
            errors.append(required(f"{at}.status"))
        elif status not in known:
            errors.append(unsupported(f"{at}.status", status, known))
        if kind in kinds[:index]:
            errors.append(duplicate(f"{at}.type", kind))
    if set(kinds) >= set(_DECIDED):
        members = [f'conditions[{{"type": "{kind}"}}]' for kind in _DECIDED]
        problem = f"must specify at most one of: {', '.join(f'`{member}`' for member in members)}"
        errors.append(invalid_value("status.conditions", f"{{{', '.join(members)}}}", problem))
    return errors


def _signer_errors(name: str) -> list[FieldError]:
    at = "spec.signerName"
    if not name:
        return [required(at)]
    if name == _LEGACY_SIGNER:
        return [invalid_value(at, name, "the legacy signerName is not allowed via this API version")]
    domain, slash, path = name.partition("/")
    if not slash or "/" in path:
        problem = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid_value(at, name, problem)]
    errors = _label_errors(at, domain, label_name)
    if "." not in domain:
        problem = "should be a domain with at least two segments separated by dots"
        errors.append(invalid_value(at, domain, problem))
    return errors + _label_errors(at, path, subdomain_name)


def _label_errors(at: str, text: str, rule: NameRule) -> list[FieldError]:
    return [
        invalid_value(at, text, f'validating label "{label}": {problem}')
        for label in text.split(".")
        if (problem := rule(label))
    ]


def _request_errors(text: str) -> list[FieldError]:
    found = _PEM.search(_decoded(text))
    if found is None or found[1] != b"CERTIFICATE REQUEST":
        return [invalid_value("spec.request", text, "PEM block type must be CERTIFICATE REQUEST")]
    from cryptography import x509

    try:
        x509.load_pem_x509_csr(found[0])
    except ValueError:
        return [invalid_value("spec.request", text, "asn1: syntax error: truncated tag or length")]
    return []


def _organizations(text: str) -> list[str]:
    from cryptography import x509

    try:
        subject = x509.load_pem_x509_csr(_decoded(text)).subject
    except ValueError:
        return []
    return [str(each.value) for each in subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)]


def _certificate_errors(text: str) -> list[FieldError]:
    at, shown = "status.certificate", "<certificate data>"
    blocks = [found[1] for found in _PEM.finditer(_decoded(text))]
    if not blocks:
        return [invalid_value(at, shown, "must contain at least one CERTIFICATE PEM block")]
    if any(block != b"CERTIFICATE" for block in blocks):
        return [invalid_value(at, shown, "only CERTIFICATE PEM blocks are allowed")]
    from cryptography import x509

    try:
        x509.load_pem_x509_certificates(_decoded(text))
    except ValueError:
        return [invalid_value(at, shown, "x509: malformed certificate")]
    return []


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)
