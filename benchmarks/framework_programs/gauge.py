"""The kind that the programs of benchmarks/framework.py work with."""

from __future__ import annotations

from kubeshard import KubeObject, ObjectMeta, Struct, field

GROUP, VERSION, NAMESPACE = "bench.kubeshard.dev", "v1", "default"


class GaugeSpec(Struct):
    value: int = 0
    text: str = ""


class GaugeStatus(Struct):
    seen: int | None = None


class Gauge(KubeObject, group=GROUP, version=VERSION):
    spec: GaugeSpec = field(default_factory=GaugeSpec)
    status: GaugeStatus | None = None


def gauge(number: int, value: int = 0) -> Gauge:
    labels = {"app": f"app-{number % 500}", "team": "bench"}
    metadata = ObjectMeta(name=f"gauge-{number:06}", namespace=NAMESPACE, labels=labels)
    return Gauge(metadata=metadata, spec=GaugeSpec(value=value, text="x" * 200))
