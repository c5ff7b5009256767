{{/*
Keys and values of config that do not fit the configuration's types, one fault a line, in the words of check-config. The schema leaves
config open, because Helm prints a schema's message in the place of these sentences. No line shows a value: it may be a misplaced
secret. What YAML 1.1, which Helm reads, made of the words off and on becomes the word again where a key has only one that it can be.
*/}}
{{- define "forcefence.typeFaults" -}}
{{- $types := .Files.Get "files/config.types.json" | fromJson -}}
{{- include "forcefence.rootFaults" (list .Values (.Files.Get "files/defaults.yaml" | fromYaml | keys) $types) -}}
{{- include "forcefence.typeFault" (dict "path" "" "value" .Values.config "type" $types "removed" $types.removed) -}}
{{- end }}

{{/*
Of keys at the top of the values that the chart does not have. Most are keys of config, from a file of the controller's own. A subchart
has enabled and global, too. (list VALUES KNOWN TYPES)
*/}}
{{- define "forcefence.rootFaults" -}}
{{- $known := concat (index . 1) (list "enabled" "global") | uniq | sortAlpha -}}{{- $types := index . 2 -}}
{{- range $key, $value := index . 0 -}}
  {{- if or (has $key $known) (kindIs "invalid" $value) -}}
  {{- else if hasKey $types.keys $key -}}
    {{- printf "\n%s: is a key of forcefence's configuration: write it under config" $key -}}
  {{- else -}}
    {{- printf "\n%s: unknown key%s" $key (include "forcefence.hint" (list $key $known)) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Of one value and all below it. (dict path value type removed) */}}
{{- define "forcefence.typeFault" -}}
{{- $path := .path -}}{{- $value := .value -}}{{- $type := .type -}}{{- $removed := .removed -}}
{{- $kind := $type.kind -}}
{{- $have := include "forcefence.describe" $value -}}
{{- $at := printf "\nconfig.%s" $path -}}
{{- if eq $have "nothing" -}}
{{- else if eq $kind "mapping" "free" -}}
  {{- if ne $have "a mapping" -}}
    {{- printf "%s: want a mapping (%s), have %s" $at $type.example $have -}}
  {{- else -}}
    {{- include "forcefence.mappingFaults" . -}}
  {{- end -}}
{{- else if eq $kind "list" -}}
  {{- if ne $have "a list" -}}
    {{- printf "%s: want a list (lines that begin with -), have %s" $at $have -}}
  {{- else -}}
    {{- range $i, $item := $value -}}
      {{- include "forcefence.typeFault" (dict "path" (printf "%s[%d]" $path $i) "value" $item "type" $type.items "removed" $removed) -}}
    {{- end -}}
  {{- end -}}
{{- else -}}
  {{- $fault := include "forcefence.scalarFault" (list $value $type $have) -}}
  {{- if and (not $fault) (eq $have "text") (regexMatch "(File|[.]file|[.]kubeconfig)$" $path) (regexMatch "^[^/]" $value) -}}
    {{- $fault = "must be an absolute path" -}}
    {{- if and (regexMatch "^(providers\\[|storage\\[[0-9]+\\][.]rest\\b)" $path) (regexMatch "(?i)(password|secret|token|[.])File$" $path) -}}
      {{- $fault = "must be an absolute path, such as /etc/forcefence-bmc/password. A password itself does not belong in this setting" -}}
    {{- end -}}
  {{- end -}}
  {{- with $fault }}{{ printf "%s: %s" $at . }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "forcefence.mappingFaults" -}}
{{- $path := .path -}}{{- $value := .value -}}{{- $type := .type -}}{{- $removed := .removed -}}
{{- $prefix := ternary "" (print $path ".") (empty $path) -}}
{{- $faulty := false -}}
{{- range $key, $v := $value -}}
  {{- $at := print $prefix $key -}}
  {{- $any := regexReplaceAll "\\[[0-9]+\\]" $at "[]" -}}
  {{- $fault := "" -}}
  {{- if kindIs "invalid" $v -}}
  {{- else if hasKey $removed $any -}}
    {{- /* configFaults names the others, with the --set that takes them out */ -}}
    {{- if contains "[]" $any }}{{ $fault = printf "\nconfig.%s: this key was removed: %s" $at (get $removed $any) }}{{ end -}}
  {{- else if eq $type.kind "free" -}}
    {{- $fault = include "forcefence.typeFault" (dict "path" $at "value" $v "type" $type.items "removed" $removed) -}}
  {{- else if not (hasKey $type.keys $key) -}}
    {{- $fault = printf "\nconfig.%s: %s" $at (include "forcefence.unknownKey" (list $key $v $type $path)) -}}
  {{- else -}}
    {{- $of := get $type.keys $key -}}
    {{- if and (kindIs "bool" $v) $of.words -}}
      {{- $meant := list -}}
      {{- range $word := $of.words }}{{ if has $word (ternary (list "on" "yes" "y" "true") (list "off" "no" "n" "false") $v) }}{{ $meant = append $meant $word }}{{ end }}{{ end -}}
      {{- if eq (len $meant) 1 }}{{ $v = first $meant }}{{ $_ := set $value $key $v }}{{ end -}}
    {{- end -}}
    {{- $fault = include "forcefence.typeFault" (dict "path" $at "value" $v "type" $of "removed" $removed) -}}
  {{- end -}}
  {{- if $fault }}{{ $faulty = true }}{{ $fault }}{{ end -}}
{{- end -}}
{{- range $type.required -}}
  {{- $parts := splitList "." .key -}}
  {{- $holder := eq (len $parts) 1 | ternary $value (get $value (first $parts) | default dict) -}}
  {{- if not (or $faulty (get $holder (last $parts)) (and .or (get $value .or))) -}}
    {{- printf "\nconfig.%s%s: %s" $prefix .key .text -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* What is wrong with a key that a mapping does not have. (list KEY VALUE TYPE PATH) */}}
{{- define "forcefence.unknownKey" -}}
{{- $key := index . 0 -}}{{- $value := index . 1 -}}{{- $type := index . 2 -}}{{- $path := index . 3 -}}
{{- $known := $type.order -}}
{{- $item := regexMatch "^providers\\[[0-9]+\\]$" $path -}}
{{- if regexMatch "(password|passwd|passphrase|secret|token|apikey|secretkey|accesskey|privatekey|credentials)$" ($key | lower | replace "-" "" | replace "_" "") -}}
  {{- $use := list -}}
  {{- range $known }}{{ if regexMatch "(?i)(password|secret|token)(File|Env)$" . }}{{ $use = append $use . }}{{ end }}{{ end -}}
