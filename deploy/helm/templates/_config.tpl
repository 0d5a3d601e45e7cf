{{- define "sharder.base" }}
apiVersion: config.sharding.timebertt.dev/v1alpha1
kind: SharderConfig
{{- if .Values.certManager.enabled }}
webhook:
  config:
    annotations:
      cert-manager.io/inject-ca-from: $(POD_NAMESPACE)/webhook-server
  server:
    certDir: /certificate
{{- end }}
{{- end }}

{{- define "sharder.config" -}}
{{- mergeOverwrite (include "sharder.base" . | fromYaml) (deepCopy .Values.config) | toPrettyJson -}}
{{- end -}}

{{- define "sharder.ca" -}}
{{- if .Values.certManager.enabled }}webhook-server{{ else }}sharder-webhook-cert{{ end -}}
{{- end -}}
