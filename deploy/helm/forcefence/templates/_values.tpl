{{/*
Values that are missing or null count as the chart's own. `helm upgrade --reuse-values` puts an earlier chart's values in
the place of this chart's, so every template includes this first. It may be repeated.
*/}}
{{- define "forcefence.fill" -}}
{{- include "forcefence.fillFrom" (list .Values (.Files.Get "files/defaults.yaml" | fromYaml)) -}}
{{- $listen := .Values.config.listen -}}
{{- if eq (toString $listen.health) ":8081" }}{{ $_ := unset $listen "health" }}{{ end -}}
{{- end }}

{{/* Fills a mapping from defaults. Labels and resources are the user's as a whole. (list VALUES DEFAULTS) */}}
{{- define "forcefence.fillFrom" -}}
{{- $values := index . 0 -}}
{{- range $key, $default := index . 1 -}}
  {{- if kindIs "invalid" (index $values $key) -}}
    {{- $_ := set $values $key $default -}}
  {{- else if and (kindIs "map" $default) (not (has $key (list "labels" "resources"))) -}}
    {{- include "forcefence.fillFrom" (list (index $values $key) $default) -}}
  {{- end -}}
{{- end -}}
{{- end }}
