{{/* Labels of every object, as a flow mapping. kustomize's have the same. */}}
{{- define "forcefence.labels" -}}
{ {{- include "forcefence.pairs" . -}} }
{{- end }}

{{/* The same without braces, for those that have others beside them. */}}
{{- define "forcefence.pairs" -}}
app.kubernetes.io/part-of: forcefence
{{- range $key, $value := .Values.commonLabels }}, {{ $key | quote }}: {{ $value | quote }}{{ end }}
{{- end }}

{{- define "forcefence.taintKey" -}}
{{ .Values.config.taintKey | default "forcefence.io/node-shutdown" }}
{{- end }}

{{- define "forcefence.image" -}}
{{- $image := .Values.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "forcefence.controllerImage" -}}
{{- $agents := false -}}
{{- range .Values.config.providers }}{{ if hasKey . "fenceagent" }}{{ $agents = true }}{{ end }}{{ end -}}
{{- if not $agents -}}
{{ include "forcefence.image" . }}
{{- else -}}
{{- if and .Values.image.digest (not .Values.image.agents) -}}
{{ fail "image.digest is of the image without fence agents, which config.providers asks for: set image.agents to the whole name of the image that has them, such as NAME@sha256:..." }}
{{- end -}}
{{ .Values.image.agents | default (printf "%s:%s-agents" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion)) }}
{{- end -}}
{{- end }}

{{/* The port of an address such as ":8080". */}}
{{- define "forcefence.port" -}}
{{ . | splitList ":" | last }}
{{- end }}

{{/*
What the configuration asks of the API server beside a plain fence. Each is a component of deploy/kustomize/components.
attachers: drivers whose VolumeAttachments policies delete. drivers: of storage systems that vouch for their nodes (StorageUnhealthy).
*/}}
{{- define "forcefence.rights" -}}
{{- $config := .Values.config -}}
{{- $storage := dict -}}
{{- range $config.storage }}{{ $_ := set $storage .name (.drivers | default (ternary (list "driver.longhorn.io") list (eq (.preset | default "") "longhorn"))) }}{{ end -}}
{{- $attachers := list -}}{{- $drivers := list -}}{{- $owners := false -}}{{- $longhorn := false -}}
{{- range $config.policies -}}
  {{- $own := .drivers | default (get $storage (.storage | default "") | default list) -}}
  {{- $preset := .preset | default "" -}}
  {{- if eq $preset "longhorn" -}}
    {{- $longhorn = true -}}{{- $owners = true -}}
    {{- $attachers = concat $attachers ($own | default (list "driver.longhorn.io")) -}}
  {{- else if or (eq $preset "storageos") (eq (.when | default "") "StorageUnhealthy") -}}
    {{- $drivers = concat $drivers ($own | default (list "csi.storageos.com")) -}}
  {{- else if has .volumeAttachmentRecoveryPolicy (list "wait" "immediate") -}}
    {{- $owners = true -}}
    {{- $attachers = concat $attachers $own -}}
  {{- end -}}
  {{- if has "Deployment" (.owners | default list) }}{{ $owners = true }}{{ end -}}
{{- end -}}
{{- $drain := false -}}{{- $delegate := false -}}
{{- range $config.drain }}{{ if .delegate }}{{ $delegate = true }}{{ else }}{{ $drain = true }}{{ end }}{{ end -}}
attachers: {{ uniq $attachers | toJson }}
drivers: {{ uniq $drivers | toJson }}
owners: {{ $owners }}
longhorn: {{ $longhorn }}
drain: {{ $drain }}
drainLonghorn: {{ $delegate }}
deleteAttachments: {{ eq ($config.onDetachTimeout | default "") "delete-attachments" }}
outOfService: {{ eq ($config.onDetachTimeout | default "") "out-of-service" }}
status: {{ ne (($config.listen | default dict).status | default "") "" }}
{{- end }}
{{/* The labels of an object of the Prometheus operator's or Grafana's: those by which its owner finds it, too. (list . LABELS) */}}
{{- define "forcefence.foundBy" -}}
{ {{- include "forcefence.pairs" (index . 0) }}{{ range $key, $value := index . 1 }}, {{ $key | quote }}: {{ $value | quote }}{{ end -}} }
{{- end }}
