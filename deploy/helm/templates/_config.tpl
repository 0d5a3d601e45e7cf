{{- define "sharder.base" }}
apiVersion: config.sharding.timebertt.dev/v1alpha1
kind: SharderConfig
leaderElection:
  resourceNamespace: {{ .Values.namespace | toJson }}
sharders:
- {{ printf "system:serviceaccount:%s:sharder" .Values.namespace | toJson }}
webhook:
  config:
    {{- if .Values.certManager.enabled }}
    annotations:
      cert-manager.io/inject-ca-from: {{ printf "%s/webhook-server" .Values.namespace | toJson }}
    {{- end }}
    clientConfig:
      service:
        name: sharder
        namespace: {{ .Values.namespace | toJson }}
    namespaceSelector:
      matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: NotIn
        values:
        - kube-system
        - {{ .Values.namespace | toJson }}
  {{- if .Values.certManager.enabled }}
  server:
    certDir: /certificate
  {{- end }}
{{- end }}

{{- define "sharder.config" -}}
{{- $config := mergeOverwrite (include "sharder.base" . | fromYaml) (deepCopy .Values.config) -}}
{{- $called := $config.webhook.config.clientConfig -}}
{{- if $called.url }}{{ $_ := unset $called "service" }}{{ end -}}
{{- $config | toPrettyJson -}}
{{- end -}}

{{- define "sharder.ca" -}}
{{- if .Values.certManager.enabled }}webhook-server{{ else }}sharder-webhook-cert{{ end -}}
{{- end -}}
