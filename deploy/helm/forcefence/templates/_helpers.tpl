{{/* Labels of an object, as a flow mapping. */}}
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
app.kubernetes.io/part-of: forcefence
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

{{/* The name of the image, without tag and digest. */}}
{{- define "forcefence.repository" -}}
{{- $registry := (.Values.global).imageRegistry -}}
{{- $host := splitList "/" .Values.image.repository | first -}}
{{- if and $registry (not (and (contains "/" .Values.image.repository) (regexMatch "[.:]|^localhost$" $host))) }}{{ trimSuffix "/" $registry }}/{{ end -}}
{{ .Values.image.repository }}
{{- end }}

{{- define "forcefence.image" -}}
{{- $image := .Values.image -}}
{{ include "forcefence.repository" . }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The value of a variable of controller.env; "" if it has none, or one that only the cluster knows. (list . NAME) */}}
{{- define "forcefence.env" -}}
{{- $name := index . 1 -}}{{- $found := "" -}}
{{- range (index . 0).Values.controller.env }}{{ if eq (.name | default "") $name }}{{ $found = .value | default "" }}{{ end }}{{ end -}}
{{ $found }}
{{- end }}

{{/* The controller's mode. A variable of the environment wins over the file. */}}
{{- define "forcefence.mode" -}}
{{ include "forcefence.env" (list . "FORCEFENCE_MODE") | default .Values.config.mode }}
{{- end }}

{{/*
Why the controllers may all act at once, because none of them waits for another to lead: what is said of the key that turns leader
election off. "" while one leads. A variable of the environment wins over the file, and one from elsewhere may say false.
*/}}
{{- define "forcefence.noLeader" -}}
{{- $name := "FORCEFENCE_LEADER_ELECTION_ENABLED" -}}
{{- $fault := eq (toString (.Values.config.leaderElection).enabled) "false" | ternary "config.leaderElection.enabled: is false" "" -}}
{{- range .Values.controller.env -}}
  {{- if ne (.name | default "") $name -}}
  {{- else if .valueFrom }}{{ $fault = printf "controller.env: %s may be false, because its value comes from elsewhere" $name -}}
  {{- else if .value }}{{ $fault = eq (toString .value | lower) "true" | ternary "" (printf "controller.env: %s is false" $name) }}{{ end -}}
{{- end -}}
{{ $fault }}
{{- end }}

{{/* "true" if the hook's DaemonSet is there: to run the hook, or to take it off the hosts. */}}
{{- define "forcefence.hook" -}}
{{- if or .Values.hook.enabled .Values.hook.uninstall }}true{{ end -}}
{{- end }}

{{/* "true" if the controller needs the image with fence agents. */}}
{{- define "forcefence.agents" -}}
{{- range .Values.config.providers }}{{ if hasKey . "fenceagent" }}true{{ break }}{{ end }}{{ end -}}
{{- end }}

{{- define "forcefence.controllerImage" -}}
{{- if not (include "forcefence.agents" .) -}}
{{ include "forcefence.image" . }}
{{- else -}}
{{ .Values.image.agents | default (printf "%s:%s-agents" (include "forcefence.repository" .) (.Values.image.tag | default .Chart.AppVersion)) }}
{{- end -}}
{{- end }}

{{/* The Secrets for the registry, as YAML: those of the chart, and of a chart that has it as a dependency. */}}
{{- define "forcefence.pullSecrets" -}}
{{- $all := .Values.imagePullSecrets -}}
{{- range (.Values.global).imagePullSecrets }}{{ $all = append $all (kindIs "string" . | ternary (dict "name" .) .) }}{{ end -}}
{{- with $all }}{{ toYaml . }}{{ end -}}
{{- end }}

{{/* The port of an address such as ":8080". */}}
{{- define "forcefence.port" -}}
{{ . | splitList ":" | last }}
{{- end }}

