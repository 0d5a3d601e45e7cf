"""The controller `secret-checksums`: for each Secret a ConfigMap with the SHA-256 of every value."""

from __future__ import annotations

import base64
import hashlib

from kubeshard import ConfigMap, Context, ObjectMeta, Reconciler, Result, ensure
from kubeshard.core.builtin import Secret
from kubeshard.core.names import is_label_value

SECRET_LABEL = "secret"  # noqa: S105 - the name of a label


class SecretChecksums(Reconciler[Secret]):
    """Creates the ConfigMap and updates it when the Secret changes (D5 in docs/defects.md)."""

    async def reconcile(self, ctx: Context, secret: Secret) -> Result | None:
        if not secret.metadata.deleting:
            await ensure(ctx, checksums(secret), owner=secret)
        return None


def checksums(secret: Secret) -> ConfigMap:
    """The ConfigMap of a Secret. Its label `secret` is left out if the name is too long for a label value."""
    name = secret.metadata.name
    own_label = {SECRET_LABEL: name} if is_label_value(name) else {}
    return ConfigMap(
        metadata=ObjectMeta(
            name=f"checksums-{name}",
            namespace=secret.metadata.namespace,
            labels={**(secret.metadata.labels or {}), **own_label},
        ),
        data={
            key: hashlib.sha256(base64.b64decode(value)).hexdigest()
            for key, value in (secret.data or {}).items()
        },
    )
