package kubevirt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// question is what the looks of one question have found so far.
type question struct {
	hosts map[string]host // at the first look that read them
	alive map[string]bool // pods, by UID, with a container whose end had not been reported at an earlier look
}

// verdict is what a look proves. soon reports that another look may prove an Off.
type verdict struct {
	state providers.PowerState
	raw   string
	soon  bool
}

// judge maps what a look found. Off is returned nowhere else. It is a live kubelet's word about every container of
// every launcher pod that the API server's list and the instance name.
func (q *question) judge(l look) verdict {
	if l.vmi == nil {
		return unknown("no instance; KubeVirt shows " + cmp.Or(l.vm.Status.PrintableStatus, "no status"))
	}
	phase := l.vmi.Status.Phase
	if !slices.Contains(phases, phase) {
		return unknown(cmp.Or(phase, "no phase"))
	}
	if why := l.findMissing(); why != "" {
		return unknown(phase + ", but " + why)
	}
	v := q.judgePods(l)
	q.remember(l)
	return v
}

// phases are the words of KubeVirt whose meaning for its pods is known. A machine in WaitingForSync may run in another
// cluster.
var phases = []string{"Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed"}

func unknown(raw string) verdict { return verdict{raw: raw} }

// findMissing returns which launcher pod of the instance is not in the list; "" if all are. A pod that was deleted by
// force may run on. A pod that is in no list may be in another cluster, to which the machine migrated.
func (l look) findMissing() string {
	s := l.vmi.Status
	var names, hosts []string
	for _, p := range l.pods {
		names, hosts = append(names, p.Metadata.Name), append(hosts, p.Spec.NodeName)
	}
	if len(s.ActivePods) == 0 {
		return "it names no launcher pod"
	}
	for uid := range s.ActivePods {
		if !slices.ContainsFunc(l.pods, func(p pod) bool { return p.Metadata.UID == uid }) {
			return "a launcher pod that it names is gone"
		}
	}
	if s.NodeName != "" && !slices.Contains(hosts, s.NodeName) {
		return "it is on " + s.NodeName + ", where no launcher pod is"
	}
	if m := s.MigrationState; m != nil {
		involved := []string{m.SourcePod, m.TargetPod}
		if m.SourceState != nil {
			involved = append(involved, m.SourceState.Pod)
		}
		if m.TargetState != nil {
			involved = append(involved, m.TargetState.Pod)
		}
		for _, name := range involved {
			if name != "" && !slices.Contains(names, name) {
				return "launcher pod " + name + " of its migration is gone"
			}
		}
	}
	return ""
}

// judgePods decides by the pods. One that may still run decides, and of several the one that does most. Without one,
// the current host's kubelet must be alive. No kubelet starts a container of a pod again that has ended.
func (q *question) judgePods(l look) verdict {
	out := verdict{}
	running := false
	for _, p := range l.pods {
		why := p.whyNotEnded()
		if why == "" {
			continue
		}
		v := l.judgeRunning(p, why)
		if !running || weight(v) > weight(out) {
			out = v
		}
		running = true
	}
	if running {
		return out
	}
	var ended []string
	for _, p := range l.pods {
		if why := q.whyUnproven(l, p); why != "" && l.isCurrent(p) {
			return verdict{raw: l.vmi.Status.Phase + ", its launcher pods ended, but " + why, soon: true}
		}
		ended = append(ended, p.Status.Phase+" on "+p.Spec.NodeName)
	}
	slices.Sort(ended)
	return verdict{state: providers.PowerOff, raw: "launcher pods ended: " + strings.Join(slices.Compact(ended), ", ")}
}

// weight orders the verdicts about pods of which at least one may run: On wins.
func weight(v verdict) int {
	return slices.Index([]providers.PowerState{
		providers.PowerUnknown, providers.PowerChanging, providers.PowerOn,
	}, v.state)
}

