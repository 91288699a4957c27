{{- define "tutti.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tutti.selector" -}}
app.kubernetes.io/name: tutti
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tutti.labels" -}}
{{ include "tutti.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tutti.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "tutti.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "tutti.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The options that servers and workers have in common: models, and the connection to Temporal. */}}
{{- define "tutti.args" -}}
{{- if and .Values.models.address .Values.models.claim }}{{ fail "models.address and models.claim exclude each other: set one of them" }}{{ end }}
{{- if not (or .Values.models.address .Values.models.claim) }}{{ fail "there are no models: set models.address (s3://, gs://, as://) or models.claim" }}{{ end }}
- --model-repository={{ .Values.models.address | default "/models" }}
{{- if .Values.models.poll }}
- --model-control-mode=poll
- --repository-poll-secs={{ .Values.models.poll }}
{{- end }}
- --exit-timeout-secs={{ .Values.exitSeconds }}
{{- if .Values.jobs.enabled }}
{{- with .Values.jobs.temporal }}
- --temporal-address={{ required "jobs.temporal.address is missing: HOST:PORT of Temporal's frontend" .address }}
- --temporal-namespace={{ .namespace }}
{{- if .tlsSecret }}
- --temporal-tls-ca=/etc/temporal-tls/ca.crt
- --temporal-tls-cert=/etc/temporal-tls/tls.crt
- --temporal-tls-key=/etc/temporal-tls/tls.key
{{- end }}
{{- if .apiKeySecret }}
- --temporal-api-key-file=/etc/temporal-key/api-key
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What pods of servers and workers have in common beside the container's command. */}}
{{- define "tutti.container" -}}
image: {{ include "tutti.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- with .Values.models.env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - { name: tmp, mountPath: /tmp }
  - { name: data, mountPath: /data }
  - { name: shm, mountPath: /dev/shm }
  {{- if .Values.models.claim }}
  - { name: models, mountPath: /models, readOnly: true }
  {{- end }}
  {{- if and .Values.jobs.enabled .Values.jobs.temporal.tlsSecret }}
  - { name: temporal-tls, mountPath: /etc/temporal-tls, readOnly: true }
  {{- end }}
  {{- if and .Values.jobs.enabled .Values.jobs.temporal.apiKeySecret }}
  - { name: temporal-key, mountPath: /etc/temporal-key, readOnly: true }
  {{- end }}
{{- end }}

{{- define "tutti.pod" -}}
serviceAccountName: {{ include "tutti.account" . }}
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - { name: tmp, emptyDir: { sizeLimit: {{ .Values.temporary }} } }
  - { name: data, emptyDir: {} }
  - { name: shm, emptyDir: { medium: Memory, sizeLimit: {{ .Values.sharedMemory }} } }
  {{- if .Values.models.claim }}
  - { name: models, persistentVolumeClaim: { claimName: {{ .Values.models.claim }}, readOnly: true } }
  {{- end }}
  {{- with .Values.jobs }}
  {{- if and .enabled .temporal.tlsSecret }}
  - { name: temporal-tls, secret: { secretName: {{ .temporal.tlsSecret }} } }
  {{- end }}
  {{- if and .enabled .temporal.apiKeySecret }}
  - { name: temporal-key, secret: { secretName: {{ .temporal.apiKeySecret }} } }
  {{- end }}
  {{- end }}
{{- end }}
