"""Values that platform teams might choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Values = Mapping[str, Any]

SETS: dict[str, Values] = {
    "default": {},
    "cert-manager": {"certManager": {"enabled": True}},
    "switches": {
        "networkPolicy": {"enabled": True},
        "serviceMonitor": {"enabled": True},
        "podReports": {"enabled": True},
        "policies": {"enabled": False},
        "createNamespace": False,
    },
    "everything": {
        "certManager": {"enabled": True},
        "networkPolicy": {
            "enabled": True,
            "controlPlane": [
                {"ipBlock": {"cidr": "10.0.0.0/28"}},
                {"podSelector": {"matchLabels": {"app": "tunnel"}}},
            ],
        },
        "serviceMonitor": {"enabled": True},
        "podReports": {"enabled": True},
    },
    "an issuer of theirs": {
        "certManager": {
            "enabled": True,
            "issuer": {"create": False, "name": "company", "kind": "ClusterIssuer"},
            "duration": "24h",
            "renewBefore": "8h",
        },
        "flowSchema": {"enabled": True},
        "commonAnnotations": {"example.com/owner": "platform"},
        "crds": {"keep": False},
    },
    "limited": {
        "resources": {
            "requests": {"ephemeral-storage": "10Mi"},
            "limits": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "100Mi"},
        },
        "flowSchema": {"enabled": True},
    },
    "sized": {
        "image": "registry.example.com/kubeshard@sha256:" + "a" * 64,
        "replicas": 5,
        "logLevel": "debug",
        "resources": {"requests": {"cpu": "1", "memory": "1.5Gi"}, "limits": {"memory": "2Gi"}},
    },
    "configured": {
        "policies": {"enabled": False},
        "config": {
            "leaderElection": {"leaderElect": False, "leaseDuration": "20s"},
            "gracefulShutDown": "0s",
            "sharders": [],
            "health": {},
            "shardUsers": {"<ring> & co": ["système"]},
            "controller": {"sharder": {"concurrentMoves": 1000000}},
            "webhook": {"config": {"clientConfig": {"url": "https://example.com:9443"}}},
        },
    },
}

SETS |= {
    "placed": {
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
        ],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "sharder"}},
                    }
                ]
            }
        },
        "priorityClassName": "system-cluster-critical",
        "topologySpreadConstraints": [
            {
                "maxSkew": 2,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "sharder"}},
                "minDomains": 3,
            }
        ],
    },
    "platform": {
        "image": {"repository": "mirror.example.com/tools/kubeshard", "digest": "sha256:" + "b" * 64},
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "mirror.credentials"}],
        "commonLabels": {"example.com/team": "platform", "tier": ""},
        "commonAnnotations": {"example.com/owner": "platform", "example.com/role": "all"},
        "podLabels": {"sidecar.example.com/inject": "false"},
        "podAnnotations": {"example.com/note": "{{ not a template }} & <more>"},
        "podSecurityContext": {
            "runAsUser": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "securityContext": {"readOnlyRootFilesystem": False},
        "livenessProbe": {"periodSeconds": 30, "failureThreshold": 5},
        "readinessProbe": {"initialDelaySeconds": 0},
        "extraArgs": ["--strict-config"],
        "extraEnv": [
            {"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "extraVolumes": [{"name": "authority", "configMap": {"name": "callers"}}],
        "extraVolumeMounts": [{"name": "authority", "mountPath": "/callers", "readOnly": True}],
        "serviceAccount": {"name": "spreader", "annotations": {"example.com/role": "sharder"}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Controllers"}},
        "extraObjects": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "callers", "namespace": "sharding-system"},
            }
        ],
    },
    "on the hosts' network": {
        "image": {"repository": "kubeshard", "tag": "v1"},
        "hostNetwork": True,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}},
        "ports": {"webhook": 10260, "metrics": 10261, "health": 10262},
        "crds": {"enabled": True, "keep": False},
        "aggregatedRoles": {"enabled": False},
        "networkPolicy": {"enabled": True},
        "topologySpreadConstraints": [],
    },
    "accounts of others": {
        "serviceAccount": {"create": False, "name": "own"},
        "crds": {"enabled": False},
        "image": {"repository": "example.com:5000/kubeshard"},
    },
}
