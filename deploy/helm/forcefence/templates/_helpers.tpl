{{/* Labels of an object, as a flow mapping. kustomize's have those of forcefence.pairs alone, without the release's. */}}
{{- define "forcefence.labels" -}}
{ {{- include "forcefence.named" . -}} }
{{- end }}

{{/* The same without braces, for objects that have further labels. */}}
{{- define "forcefence.named" -}}
app.kubernetes.io/part-of: forcefence, app.kubernetes.io/name: forcefence{{ include "forcefence.releaseLabels" . }}
{{- end }}

{{/* The same without app.kubernetes.io/name, for objects that are found by that label. */}}
{{- define "forcefence.pairs" -}}
app.kubernetes.io/part-of: forcefence{{ include "forcefence.releaseLabels" . }}
{{- end }}

{{- define "forcefence.releaseLabels" -}}
, app.kubernetes.io/instance: {{ .Release.Name | quote }}, app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}, app.kubernetes.io/managed-by: {{ .Release.Service }}, helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- range $key, $value := .Values.commonLabels }}, {{ $key | quote }}: {{ $value | quote }}{{ end }}
{{- end }}

{{/* Labels of pods beside their name: those that stay the same in an upgrade, which must not restart a pod. */}}
{{- define "forcefence.podLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: "forcefence"
{{- range $key, $value := .Values.commonLabels }}
{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* The controller's ServiceAccount. The admission policies bound what it may write, so they name it, too. */}}
{{- define "forcefence.account" -}}
{{ .Values.serviceAccount.name | default "forcefence" }}
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
status: {{ ne ($config.listen.status | default "") "" }}
{{- end }}
{{/* The labels of an object of the Prometheus operator's or Grafana's: those by which its owner finds it, too. (list . LABELS) */}}
{{- define "forcefence.foundBy" -}}
{ {{- include (hasKey (index . 1) "app.kubernetes.io/name" | ternary "forcefence.pairs" "forcefence.named") (index . 0) }}{{ range $key, $value := index . 1 }}, {{ $key | quote }}: {{ $value | quote }}{{ end -}} }
{{- end }}

{{/*
The ports on which the controller's pods are reached beside the metrics, as {status: [...], events: [...]}. Each has name, protocol
and port. A page on loopback is not among them.
*/}}
{{- define "forcefence.listeners" -}}
{{- $status := list -}}{{- $events := list -}}{{- $seen := list -}}
{{- with .Values.config.listen.status -}}
  {{- if not (regexMatch "^(127\\.[0-9.]+|localhost|\\[::1\\]):" .) -}}
    {{- $status = append $status (dict "name" "status" "protocol" "TCP" "port" (include "forcefence.port" . | atoi)) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.config.providers -}}
  {{- with ((.redfish).push).listen -}}
    {{- $seen = append $seen (printf "TCP %s" (include "forcefence.port" .)) -}}
  {{- end -}}
  {{- with (.ipmi).traps -}}
    {{- $seen = append $seen (printf "UDP %s" (include "forcefence.port" .)) -}}
  {{- end -}}
{{- end -}}
{{- range uniq $seen -}}
  {{- $protocol := splitList " " . | first -}}{{- $port := splitList " " . | last -}}
  {{- $name := printf "%s-%s" ($protocol | eq "TCP" | ternary "events" "traps") $port -}}
  {{- $events = append $events (dict "name" $name "protocol" $protocol "port" (atoi $port)) -}}
{{- end -}}
{{ dict "status" $status "events" $events | toJson }}
{{- end }}

{{/* What is wrong with the values, one fault a line: what the schema cannot say, and in the words of check-config where it says so, too. */}}
{{- define "forcefence.faults" -}}
{{- $faults := list -}}{{- $config := .Values.config -}}{{- $image := .Values.image -}}
{{- $listeners := include "forcefence.listeners" . | fromJson -}}
{{- if not $image.repository -}}
  {{- $faults = append $faults "image.repository: missing: the name under which you pushed the image of `make image`, such as registry.example.net/forcefence" -}}
{{- else if not (regexMatch "^[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$" $image.repository) -}}
  {{- $faults = append $faults (printf "image.repository: %q is not the name of an image: write host/name in lower case; the tag and the digest have keys of their own" $image.repository) -}}
{{- end -}}
{{- if not (regexMatch "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$" $image.tag) -}}
  {{- $faults = append $faults (printf "image.tag: %q is not a tag: use at most 128 letters, digits, _, . and -, and begin with a letter, a digit or _" $image.tag) -}}
{{- end -}}
{{- range $list := list "providers" "nodes" -}}
  {{- if kindIs "invalid" (index $config $list) -}}
    {{- $faults = append $faults (printf "config.%s: want a list (lines that begin with -), have nothing" $list) -}}
  {{- end -}}
{{- end -}}
{{- $names := list -}}{{- $unsure := false -}}
{{- range $i, $provider := $config.providers -}}
  {{- $types := keys (omit $provider "name" "timeout" "ratePerSecond" "concurrency" "poll") -}}
  {{- if not $types -}}
    {{- $faults = append $faults (printf "config.providers[%d]: no type: add one of %s" $i (include "forcefence.providerTypes" $)) -}}
  {{- end -}}
  {{- if $provider.name -}}
    {{- $names = append $names $provider.name -}}
  {{- else -}}
    {{- $unsure = true -}}
    {{- $faults = append $faults (printf "config.providers[%d].name: missing" $i) -}}
  {{- end -}}
{{- end -}}
{{- $removed := list -}}
{{- range $path, $now := include "forcefence.removedKeys" . | fromYaml -}}
  {{- $at := splitList "." $path -}}
  {{- $above := ternary $config (get $config (first $at) | default dict) (eq (len $at) 1) -}}
  {{- if hasKey $above (last $at) -}}
    {{- $removed = append $removed (printf "config.%s=null" $path) -}}
    {{- $faults = append $faults (printf "config.%s: this key was removed: %s" $path $now) -}}
  {{- end -}}
{{- end -}}
{{- with $removed -}}
  {{- $faults = append $faults (printf "Take removed keys out of your values. With --reuse-values, add --set %s" (join "," .)) -}}
{{- end -}}
{{- $uses := list -}}
{{- range $i, $rule := $config.nodes -}}
  {{- if or $rule.provider $rule.machine (not $rule.levels) -}}
    {{- $uses = append $uses (list (printf "config.nodes[%d].provider" $i) ($rule.provider | default "")) -}}
  {{- end -}}
  {{- range $j, $level := $rule.levels -}}
    {{- range $k, $device := $level.devices -}}
      {{- $uses = append $uses (list (printf "config.nodes[%d].levels[%d].devices[%d].provider" $i $j $k) ($device.provider | default "")) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $uses -}}
  {{- if not (index . 1) -}}
    {{- $faults = append $faults (printf "%s: missing: it names one of providers" (index . 0)) -}}
  {{- else if not (or $unsure (has (index . 1) $names)) -}}
    {{- $faults = append $faults (printf "%s: no such provider: known are %s" (index . 0) ($names | join ", " | default "none")) -}}
  {{- end -}}
{{- end -}}
{{- range $i, $port := .Values.controller.hostPorts -}}
  {{- if and $.Values.controller.hostNetwork (ne (toString $port.containerPort) (toString $port.hostPort)) -}}
    {{- $faults = append $faults (printf "controller.hostPorts[%d]: with hostNetwork the node has the container's port: remove it" $i) -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.service.status.enabled (not $listeners.status) -}}
  {{- $faults = append $faults "service.status.enabled: the page is off, or listens on loopback alone: set config.listen.status, statusCertFile and statusKeyFile" -}}
{{- end -}}
{{- if and .Values.service.events.enabled (not $listeners.events) -}}
  {{- $faults = append $faults "service.events.enabled: no provider listens for events: set push of redfish, or traps of ipmi" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.service.status.enabled) -}}
  {{- $faults = append $faults "ingress.enabled: leads to the page's Service: set service.status.enabled, too" -}}
{{- end -}}
{{ $faults | join "\n" }}
{{- end }}

{{/* Keys of earlier configurations, and what applies now, in the words of check-config. */}}
{{- define "forcefence.removedKeys" -}}
leaderElection.name: the leader's Lease is always called forcefence
leaderElection.namespace: the leader's Lease lives in the pod's own namespace, or in kube-system outside of a pod
listen.health: health is always served on port 8081
pauseConfigMap: the ConfigMap forcefence-pause in the namespace of the leader's Lease pauses the whole cluster
powerOnDelay: machines are powered on 1m after their fence has ended
record.maxBytes: the recording and FILE.1 together take at most 64Mi
records: the newest 100 finished Fencings are kept, each for at most 90 days
stormGuard.coolDown: after a limit was hit, power-offs wait until all limits have been kept for 1m
{{- end }}

{{- define "forcefence.providerTypes" -}}
cloudtaint, confirm, container, ec2, fenceagent, ipmi, libvirt, pdu, redfish, vsphere
{{- end }}

{{/* A pod that runs one command of the program and ends: its spec, without what differs. (list . COMMAND-LINE SERVICE-ACCOUNT) */}}
{{- define "forcefence.commandPod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ index . 2 }}
restartPolicy: Never
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
nodeSelector: {kubernetes.io/os: linux}
tolerations: # no more than the controller's: it runs where that may run, and on a marked node
- {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
- {key: {{ include "forcefence.taintKey" $root }}, operator: Exists}
{{- with $root.Values.controller.tolerations }}
{{ toYaml . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
containers:
- name: forcefence
  image: {{ include "forcefence.image" $root }}
  {{- with $root.Values.image.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  args: {{ index . 1 | toJson }}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 256Mi}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
{{- end }}

{{/*
Which Secrets, or keys of them, the configuration reads and the cluster does not have. "" if none is missing, and in a dry run, which
sees no cluster, and so no namespace kube-system either.
*/}}
{{- define "forcefence.missingSecrets" -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
{{- $config := toYaml .Values.config -}}
{{- range prepend .Values.extraSecrets (dict "name" .Values.bmcSecret "mountPath" "/etc/forcefence-bmc") -}}
  {{- $files := regexFindAll (printf "%s/[A-Za-z0-9._-]+" (regexQuoteMeta .mountPath)) $config -1 | uniq -}}
  {{- $secret := lookup "v1" "Secret" $.Release.Namespace .name -}}
  {{- $missing := list -}}
  {{- range $files -}}
    {{- if not (hasKey ($secret.data | default dict) (base .)) }}{{ $missing = append $missing (base .) }}{{ end -}}
  {{- end -}}
  {{- if and $missing $secret }}

Secret {{ .name }} has no key {{ $missing | join ", " }}, and the configuration reads it as a file. The controller refuses the
configuration until the key is there.
  {{- else if $missing }}

There is no Secret {{ .name }}, and the configuration reads its files. The controller's pods do not start until it is there:

  kubectl -n {{ $.Release.Namespace }} create secret generic {{ .name }}{{ range $missing }} --from-file={{ . }}=FILE{{ end }}
  {{- end }}
{{- end -}}
{{- end -}}
{{- end }}
