{{- define "sharder.base" }}
apiVersion: config.sharding.timebertt.dev/v1alpha1
kind: SharderConfig
health:
  bindAddress: {{ printf ":%v" .Values.ports.health | toJson }}
metrics:
  bindAddress: {{ printf ":%v" .Values.ports.metrics | toJson }}
webhook:
  {{- if .Values.certManager.enabled }}
  config:
    annotations:
      cert-manager.io/inject-ca-from: $(POD_NAMESPACE)/webhook-server
  {{- end }}
  server:
    bindAddress: {{ printf ":%v" .Values.ports.webhook | toJson }}
    {{- if .Values.certManager.enabled }}
    certDir: /certificate
    {{- end }}
{{- if .Values.serviceAccount.name }}
sharders:
- {{ printf "system:serviceaccount:$(POD_NAMESPACE):%v" .Values.serviceAccount.name | toJson }}
{{- end }}
{{- end }}

{{- define "sharder.config" -}}
{{- mergeOverwrite (include "sharder.base" . | fromYaml) (deepCopy .Values.config) | toPrettyJson -}}
{{- end -}}

{{- define "sharder.image" -}}
{{- if kindIs "string" .Values.image }}{{ .Values.image }}{{ else }}{{ .Values.image.repository }}{{ if .Values.image.tag }}:{{ .Values.image.tag }}{{ else if not .Values.image.digest }}:{{ .Chart.AppVersion | replace "+" "_" }}{{ end }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ end }}{{ end -}}
{{- end -}}

{{- define "sharder.level" -}}
{{- if .Values.hostNetwork }}privileged{{ else }}restricted{{ end -}}
{{- end -}}

{{- define "sharder.ca" -}}
{{- if .Values.certManager.enabled }}webhook-server{{ else }}sharder-webhook-cert{{ end -}}
{{- end -}}