a secret does not belong in this file: use {{ $use | default (list "passwordFile" "passwordEnv") | join " or " }}
{{- else if and $item (kindIs "map" $value) -}}
unknown provider type{{ include "forcefence.hint" (list $key $type.types) }}
{{- else if and (hasPrefix "providers[" $path) (not $item) (has $key (list "name" "timeout" "ratePerSecond" "concurrency" "poll")) -}}
belongs to the provider and not to its type: indent it as name
{{- else -}}
unknown key{{ include "forcefence.hint" (list $key ($item | ternary (concat $known ($type.types | default list)) $known)) }}
{{- end -}}
{{- end }}

{{/* The word that was probably meant, or all words. (list WORD WORDS) */}}
{{- define "forcefence.hint" -}}
{{- with include "forcefence.nearest" . }}: did you mean {{ quote . }}?{{ else }}: known are {{ index . 1 | join ", " }}{{ end -}}
{{- end }}

{{/*
The one of some words that differs from a word by a letter, or in a longer word by two, or that begins with it; "" if there is none.
Two words differ so little if they are the same without one letter of each. (list WORD WORDS)
*/}}
{{- define "forcefence.nearest" -}}
{{- $word := index . 0 | toString | lower -}}{{- $near := "" -}}
{{- if lt (len $word) 65 -}}
{{- $shorter := include "forcefence.shorter" $word | splitList " " -}}
{{- $best := 3 -}}
{{- range index . 1 -}}
  {{- $known := lower . -}}
  {{- $others := include "forcefence.shorter" $known | splitList " " -}}
  {{- $distance := 3 -}}
  {{- if eq $known $word }}{{ $distance = 0 -}}
  {{- else if or (has $word $others) (has $known $shorter) }}{{ $distance = 1 -}}
  {{- else if ge (len $word) 4 }}{{ range $shorter }}{{ if has . $others }}{{ $distance = 2 }}{{ end }}{{ end }}{{ end -}}
  {{- if lt $distance $best }}{{ $best = $distance }}{{ $near = . }}{{ end -}}
{{- end -}}
{{- range index . 1 -}}
  {{- if and (not $near) (gt (len $word) 2) (hasPrefix $word (lower .)) }}{{ $near = . }}{{ end -}}
{{- end -}}
{{- end -}}
{{ $near }}
{{- end }}

