{{- define "capstan.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "capstan.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := include "capstan.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "capstan.namespace" -}}
{{- .Release.Namespace }}
{{- end }}

{{- define "capstan.selectorLabels" -}}
app.kubernetes.io/name: {{ include "capstan.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "capstan.labels" -}}
{{ include "capstan.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.operator.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "capstan.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "capstan.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "capstan.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* What runs on nodes: the operator's image, unless parts of it are said otherwise. */}}
{{- define "capstan.agent.image" -}}
{{- $image := .Values.agent.image }}
{{- $repository := $image.repository | default .Values.image.repository }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else if $image.tag }}
{{- printf "%s:%s" $repository $image.tag }}
{{- else if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The charts that this one replaces have three places for the names of pull secrets. */}}
{{- define "capstan.imagePullSecrets" -}}
{{- $all := concat .Values.imagePullSecrets (.Values.operator.imagePullSecrets | default list) }}
{{- if kindIs "map" .Values.operator.image }}
{{- $all = concat $all (.Values.operator.image.pullSecrets | default list) }}
{{- end }}
{{- range $all }}
- name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
{{- end }}
{{- end }}

{{- define "capstan.crds.apply" -}}
{{- if and .Values.crds.apply (ne (toString .Values.operator.upgradeCRD) "false") (ne (toString .Values.upgradeCRDs) "false") -}}
true
{{- end }}
{{- end }}

{{- define "capstan.webhook.ownCertificate" -}}
{{- with .Values.operator.admissionController }}
{{- if and .enabled (eq .tls.mode "own") -}}
true
{{- end }}
{{- end }}
{{- end }}

{{/* The Secret with the webhook's certificate, where it is not ours. */}}
{{- define "capstan.webhook.secretName" -}}
{{- $tls := .Values.operator.admissionController.tls }}
{{- if eq $tls.mode "secret" }}
{{- required "operator.admissionController.tls.secret.name is needed with mode secret" $tls.secret.name }}
{{- else }}
{{- include "capstan.fullname" . }}-webhook-server-cert
{{- end }}
{{- end }}

{{- define "capstan.pullPolicy" -}}
{{- $theirs := "" }}
{{- if kindIs "map" .Values.operator.image }}
{{- $theirs = .Values.operator.image.pullPolicy }}
{{- end }}
{{- coalesce .Values.operator.imagePullPolicy $theirs .Values.image.pullPolicy }}
{{- end }}

{{/* Values of other charts that are set and have no effect, one line each. */}}
{{- define "capstan.ignored" -}}
{{- range $path, $why := .Files.Get "files/ignored-values.json" | fromJson }}
{{- $here := $.Values }}
{{- $present := true }}
{{- range splitList "." $path }}
{{- if and $present (kindIs "map" $here) (hasKey $here .) }}
{{- $here = index $here . }}
{{- else }}
{{- $present = false }}
{{- end }}
{{- end }}
{{- if $present }}
  {{ $path }}: {{ $why }}
{{- end }}
{{- end }}
{{- end }}