{{/*
What the configuration asks of the API server beside a plain fence.
attachers: drivers whose VolumeAttachments policies delete. drivers: of storage systems that vouch for their nodes (StorageUnhealthy).
*/}}
{{- define "forcefence.rights" -}}
{{- $config := .Values.config -}}
{{- $storage := dict -}}
{{- $presets := dict "longhorn" (list "driver.longhorn.io") "storageos" (list "csi.storageos.com") "linstor" (list "linstor.csi.linbit.com") -}}
{{- range $config.storage }}{{ $_ := set $storage .name (.drivers | default (get $presets (.preset | default "")) | default list) }}{{ end -}}
{{- $attachers := list -}}{{- $drivers := list -}}{{- $owners := false -}}{{- $longhorn := false -}}{{- $networkFence := false -}}{{- $fenceClasses := list -}}
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
  {{- if .networkFenceClasses -}}
    {{- $networkFence = true -}}
    {{- $fenceClasses = concat $fenceClasses .networkFenceClasses -}}
    {{- $attachers = concat $attachers $own -}}
  {{- end -}}
  {{- if has "Deployment" (.owners | default list) }}{{ $owners = true }}{{ end -}}
{{- end -}}
{{- $hosts := list -}}{{- $power := false -}}
{{- range $config.providers -}}
  {{- if and .metal3 (not (.metal3).kubeconfig) -}}
    {{- $hosts = concat $hosts (.metal3.namespaces | default list) -}}
    {{- if ne (.metal3.powerOff | default "none") "none" }}{{ $power = true }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $drain := false -}}{{- $delegate := false -}}
{{- range $config.drain }}{{ if .delegate }}{{ $delegate = true }}{{ else }}{{ $drain = true }}{{ end }}{{ end -}}
attachers: {{ uniq $attachers | toJson }}
drivers: {{ uniq $drivers | toJson }}
owners: {{ $owners }}
longhorn: {{ $longhorn }}
networkFence: {{ $networkFence }}
fenceClasses: {{ uniq $fenceClasses | toJson }}
drain: {{ $drain }}
drainLonghorn: {{ $delegate }}
deleteAttachments: {{ eq ($config.onDetachTimeout | default "") "delete-attachments" }}
outOfService: {{ eq ($config.onDetachTimeout | default "") "out-of-service" }}
remediation: {{ and ($config.remediation).namespaces (not ($config.remediation).kubeconfig) | empty | not }}
leases: {{ $config.releaseLeases | empty | not }}
metal3: {{ uniq $hosts | toJson }}
metal3Power: {{ $power }}
nodeClaims: {{ has $config.karpenter (list "leaveDeleting" "handOver") }}
handOver: {{ eq ($config.karpenter | default "") "handOver" }}
status: {{ ne ($config.listen.status | default "") "" }}
{{- end }}

{{/*
The metadata of an object that its reader, Prometheus' operator or Grafana's sidecar, finds by its labels.
(list . NAME LABELS VALUES)
*/}}
{{- define "forcefence.foundObject" }}
{{- $root := index . 0 }}{{ $labels := index . 2 }}{{ $values := index . 3 }}
metadata:
  name: {{ index . 1 }}
  namespace: {{ $values.namespace | default $root.Release.Namespace }}
  labels: { {{- include (hasKey $labels "app.kubernetes.io/name" | ternary "forcefence.pairs" "forcefence.named") $root }}
    {{- range $key, $value := $labels }}, {{ $key | quote }}: {{ $value | quote }}{{ end -}} }
  {{- with $values.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* "true" for an address that only the pod itself reaches. */}}
{{- define "forcefence.isLoopback" -}}
{{- if regexMatch "^(127\\.[0-9.]+|localhost|\\[::1\\]):" . }}true{{ end -}}
{{- end }}

{{/*
The ports on which the controller's pods are reached beside the metrics, as {status: [...], events: [...]}. Each has name, protocol
and port. A page on loopback is not among them.
*/}}
{{- define "forcefence.listeners" -}}
{{- $status := list -}}{{- $events := list -}}{{- $seen := list -}}
{{- with .Values.config.listen.status -}}
  {{- if not (include "forcefence.isLoopback" .) -}}
    {{- $status = append $status (dict "name" "status" "protocol" "TCP" "port" (include "forcefence.port" . | atoi)) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.config.providers -}}
  {{- with ((.redfish).push).listen -}}
    {{- $seen = append $seen (include "forcefence.port" .) -}}
  {{- end -}}
{{- end -}}
{{- range uniq $seen -}}
  {{- $events = append $events (dict "name" (printf "events-%s" .) "protocol" "TCP" "port" (atoi .)) -}}
{{- end -}}
{{ dict "status" $status "events" $events | toJson }}
{{- end }}

