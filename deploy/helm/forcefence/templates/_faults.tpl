{{/*
What is wrong with the values, one fault a line: what the schema cannot say, and in the words of check-config where that
says so, too.
*/}}
{{- define "forcefence.faults" -}}
{{- include "forcefence.imageFaults" . -}}
{{- include "forcefence.leaderFaults" . -}}
{{- include "forcefence.configFaults" . -}}
{{- include "forcefence.timeFaults" . -}}
{{- include "forcefence.mountFaults" . -}}
{{- include "forcefence.portFaults" . -}}
{{- include "forcefence.alertFaults" . -}}
{{- include "forcefence.hookFaults" . -}}
{{- include "forcefence.guardFaults" . -}}
{{- include "forcefence.resourceFaults" . -}}
{{- if and (include "forcefence.hook" .) .Values.hook.createNamespace (eq .Values.hook.namespace .Release.Namespace) -}}
  {{- printf "\nhook.namespace: %s is the release's namespace, and the hook's needs Pod Security's level privileged: use another namespace" .Release.Namespace -}}
{{- end -}}
{{- if and .Values.proofGuard.enabled .Values.proofGuard.certificate.secret (not .Values.proofGuard.certificate.path) -}}
  {{- print "\nproofGuard.certificate.path: missing: the chart cannot make it from a Secret of your own, so write / and 32 random letters and digits" -}}
{{- end -}}
{{- end }}