{{/* A word without each of its letters in turn, with spaces between. */}}
{{- define "forcefence.shorter" -}}
{{- $word := . -}}
{{- range $i := until (len $word) }}{{ if $i }} {{ end }}{{ substr 0 $i $word }}{{ substr (add1 $i | int) (len $word) $word }}{{ end -}}
{{- end }}

{{/* What is wrong with a value that is neither a mapping nor a list. (list VALUE TYPE DESCRIPTION) */}}
{{- define "forcefence.scalarFault" -}}
{{- $value := index . 0 -}}{{- $type := index . 1 -}}{{- $have := index . 2 -}}
{{- $kind := $type.kind -}}
{{- $number := has $have (list "a number" "a whole number") -}}
{{- $simple := not (has $have (list "a mapping" "a list")) -}}
{{- if $type.words -}}
  {{- if not $simple -}}
want text, have {{ $have }}
  {{- else if not (has (toString $value) $type.words) -}}
must be {{ include "forcefence.either" $type.words }}
    {{- $near := include "forcefence.nearest" (list $value $type.words) -}}
    {{- if and (has "disabled" $type.words) (has (toString $value) (list "off" "none" "no" "never" "false")) }}{{ $near = "disabled" }}{{ end -}}
    {{- with $near }}: did you mean {{ quote . }}?{{ end -}}
  {{- end -}}
{{- else if eq $kind "duration" -}}
  {{- if $number -}}
a duration needs a unit: "{{ $value }}s"?
  {{- else if ne $have "text" -}}
want a duration such as "30s" or "5m", have {{ $have }}
  {{- else if regexMatch "^[0-9.]+$" $value -}}
a duration needs a unit: "{{ $value }}s"?
  {{- else if regexMatch "^[0-9]{1,4}[dw]$" $value -}}
a duration has no days: write "{{ mul (regexFind "[0-9]+" $value | atoi) 24 (hasSuffix "w" $value | ternary 7 1) }}h"
  {{- else if regexMatch "^[0-9.]+ ?(d|w|days?|weeks?)([^a-z]|$)" $value -}}
a duration has no days: write hours, such as "168h" for a week
  {{- else if not (regexMatch "^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$" $value) -}}
not a duration: write it as "30s", "5m" or "1h30m"
  {{- end -}}
{{- else if eq $kind "selector" "text" -}}
  {{- if and (eq $kind "selector") (not $simple) -}}
want a label selector, which is text such as "rack=a" or "rack in (a, b)", have {{ $have }}
  {{- else if ne $have "text" -}}
want text, have {{ $have }}{{ if $simple }}: put it in quotes{{ end }}
  {{- else if eq $kind "selector" -}}
    {{- include "forcefence.selectorFault" $value -}}
  {{- end -}}
{{- else if eq $kind "bool" -}}
  {{- if ne $have "true or false" -}}