{{- define "forcefence.providerTypes" -}}
azure, cloudtaint, confirm, container, digitalocean, ec2, fenceagent, gce, hetzner, incus, ipmi, kubevirt, libvirt, lxd, maas, metal3, nutanix, openstack, pdu, pikvm, proxmox, redfish, rest, shelly, tasmota, upcloud, vsphere, xcpng
{{- end }}

{{/* A pod that runs one command of the program and ends: its spec, without what differs. (list . COMMAND-LINE SERVICE-ACCOUNT) */}}
{{- define "forcefence.commandPod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ index . 2 }}
restartPolicy: Never
{{- with include "forcefence.pullSecrets" $root }}
imagePullSecrets: {{- nindent 2 . }}
{{- end }}
nodeSelector: {kubernetes.io/os: linux}
tolerations: # no more than the controller's: it runs where that may run, and on a marked node
{{ include "forcefence.planeTolerations" $root }}
- {key: {{ include "forcefence.taintKey" $root }}, operator: Exists}
{{- with $root.Values.controller.tolerations }}
{{ toYaml . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- if not (include "forcefence.openShift" $root) }}
  runAsUser: 65532
  runAsGroup: 65532
  {{- end }}
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
What keeps other pods off control-plane nodes, by any distribution: OpenShift's and old kubeadm's master, Rancher's etcd, and
CriticalAddonsOnly, which k3s and RKE2 advise.
*/}}
{{- define "forcefence.planeTolerations" -}}
- {key: node-role.kubernetes.io/control-plane, operator: Exists}
- {key: node-role.kubernetes.io/master, operator: Exists}
- {key: node-role.kubernetes.io/etcd, operator: Exists}
- {key: CriticalAddonsOnly, operator: Exists}
{{- end }}