{{/*
Of a setting of the hook without the hook, and of a hook whose DaemonSet this upgrade would delete. The runtime's plugin would stay on the hosts and keep holding the pods of marked
nodes, and no update would reach it. The chart's own values once had the hook, so an upgrade may delete it unintended.
*/}}
{{- define "forcefence.hookFaults" -}}
{{- if and .Values.hook.requiredPlugins (not (include "forcefence.hook" .)) -}}
  {{- print "\nhook.requiredPlugins: has no effect without hook.enabled: set it, too" -}}
{{- end -}}
{{- if and .Release.IsUpgrade (not (include "forcefence.hook" .)) -}}
  {{- $set := lookup "apps/v1" "DaemonSet" .Values.hook.namespace "forcefence-node" | default dict -}}
  {{- range $i, $container := ((($set.spec).template).spec).containers -}}
    {{- if eq $container.name "hook" -}}
      {{- print "\nhook.enabled: is false, and the hosts have the hook: set it to true to keep the hook, or set hook.uninstall to true to take it off the hosts first" -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Of a proof guard that would refuse requests which a fence waits for. */}}
{{- define "forcefence.guardFaults" -}}
{{- $guard := .Values.proofGuard -}}
{{- if $guard.enabled -}}
  {{- if not (or (.Values.config.signing).keyFile (include "forcefence.env" (list . "FORCEFENCE_SIGNING_KEY_FILE"))) -}}
    {{- print "\nproofGuard.enabled: nothing signs proofs, so the webhook would refuse every detach from a node that is not Ready: set config.signing.keyFile to /etc/forcefence-signing/key.pem, and make that key by `forcefence proof keys --new`" -}}
  {{- end -}}
  {{- $detach := .Values.config.detachTimeout | default (.Files.Get "files/config.types.json" | fromJson).detachTimeout -}}
  {{- if le (include "forcefence.milliseconds" $guard.maxAge | float64) (include "forcefence.milliseconds" $detach | float64) -}}
    {{- printf "\nproofGuard.maxAge: %s must be longer than config.detachTimeout (%s): otherwise the webhook refuses a detach that a fence waits for" $guard.maxAge $detach -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Of resources: what is no quantity, and limits of memory in which a program cannot run. */}}
{{- define "forcefence.resourceFaults" -}}
{{- range $path, $least := dict "controller" 64 "hook" 64 "proofGuard" 32 -}}
  {{- $resources := (get $.Values $path).resources -}}
  {{- range $kind := list "requests" "limits" -}}
    {{- range $resource, $value := get $resources $kind -}}
      {{- $at := printf "\n%s.resources.%s.%s" $path $kind $resource -}}
      {{- $bytes := include "forcefence.quantity" $value -}}
      {{- if not $bytes -}}
        {{- printf "%s: %q is not a quantity: write %s" $at (toString $value) (eq $resource "memory" | ternary "a number and Mi or Gi, such as 512Mi" "a number such as 2 or 250m") -}}
      {{- else if and (eq $kind "limits") (eq $resource "memory") (lt (float64 $bytes) (mulf $least 1048576)) -}}
        {{- printf "%s: %v is too small for the program to run: use at least %dMi" $at $value $least -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- range $resource, $value := $resources.requests -}}
    {{- $limit := get ($resources.limits | default dict) $resource | toString -}}
    {{- $asked := include "forcefence.quantity" $value }}{{ $most := include "forcefence.quantity" $limit -}}
    {{- if and $asked $most (gt (float64 $asked) (float64 $most)) -}}
      {{- printf "\n%s.resources.requests.%s: %v is more than limits.%s, %s: no pod can have that. Lower the request, or raise the limit" $path $resource $value $resource $limit -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* A quantity of Kubernetes, such as 64Mi or 50m, as a number; "" if it is none. */}}
{{- define "forcefence.quantity" -}}
{{- if not (kindIs "string" .) -}}
{{ float64 . }}
{{- else if regexMatch "^([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$" . -}}
  {{- $unit := regexFind "[A-Za-z]+$" . -}}
  {{- $factor := get (dict "" 1.0 "n" 0.000000001 "u" 0.000001 "m" 0.001 "k" 1000.0 "M" 1000000.0 "G" 1000000000.0 "T" 1000000000000.0
    "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0) $unit | default 1000000000000000.0 -}}
{{ mulf (trimSuffix $unit . | float64) $factor }}
{{- end -}}
{{- end }}

{{/* Of several controllers without leader election: each of them would power machines off. */}}
{{- define "forcefence.leaderFaults" -}}
{{- $replicas := int .Values.controller.replicas -}}
{{- with include "forcefence.noLeader" . -}}
  {{- if gt $replicas 1 -}}
    {{- printf "\n%s, and controller.replicas is %d: %s would fence at once. Set replicas to 1, or leave leaderElection on" . $replicas (eq $replicas 2 | ternary "both" "all") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "forcefence.imageFaults" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
  {{- print "\nimage.repository: missing: the name under which you pushed the image of `make image`, such as registry.example.net/forcefence" -}}
{{- else if not (regexMatch "^[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$" $image.repository) -}}
  {{- printf "\nimage.repository: %q is not the name of an image: write host/name in lower case; the tag and the digest have keys of their own" $image.repository -}}
{{- end -}}
{{- if not (regexMatch "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$" $image.tag) -}}
  {{- printf "\nimage.tag: %q is not a tag: use at most 128 letters, digits, _, . and -, and begin with a letter, a digit or _" $image.tag -}}
{{- else if not (or $image.tag $image.digest (ne .Chart.AppVersion "dev")) -}}
  {{- print "\nimage.tag: missing: this chart is of no release, so write the tag under which you pushed the image" -}}
{{- end -}}
{{- if and $image.digest (not $image.agents) (include "forcefence.agents" .) -}}
  {{- print "\nimage.digest: is of the image without fence agents, which config.providers asks for: set image.agents to the whole name of the image that has them, such as NAME@sha256:..." -}}
{{- end -}}
{{- end }}

{{/* Of config, without its files and times. */}}
{{- define "forcefence.configFaults" -}}
{{- $config := .Values.config -}}
{{- range $list := list "providers" "nodes" -}}
  {{- if kindIs "invalid" (index $config $list) -}}
    {{- printf "\nconfig.%s: want a list (lines that begin with -), have nothing" $list -}}
  {{- end -}}
{{- end -}}
{{- if hasKey $config "taintKey" -}}
  {{- $domain := splitList "/" $config.taintKey | first -}}
  {{- if not (regexMatch "^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$" $config.taintKey) -}}
    {{- print "\nconfig.taintKey: no taint can have this key: it must look like example.net/name" -}}
  {{- end -}}
  {{- range $theirs := list "kubernetes.io" "k8s.io" -}}
    {{- if and (ne $domain $config.taintKey) (or (eq $domain $theirs) (hasSuffix (print "." $theirs) $domain)) -}}
      {{- printf "\nconfig.taintKey: keys under %s belong to Kubernetes: use another" $theirs -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if not (regexMatch ":[0-9]+$" $config.listen.metrics) -}}
  {{- print "\nconfig.listen.metrics: must be host:port, such as \":8080\": the pod's port of that name needs it" -}}
{{- end -}}
{{- range $list := list "storage" "policies" -}}
  {{- range $i, $item := index $config $list -}}
    {{- range $j, $driver := $item.drivers -}}
      {{- if not (regexMatch "^[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?$" $driver) -}}
        {{- printf "\nconfig.%s[%d].drivers[%d]: no CSI driver can have this name: `kubectl get csidrivers` lists them" $list $i $j -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $fencing := list -}}
{{- $requested := eq $config.mode "onRequest" -}}
{{- range $config.modes -}}
  {{- if has (.mode | default "") (list "fence" "onRequest") }}{{ $fencing = list "modes" }}{{ end -}}
  {{- if eq (.mode | default "") "onRequest" }}{{ $requested = true }}{{ end -}}
{{- end -}}
{{- range $config.nodes }}{{ if eq (.mode | default "") "onRequest" }}{{ $requested = true }}{{ end }}{{ end -}}
{{- if has $config.mode (list "fence" "onRequest") }}{{ $fencing = list "mode" }}{{ end -}}
{{- if and $requested (not ($config.remediation).namespaces) -}}
  {{- print "\nconfig.remediation.namespaces: missing: mode onRequest powers a machine off only for a request in one of them. Name the namespace of NodeHealthCheck's templates, or of Cluster API's Machines" -}}
{{- end -}}
{{- if and $fencing (kindIs "slice" $config.nodes) (not $config.nodes) -}}
  {{- printf "\nconfig.%s: nothing to fence: no rule under nodes says how to find a node's machine" (first $fencing) -}}
{{- end -}}
{{- $providers := list -}}{{- $settings := dict -}}{{- $unsure := false -}}
{{- range $list := list "providers" "nodes" "storage" "policies" "drain" -}}
  {{- $seen := dict -}}
  {{- range $i, $item := index $config $list -}}
    {{- $path := printf "%s[%d]" $list $i -}}{{- $name := $item.name | default "" -}}
    {{- if not $name -}}
      {{- printf "\nconfig.%s.name: missing" $path -}}
    {{- else if not (regexMatch "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" $name) -}}
      {{- printf "\nconfig.%s.name: must be a DNS label: at most 63 of a-z, 0-9 and -, with no - at the ends" $path -}}
    {{- else if hasKey $seen $name -}}
      {{- printf "\nconfig.%s.name: %q is already the name of %s" $path $name (get $seen $name) -}}
    {{- end -}}
    {{- if not (hasKey $seen $name) }}{{ $_ := set $seen $name $path }}{{ end -}}
    {{- if eq $list "providers" -}}
      {{- $providers = append $providers $name -}}{{- $_ := set $settings $name $item -}}{{- $unsure = or $unsure (not $name) -}}
      {{- $types := keys (omit $item "name" "timeout" "ratePerSecond" "concurrency" "poll") | sortAlpha -}}
      {{- if not $types -}}
        {{- printf "\nconfig.%s: no type: add one of %s" $path (include "forcefence.providerTypes" $) -}}
      {{- else if gt (len $types) 1 -}}
        {{- printf "\nconfig.%s: a provider has one type, and this one has %s" $path ($types | join ", ") -}}
      {{- end -}}
      {{- include "forcefence.providerFaults" (list $path $item) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- /* Each device of a rule: (list PATH DEVICE) */ -}}
{{- $devices := list -}}
{{- range $i, $rule := $config.nodes -}}
  {{- $path := printf "nodes[%d]" $i -}}
  {{- if or $rule.provider $rule.machine (not $rule.levels) }}{{ $devices = append $devices (list $path $rule) }}{{ end -}}
  {{- range $j, $level := $rule.levels -}}
    {{- $at := printf "%s.levels[%d].devices" $path $j -}}
    {{- if not $level.devices -}}
      {{- printf "\nconfig.%s: missing: a level without a device would count as off" $at -}}
    {{- end -}}
    {{- range $k, $device := $level.devices }}{{ $devices = append $devices (list (printf "%s[%d]" $at $k) $device) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $machines := dict -}}{{- $listed := dict -}}
{{- range $devices -}}
  {{- $path := index . 0 -}}{{- $device := index . 1 -}}
  {{- $nodes := ternary (dict) $listed (contains ".levels[" $path) -}}
  {{- if eq (($device.machine | default dict).from | default "") "list" -}}
    {{- range $i, $entry := $device.machine.list -}}
      {{- $node := $entry.node | default "" -}}
      {{- $machine := printf "%s %s" ($device.provider | default "") ($entry.id | default "" | trim) -}}
      {{- if and $node (hasKey $nodes $node) -}}
        {{- printf "\nconfig.%s.machine.list[%d].node: %s is already listed" $path $i $node -}}
      {{- end -}}
      {{- if and $entry.id (hasKey $machines $machine) -}}
        {{- printf "\nconfig.%s.machine.list[%d].id: another node already has this machine" $path $i -}}
      {{- end -}}
      {{- $_ := set $nodes $node true }}{{ $_ := set $machines $machine true -}}
    {{- end -}}
  {{- end -}}
  {{- if not $device.provider -}}
    {{- printf "\nconfig.%s.provider: missing: it names one of providers" $path -}}
  {{- else if not (or $unsure (has $device.provider $providers)) -}}
    {{- printf "\nconfig.%s.provider: no such provider: %s" $path ($providers | empty | ternary "the file has none. Add it under providers" (printf "known are %s" ($providers | join ", "))) -}}
  {{- end -}}
  {{- $machine := $device.machine | default dict -}}
  {{- include "forcefence.machineFaults" (list $path $machine (get $settings ($device.provider | default "") | default dict)) -}}
  {{- if not $machine.from -}}
    {{- printf "\nconfig.%s.machine.from: missing: one of systemUUID, providerID, annotation, name, template, list" $path -}}
  {{- end -}}
  {{- range $key, $from := dict "annotation" "annotation" "template" "template" "list" "list" "part" "providerID" -}}
    {{- if and $machine.from (hasKey $machine $key) (ne $from $machine.from) -}}
      {{- printf "\nconfig.%s.machine.%s: belongs to \"from: %s\"" $path $key $from -}}
    {{- else if and (eq $key ($machine.from | default "")) (not (hasKey $machine $key)) -}}
      {{- printf "\nconfig.%s.machine.%s: missing: \"from: %s\" needs it" $path $key $from -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $removed := list -}}
{{- range $path, $now := include "forcefence.removedKeys" . | fromYaml -}}
  {{- $at := splitList "." $path -}}
  {{- if hasKey (ternary $config (get $config (first $at) | default dict) (eq (len $at) 1)) (last $at) -}}
    {{- $removed = append $removed (printf "config.%s=null" $path) -}}
    {{- printf "\nconfig.%s: this key was removed: %s" $path $now -}}
  {{- end -}}
{{- end -}}
{{- with $removed -}}
  {{- printf "\nTake removed keys out of your values. With --reuse-values, add --set %s" (join "," .) -}}
{{- end -}}
{{- end }}

{{/* Of the addresses of a provider. (list PATH PROVIDER) */}}
{{- define "forcefence.providerFaults" -}}
{{- $path := index . 0 -}}{{- $provider := index . 1 -}}
{{- range $type := list "redfish" "vsphere" -}}
  {{- $settings := get $provider $type | default dict -}}
  {{- with $settings.address -}}
    {{- with include "forcefence.addressFault" (list . $settings) }}{{ printf "\nconfig.%s.%s.address: %s" $path $type . }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $ec2 := $provider.ec2 | default dict -}}
{{- if and (hasKey $provider "ec2") (not $ec2.regions) -}}
  {{- printf "\nconfig.%s.ec2.regions: missing: write the regions that the nodes run in, as in [eu-west-1]" $path -}}
{{- end -}}
{{- $libvirt := $provider.libvirt | default dict -}}
{{- $uris := dict -}}
{{- with $libvirt.uri }}{{ $_ := set $uris "uri" . }}{{ end -}}
{{- range $i, $uri := $libvirt.uris }}{{ $_ := set $uris (printf "uris[%d]" $i) $uri }}{{ end -}}
{{- range $key, $uri := $uris -}}
  {{- if regexMatch "^[a-z]+[+](ssh|libssh|libssh2)://" $uri -}}
    {{- printf "\nconfig.%s.libvirt.%s: has the transport ssh, which is not supported: use qemu+tls://host/system with a client certificate" $path $key -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
Of IDs that are addresses: those of redfish and ipmi, where each machine has its own device. Of templates the commonest alone,
which read no more than the Node's name. (list PATH MACHINE PROVIDER)
*/}}
{{- define "forcefence.machineFaults" -}}
{{- $path := index . 0 -}}{{- $machine := index . 1 -}}{{- $provider := index . 2 -}}
{{- $from := $machine.from | default "" -}}{{- $template := $machine.template | default "" -}}
{{- $at := "template" -}}
{{- if eq $from "name" -}}{{- $template = "{name}" -}}{{- $at = "from" -}}{{- end -}}
{{- $written := has $from (list "name" "template") -}}
{{- $redfish := $provider.redfish | default dict -}}
{{- $own := not (or (empty $redfish) $redfish.address) -}}
{{- if contains "{{" $template -}}
  {{- $now := regexReplaceAll "{{-? *[.]Labels[.]([A-Za-z0-9_]+) *-?}}" (regexReplaceAll "{{-? *[.]Name *-?}}" $template "{name}") "{label:${1}}" -}}
  {{- printf "\nconfig.%s.machine.template: {{ }} is not read: " $path -}}
  {{- if contains "{{" $now -}}
    {{- print "use {name}, {label:KEY}, {annotation:KEY} or {uuid}. For what functions and conditions did, write a list, or give the Nodes a label and use {label:KEY}" -}}
  {{- else -}}
    {{- printf "write '%s'" $now -}}
  {{- end -}}
{{- end -}}
{{- $fault := "" -}}
{{- if and $own $written (regexMatch "^(http://)?([^{:]|{name})*{name}([^{:]|:[0-9])*$" $template) -}}
  {{- $fault = include "forcefence.addressFault" (list $template $redfish) -}}
{{- end -}}
{{- if $fault -}}
  {{- printf "\nconfig.%s.machine.%s: gives no node a device, because the ID %s" $path $at $fault -}}
{{- else if and (or $own (hasKey $provider "ipmi")) $written (not $machine.allow)
  (regexMatch (ternary "^https?://[a-z0-9-]*{name}$" "^[a-z0-9-]*{name}$" $own) $template) -}}
  {{- printf "\nconfig.%s.machine.allow: missing: a Node's creator chooses its name and labels, and so which host gets the password. Write your domain behind the last placeholder (https://{name}.bmc.example.net), or use a list, or write the allowed hosts, *.domains, IPs or CIDRs here" $path -}}
{{- end -}}
{{- if and $own (eq $from "list") -}}
  {{- range $i, $entry := $machine.list -}}
    {{- with $entry.id -}}
      {{- with include "forcefence.addressFault" (list . $redfish) }}{{ printf "\nconfig.%s.machine.list[%d].id: %s" $path $i . }}{{ end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* What is wrong with an address that must be https://. (list ADDRESS SETTINGS-OF-THE-TYPE) */}}
{{- define "forcefence.addressFault" -}}
{{- $address := index . 0 -}}
{{- if and (hasPrefix "http://" $address) (not (index . 1).allowHTTP) -}}
is not https://: the password would go over the network in the clear (see allowHTTP)
{{- else if not (contains "://" $address) -}}
is no address: write https://host[:port]
{{- end -}}
{{- end }}

{{/* Keys of earlier configurations, and what applies now, in the words of check-config. */}}
{{- define "forcefence.removedKeys" -}}
leaderElection.name: the leader's Lease is always kube-system/forcefence
leaderElection.namespace: the leader's Lease is always kube-system/forcefence
listen.health: health is always served on port 8081
pauseConfigMap: the ConfigMap forcefence-pause in the controller's namespace pauses the whole cluster
powerOnDelay: machines are powered on 1m after their fence has ended
record: 'write recording: {file: FILE}. FILE and FILE.1 together take at most 64Mi'
records: the newest 100 finished Fencings are kept, each for at most 90 days
stormGuard.coolDown: after a limit was hit, power-offs wait until all limits have been kept for 1m
{{- end }}

{{/* The shortest times that check-config takes. */}}
{{- define "forcefence.timeFaults" -}}
{{- $config := .Values.config -}}
{{- $grace := "must be at least 20s: a healthy kubelet may miss two renewals of its Lease" -}}
{{- $times := list (list "powerOffAfter" $config.powerOffAfter 20000 $grace)
  (list "powerOffTimeout" $config.powerOffTimeout 5000 "must be at least 5s")
  (list "detachTimeout" $config.detachTimeout 10000 "must be at least 10s") -}}
{{- range $i, $mode := $config.modes -}}
  {{- $times = append $times (list (printf "modes[%d].powerOffAfter" $i) $mode.powerOffAfter 20000 $grace) -}}
{{- end -}}
{{- range $times -}}
  {{- if and (index . 1) (lt (include "forcefence.milliseconds" (index . 1) | float64) (index . 2 | float64)) -}}
    {{- printf "\nconfig.%s: %s" (index . 0) (index . 3) -}}
  {{- end -}}
{{- end -}}
{{- range $i, $provider := $config.providers -}}
  {{- with $provider.timeout -}}
    {{- $timeout := include "forcefence.milliseconds" . | float64 -}}
    {{- if or (lt $timeout 100.0) (gt $timeout 5000.0) -}}
      {{- printf "\nconfig.providers[%d].timeout: must be from 100ms to 5s: an answer older than 5s proves nothing" $i -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* A duration such as "1m30s". */}}
{{- define "forcefence.milliseconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+[a-zµ]+" . -1 -}}
  {{- $factor := get (dict "h" 3600000.0 "m" 60000.0 "s" 1000.0 "ms" 1.0) (regexFind "[a-zµ]+" .) | default 0.0 -}}
  {{- $sum = addf $sum (mulf (regexFind "[0-9.]+" . | float64) $factor) -}}
{{- end -}}
{{ $sum }}
{{- end }}

{{/* Folders that two volumes would have, and files that no volume has. */}}
{{- define "forcefence.mountFaults" -}}
{{- $taken := dict "/etc/forcefence" "the configuration" "/etc/forcefence-signing" "the key that signs proofs" "/etc/forcefence-bmc" (printf "the Secret %s" .Values.bmcSecret) -}}
{{- if include "forcefence.agents" . }}{{ $_ := set $taken "/tmp" "the fence agents" }}{{ end -}}
{{- range $path := list "/" "/dev" "/etc" "/ko-app" "/proc" "/sys" "/usr" }}{{ $_ := set $taken $path "the image" }}{{ end -}}
{{- $folders := list "/etc/forcefence-bmc" "/etc/forcefence-signing" -}}
{{- range $value, $mounts := dict "extraSecrets" .Values.extraSecrets "controller.extraVolumeMounts" .Values.controller.extraVolumeMounts -}}
  {{- range $i, $mount := $mounts -}}
    {{- $path := clean ($mount.mountPath | default "") -}}
    {{- if hasKey $taken $path -}}
      {{- printf "\n%s[%d].mountPath: %s is the folder of %s: use another folder" $value $i $path (get $taken $path) -}}
    {{- end -}}
    {{- $_ := set $taken $path (printf "%s[%d]" $value $i) -}}
    {{- $folders = append $folders $path -}}
  {{- end -}}
{{- end -}}
{{- /* What an injector adds to the pod, by its annotations, the chart cannot know. */ -}}
{{- if not .Values.controller.podAnnotations -}}
{{- range include "forcefence.files" (list "config" (pick .Values.config "listen" "providers" "recording" "remediation" "signing" "storage")) | splitList "\n" | compact -}}
  {{- $path := splitList "\t" . | first -}}{{- $file := splitList "\t" . | last -}}
  {{- $fixed := splitList "{name}" $file | first -}}
  {{- $found := false -}}
  {{- range concat $folders (list "/etc/ssl" "/var/run/secrets") -}}
    {{- if or (hasPrefix (print . "/") $file) (and (ne $fixed $file) (hasPrefix $fixed (print . "/"))) }}{{ $found = true }}{{ end -}}
  {{- end -}}
  {{- $folder := ternary (dir $file) (dir (print $fixed "x")) (eq $fixed $file) -}}
  {{- if $found -}}
  {{- else if eq $path "config.signing.keyFile" -}}
    {{- printf "\n%s: no volume of the pod has %s: write /etc/forcefence-signing/key.pem, which `forcefence proof keys --new` makes" $path $file -}}
  {{- else if hasPrefix "config.recording." $path -}}
    {{- printf "\n%s: no volume of the pod has %s: add one to controller.extraVolumes, and to controller.extraVolumeMounts {name: NAME, mountPath: %s}" $path $file $folder -}}
  {{- else -}}
    {{- printf "\n%s: no volume of the pod has %s: add to extraSecrets {name: %s, mountPath: %s}%s" $path $file (base $folder) $folder
      (ternary (printf ", or write /etc/forcefence-bmc/%s, a key of the Secret %s" (base $file) $.Values.bmcSecret) "" (eq $fixed $file)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The files that a part of the configuration names, each as PATH, tab, FILE and a new line. (list PATH VALUE) */}}
{{- define "forcefence.files" -}}
{{- $path := index . 0 -}}{{- $value := index . 1 -}}
{{- if kindIs "map" $value -}}
  {{- range $key, $v := $value }}{{ include "forcefence.files" (list (printf "%s.%s" $path $key) $v) }}{{ end -}}
{{- else if kindIs "slice" $value -}}
  {{- range $i, $v := $value }}{{ include "forcefence.files" (list (printf "%s[%d]" $path $i) $v) }}{{ end -}}
{{- else if and (regexMatch "(File|[.]file|[.]kubeconfig)$" $path) (hasPrefix "/" (toString $value)) -}}
  {{- printf "%s\t%s\n" $path $value -}}
{{- end -}}
{{- end }}

{{/* Of ports, Services, the Ingress and the monitors. */}}
{{- define "forcefence.portFaults" -}}
{{- $values := .Values -}}{{- $listen := .Values.config.listen -}}
{{- $listeners := include "forcefence.listeners" . | fromJson -}}
{{- range $i, $port := .Values.controller.hostPorts -}}
  {{- if and $values.controller.hostNetwork (ne (toString $port.containerPort) (toString $port.hostPort)) -}}
    {{- printf "\ncontroller.hostPorts[%d]: with hostNetwork the node has the container's port: remove it" $i -}}
  {{- end -}}
{{- end -}}
{{- if and $values.service.status.enabled (not $listeners.status) -}}
  {{- print "\nservice.status.enabled: the page is off, or listens on loopback alone: set config.listen.status, statusCertFile and statusKeyFile" -}}
{{- end -}}
{{- if ne (empty $listen.statusCertFile) (empty $listen.statusKeyFile) -}}
  {{- print "\nconfig.listen.status: statusCertFile and statusKeyFile go together" -}}
{{- else if and $listeners.status (not $listen.statusCertFile) -}}
  {{- print "\nconfig.listen.status: would send users' tokens over the network unencrypted: set statusCertFile and statusKeyFile, or listen on 127.0.0.1 (for kubectl port-forward)" -}}
{{- end -}}
{{- if and $values.service.events.enabled (not $listeners.events) -}}
  {{- print "\nservice.events.enabled: no provider listens for events: set push of redfish" -}}
{{- end -}}
{{- if and $values.ingress.enabled (not $values.service.status.enabled) -}}
  {{- print "\ningress.enabled: leads to the page's Service: set service.status.enabled, too" -}}
{{- end -}}
{{- if and $values.ingress.enabled (not $values.ingress.hosts) -}}
  {{- print "\ningress.hosts: missing: the names in the page's certificate, such as forcefence.example.net" -}}
{{- end -}}
{{- range $name := list "podMonitor" "serviceMonitor" -}}
  {{- $monitor := get $values.metrics $name -}}
  {{- if and $monitor.enabled (include "forcefence.isLoopback" $listen.metrics) -}}
    {{- printf "\nmetrics.%s.enabled: Prometheus cannot reach config.listen.metrics %q: write \":%s\"" $name $listen.metrics (include "forcefence.port" $listen.metrics) -}}
  {{- end -}}
  {{- if and $monitor.interval (gt (include "forcefence.milliseconds" $monitor.scrapeTimeout | float64) (include "forcefence.milliseconds" $monitor.interval | float64)) -}}
    {{- printf "\nmetrics.%s.scrapeTimeout: must be at most the interval, %s: otherwise the Prometheus operator ignores the object" $name $monitor.interval -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Names of alerts that there are not. */}}
{{- define "forcefence.alertFaults" -}}
{{- $known := list -}}
{{- range (.Files.Get "files/forcefence.rules.yaml" | fromYaml).groups }}{{ range .rules }}{{ $known = append $known .alert }}{{ end }}{{ end -}}
{{- range $key := list "disabled" "customRules" -}}
  {{- range $alert, $_ := get $.Values.metrics.prometheusRule $key -}}
    {{- if not (has $alert $known) -}}
      {{- printf "\nmetrics.prometheusRule.%s.%s: no such alert: known are %s" $key $alert ($known | join ", ") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