want true or false, have {{ $have }}
    {{- if eq $have "text" -}}
      {{- if has (lower $value) (list "true" "false") }}: write it without quotes
      {{- else if has (lower $value) (list "yes" "on" "y") }}: write true
      {{- else if has (lower $value) (list "no" "off" "n") }}: write false
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- else if eq $kind "amount" -}}
  {{- $text := $number | ternary (toString $value) $value -}}
  {{- if not (or $number (eq $have "text")) -}}
want a whole number of nodes (3), or a share of them (50%), have {{ $have }}
  {{- else if not (or (eq $have "a whole number") (regexMatch "^([0-9]+([+](100|[1-9]?[0-9])%)?|(100|[1-9]?[0-9])%)$" $text)) -}}
    {{- if contains "+" $text -}}
must be a whole number, a plus, and a share of at most 100%: 1+5%
    {{- else -}}
must be a whole number of nodes (3), or a share of them of at most 100% (50%){{ if $type.sum }}, or both (1+5%){{ end }}
    {{- end -}}
  {{- end -}}
{{- else if eq $kind "int" "number" -}}
  {{- if not (or (eq $have "a whole number") (and $number (eq $kind "number"))) -}}
want {{ eq $kind "int" | ternary "a whole number" "a number" }}, have {{ $have }}
    {{- if and (eq $have "text") (regexMatch "^[0-9]+([.][0-9]+)?$" $value) }}: write it without quotes{{ end -}}
  {{- else -}}
    {{- $n := float64 $value -}}{{- $bounds := $type.bounds | default dict -}}
    {{- if or (and (hasKey $bounds "minimum") (lt $n (float64 $bounds.minimum))) (and (hasKey $bounds "maximum") (gt $n (float64 $bounds.maximum)))
      (and (hasKey $bounds "exclusiveMinimum") (le $n (float64 $bounds.exclusiveMinimum))) }}{{ $type.boundText }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
What is wrong with the text of a label selector. The expression accepts all that Kubernetes parses. It also accepts names that are too
long, which check-config refuses.
*/}}
{{- define "forcefence.selectorFault" -}}
{{- $name := "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?" -}}
{{- $key := printf "([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?%s" $name -}}
{{- $several := printf "\\(\\s*(%[1]s)?\\s*(,\\s*(%[1]s)?\\s*)*\\)" $name -}}
{{- $one := printf "(!\\s*%[1]s|%[1]s(\\s*(=|==|!=)\\s*(%[2]s)?|\\s*[<>]\\s*[0-9]+|\\s+(in|notin)\\s*%[3]s)?)" $key $name $several -}}
{{- if not (regexMatch (printf "^\\s*(%[1]s\\s*(,\\s*%[1]s\\s*)*)?$" $one) .) -}}
not a label selector, such as "rack=a" or "rack in (a, b)": {{ if regexMatch "[“”„‘’]" . }}remove the quotes that are no plain ones
  {{- else if contains ":" . }}write = between a label and its value, not a colon
  {{- else }}write labels and values with letters, digits, -, _ and .{{ end -}}
{{- end -}}
{{- end }}

{{/* What a value is, as check-config calls it. */}}
{{- define "forcefence.describe" -}}
{{- if kindIs "invalid" . }}nothing
{{- else if kindIs "string" . }}text
{{- else if kindIs "bool" . }}true or false
{{- else if kindIs "map" . }}a mapping
{{- else if kindIs "slice" . }}a list
{{- else if eq (float64 .) (floor .) }}a whole number
{{- else }}a number
{{- end -}}
{{- end }}

{{/* "a, b or c" of words. */}}
{{- define "forcefence.either" -}}
{{- if eq (len .) 1 }}{{ first . }}{{ else }}{{ initial . | join ", " }} or {{ last . }}{{ end -}}
{{- end }}