{{/*
Whether the API server is OpenShift's; "" if not. There each namespace has users of its own, and the SCC restricted-v2 refuses others:
the chart names no user, and runAsNonRoot holds.
*/}}
{{- define "forcefence.openShift" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true{{ end -}}
{{- end }}

{{/*
Which Secrets, or keys of them, the pods read and the cluster does not have, with the command that makes each. "" if none is
missing, and in a dry run, which sees no cluster, and so no namespace kube-system either.
*/}}
{{- define "forcefence.missingSecrets" -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
{{- $namespace := .Release.Namespace -}}
{{- $config := toYaml .Values.config -}}
{{- /* Each is {name, keys, each: whether there is a key for each machine, for: who reads it} */ -}}
{{- $wanted := list -}}
{{- $mounts := prepend .Values.extraSecrets (dict "name" .Values.bmcSecret "mountPath" "/etc/forcefence-bmc") -}}
{{- range $volume := .Values.controller.extraVolumes -}}
  {{- $secret := ($volume.secret | default dict).secretName -}}
  {{- range $.Values.controller.extraVolumeMounts -}}
    {{- if and $secret (eq .name $volume.name) }}{{ $mounts = append $mounts (dict "name" $secret "mountPath" .mountPath) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- range $mounts -}}
  {{- $keys := list -}}{{- $each := false -}}
  {{- range regexFindAll (printf "%s/[^\\s\"',]+" (trimSuffix "/" .mountPath | regexQuoteMeta)) $config -1 | uniq -}}
    {{- if contains "{name}" . }}{{ $each = true }}{{ else }}{{ $keys = append $keys (base .) }}{{ end -}}
  {{- end -}}
  {{- $wanted = append $wanted (dict "name" .name "keys" $keys "each" $each "for" "the configuration") -}}
{{- end -}}
{{- range .Values.controller.env -}}
  {{- $ref := ((.valueFrom | default dict).secretKeyRef | default dict) -}}
  {{- if and $ref.name (not $ref.optional) -}}
    {{- $wanted = append $wanted (dict "name" $ref.name "keys" (list $ref.key) "each" false "for" "controller.env") -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.proofGuard.enabled .Values.proofGuard.certificate.secret -}}
  {{- $wanted = append $wanted (dict "name" .Values.proofGuard.certificate.secret "keys" (list "tls.crt" "tls.key") "each" false "for" "proofGuard.certificate") -}}
{{- end -}}
{{- range $wanted -}}
  {{- $wish := . -}}
  {{- $secret := lookup "v1" "Secret" $namespace .name -}}
  {{- $missing := list -}}
  {{- range .keys -}}
    {{- if not (hasKey ($secret.data | default dict) .) }}{{ $missing = append $missing . }}{{ end -}}
  {{- end -}}
  {{- if and $missing $secret }}

Secret {{ .name }} has no key {{ $missing | join ", " }}, and {{ .for }} reads it. The controller does not run until the key is there:
{{ range $missing }}
  kubectl -n {{ $namespace }} patch secret {{ $wish.name }} --patch "{\"data\": {\"{{ . }}\": \"$(base64 <FILE | tr -d '\n')\"}}"
  {{- end }}
  {{- else if or $missing (and .each (not $secret)) }}

There is no Secret {{ .name }}, and {{ .for }} reads its keys. The controller's pods end and restart until it is there{{ if .each }}; FOLDER has a file for each node{{ end }}:

  kubectl -n {{ $namespace }} create secret generic {{ .name }}{{ range $missing }} --from-file={{ . }}=FILE{{ end }}{{ if .each }} --from-file=FOLDER{{ end }}
  {{- end }}
{{- end -}}
{{- $key := (.Values.config.signing).keyFile | default (include "forcefence.env" (list . "FORCEFENCE_SIGNING_KEY_FILE")) -}}
{{- if and (hasPrefix "/etc/forcefence-signing/" $key) (not (hasKey ((lookup "v1" "Secret" $namespace "forcefence-signing").data | default dict) (base $key))) }}

Secret forcefence-signing has no key {{ base $key }}, and signing.keyFile reads it. No proof is signed until it is there:

  forcefence proof keys --new --namespace {{ $namespace }}
{{- end -}}
{{- range include "forcefence.pullSecrets" . | fromYamlArray -}}
  {{- if and .name (not (lookup "v1" "Secret" $namespace .name)) }}

There is no Secret {{ .name }}, and imagePullSecrets names it. Without it the nodes pull no image from a private registry:

  kubectl -n {{ $namespace }} create secret docker-registry {{ .name }} --docker-server=HOST --docker-username=NAME --docker-password=PASSWORD
  {{- end }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* "true" if a provider is a device, and not a person's word. */}}
{{- define "forcefence.devices" -}}
{{- range .Values.config.providers }}{{ if not (hasKey . "confirm") }}true{{ break }}{{ end }}{{ end -}}
{{- end }}

{{/*
Which objects no Prometheus of the cluster reads, because they lack a label that it demands: kube-prometheus-stack demands
that of its release. "" in a dry run, and where a selector is more than labels.
*/}}
{{- define "forcefence.unseen" -}}
{{- if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1/Prometheus" -}}
{{- $all := (lookup "monitoring.coreos.com/v1" "Prometheus" "" "").items -}}
{{- range $name := list "podMonitor" "serviceMonitor" "prometheusRule" -}}
  {{- $object := get $.Values.metrics $name -}}
  {{- $selector := printf "%sSelector" ($name | replace "prometheusRule" "rule") -}}
  {{- $has := merge (dict) $object.labels $.Values.commonLabels -}}
  {{- $read := false -}}{{- $wanted := dict -}}
  {{- range $all -}}
    {{- $labels := (get .spec $selector | default dict).matchLabels | default dict -}}
    {{- $missing := dict -}}
    {{- range $key, $value := $labels }}{{ if ne (get $has $key | toString) $value }}{{ $_ := set $missing $key $value }}{{ end }}{{ end -}}
    {{- if $missing }}{{ $wanted = $missing }}{{ else }}{{ $read = true }}{{ end -}}
  {{- end -}}
  {{- if and $object.enabled $wanted (not $read) }}

WARNING: no Prometheus reads metrics.{{ $name }}: set metrics.{{ $name }}.labels to {{ $wanted | toJson }}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