// judgeRunning decides about a pod that has not ended. What an API object says of a host that is not Ready is old.
func (l look) judgeRunning(p pod, why string) verdict {
	going := p.Metadata.DeletionTimestamp != nil || l.vmi.Metadata.DeletionTimestamp != nil
	phase := l.vmi.Status.Phase
	compute := p.findStatus("compute")
	switch {
	case p.Spec.NodeName == "":
		return verdict{state: providers.PowerChanging, raw: phase + ", a launcher pod has no host yet"}
	case l.hosts[p.Spec.NodeName].ready != "True":
		return unknown(phase + ", but its host " + p.Spec.NodeName + " is not Ready")
	case going:
		return verdict{state: providers.PowerChanging, raw: phase + ", being stopped: " + why, soon: true}
	case p.Status.Phase == "Pending", phase == "Pending", phase == "Scheduling":
		return verdict{state: providers.PowerChanging, raw: phase + ", starting on " + p.Spec.NodeName}
	case compute != nil && compute.State.Running != nil:
		return verdict{state: providers.PowerOn, raw: phase + " on " + p.Spec.NodeName}
	}
	return unknown(phase + ", but " + why)
}

// whyUnproven returns why the end of a pod is not yet a live kubelet's word; "" if it is. The kubelet must have renewed
// its Lease since the question's first look, or have reported the pod's end since then. Clocks are not compared: it is
// enough that the kubelet's own time went on.
func (q *question) whyUnproven(l look, p pod) string {
	name := p.Spec.NodeName
	now, first := l.hosts[name], q.hosts[name]
	switch {
	case now.bootID == "" || now.renewed.IsZero():
		return name + " has no Node with a boot id, or no Lease"
	case first == (host{}):
		return name + " has not renewed its Lease yet"
	case now.bootID != first.bootID || now.uid != first.uid:
		return name + " was started meanwhile"
	case !now.renewed.After(first.renewed) && !q.alive[p.Metadata.UID]:
		return name + " has not renewed its Lease yet"
	}
	return ""
}

// remember keeps what later looks are compared with.
func (q *question) remember(l look) {
	if q.hosts == nil {
		q.hosts, q.alive = map[string]host{}, map[string]bool{}
	}
	for name, h := range l.hosts {
		if _, seen := q.hosts[name]; !seen && h != (host{}) {
			q.hosts[name] = h
		}
	}
	for _, p := range l.pods {
		if p.findOpen() != "" {
			q.alive[p.Metadata.UID] = true
		}
	}
}

// whyNotEnded returns why something of a pod may still run; "" if its kubelet reported the end of every container. It
// may not start one again.
func (p pod) whyNotEnded() string {
	switch open := p.findOpen(); {
	case p.Metadata.UID == "" || p.Spec.NodeName == "":
		return "a launcher pod has no UID or no host"
	case p.findStatus("compute") == nil: // where QEMU runs
		return "a launcher pod has no container compute"
	case p.Spec.RestartPolicy != "Never":
		return fmt.Sprintf("a launcher pod has restartPolicy %.20s", p.Spec.RestartPolicy)
	case open != "":
		return fmt.Sprintf("container %.40s has not ended", open)
	}
	for _, c := range p.allStatuses() {
		if end := c.State.Terminated; end.ExitCode == nil || *end.ExitCode == lostExitCode || end.ContainerID == "" ||
			end.Reason == "ContainerStatusUnknown" || end.Reason == "Unknown" {
			return fmt.Sprintf("the host lost sight of container %.40s", c.Name)
		}
	}
	if phase := p.Status.Phase; phase != "Succeeded" && phase != "Failed" {
		return fmt.Sprintf("a launcher pod is %.20s", phase)
	}
	return ""
}

func (p pod) allStatuses() []containerStatus {
	s := p.Status
	return slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses)
}

// findOpen returns a container whose end its kubelet has not reported; "" if there is none.
func (p pod) findOpen() string {
	statuses := p.allStatuses()
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers, p.Spec.EphemeralContainers) {
		if !slices.ContainsFunc(statuses, func(s containerStatus) bool { return s.Name == c.Name }) {
			return cmp.Or(c.Name, "without a name")
		}
	}
	for _, s := range statuses {
		if s.State.Running != nil || s.State.Terminated == nil {
			return cmp.Or(s.Name, "without a name")
		}
	}
	return ""
}

// lostExitCode is the exit code that containerd invents for a container whose end it did not see: its processes may run
// on. A kubelet that does not find a container any more reports ContainerStatusUnknown.
const lostExitCode = 255

func (p pod) findStatus(container string) *containerStatus {
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(c containerStatus) bool { return c.Name == container })
	if i < 0 {
		return nil
	}
	return &p.Status.ContainerStatuses[i]
}
