"""A small operator on kopf, as its users write them; run by `kopf run`."""

from __future__ import annotations

from typing import Any

import kopf
import kubernetes

GREETINGS = ("peers.kubeshard.dev", "v1", "greetings")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.level = 20
    settings.watching.server_timeout = 2  # so that watches end and are resumed


@kopf.on.create(*GREETINGS)
@kopf.on.update(*GREETINGS, field="spec.to")
def greet(
    body: kopf.Body, spec: kopf.Spec, name: str, namespace: str, patch: kopf.Patch, **_: Any
) -> dict[str, Any]:
    text = f"hello, {spec['to']}"
    config_map: dict[str, Any] = {"metadata": {"name": name}, "data": {"text": text}}
    kopf.adopt(config_map, owner=body)
    core = kubernetes.client.CoreV1Api()
    try:
        core.create_namespaced_config_map(namespace, config_map)
    except kubernetes.client.ApiException as error:
        if error.status != 409:
            raise
        core.patch_namespaced_config_map(name, namespace, config_map)
    patch.status["said"] = text
    kopf.info(body, reason="Greeted", message=text)
    return {"text": text}


@kopf.on.delete(*GREETINGS)
def farewell(name: str, namespace: str, **_: Any) -> None:
    """kopf keeps the object with a finalizer until this has run."""
    config_map = {"metadata": {"name": f"{name}-farewell"}}
    kubernetes.client.CoreV1Api().create_namespaced_config_map(namespace, config_map)
