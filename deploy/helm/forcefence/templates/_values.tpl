{{/*
Values that are missing or null count as the chart's own. `helm upgrade --reuse-values` puts an earlier chart's values in
the place of this chart's, so every template includes this first. It may be repeated. A value of config that does not fit its type would
break a template, so this refuses it first.
*/}}
{{- define "forcefence.fill" -}}
{{- if not (hasKey .Values "typesFit") -}}
  {{- with include "forcefence.typeFaults" . }}{{ fail (print "correct the values:" .) }}{{ end -}}
  {{- $_ := set .Values "typesFit" true -}}
{{- end -}}
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
