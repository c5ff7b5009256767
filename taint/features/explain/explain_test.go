package explain

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

var now = providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

const driver = "csi.example.com"

// world is n1, which is explained, and five healthy nodes. n1 has one BMC, a pod of each kind and one volume.
func world() *Snapshot {
	s := &Snapshot{
		Now: now, Key: taint.DefaultKey, Leases: map[string]*coordinationv1.Lease{},
		LeaseAge: map[string]time.Duration{},
		Volumes:  map[string]*corev1.PersistentVolume{}, CSINodes: map[string]*storagev1.CSINode{},
		Quiet: []bool{false},
		Facts: decide.Facts{
			Facts: fence.Facts{
				Mode:    fence.Fence,
				Devices: []proof.Device{{Name: "racks/bmc", Machine: taint.MachineRef{Provider: "racks", ID: "1"}}},
				Settings: fence.Settings{PowerOffAfter: time.Minute, PowerOffTimeout: time.Minute,
					Retry: 5 * time.Minute},
			},
			Evict: evict.Settings{DetachTimeout: 10 * time.Minute},
		},
	}
	for i := range 6 {
		s.node(fmt.Sprintf("n%d", i+1), 2*time.Second)
	}
	s.Node = s.Nodes[0].DeepCopy()
	s.pod("db-0", "StatefulSet", "2", "pv-0")
	s.pod("web-x", "ReplicaSet", "1")
	s.pod("bare", "", "1")
	s.pod("agent", "DaemonSet", "1").Exempt = taint.ExemptDaemon
	s.pod("proxy", "", "1").Exempt = taint.ExemptStatic
	s.object("proxy").Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	s.pod("patient", "ReplicaSet", "1").Exempt = taint.ExemptTolerate
	s.object("patient").Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for i := range s.Pods {
		if s.Pods[i].Exempt != taint.NotExempt { // Kubernetes' own eviction leaves it alone, too
			s.Pods[i].Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
	}
	s.pod("job-x", "Job", "1").Terminal = true
	s.object("job-x").Status.Phase = corev1.PodSucceeded
	return s
}

func (s *Snapshot) node(name string, silent time.Duration) {
	var n corev1.Node
	n.Name, n.UID, n.ResourceVersion, n.Labels = name, types.UID(name), "7", map[string]string{"name": name}
	n.Status.NodeInfo.BootID = "b"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now.Add(-time.Hour).Wall)}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"),
		"pods": resource.MustParse("10")}
	s.Nodes = append(s.Nodes, n)
	var l coordinationv1.Lease
	l.Name, l.ResourceVersion, l.Spec.LeaseDurationSeconds = name, "9", new(int32(40))
	s.Leases[name], s.LeaseAge[name] = &l, silent
	c := storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Drivers = []storagev1.CSINodeDriver{
		{Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(2))}}}
	s.CSINodes[name] = &c
}

// pod binds a pod to n1, with volumes that are attached.
func (s *Snapshot) pod(name, owner, cpu string, volumes ...string) *action.Pod {
	var o corev1.Pod
	o.Namespace, o.Name, o.UID, o.Spec.NodeName = "ns", name, types.UID(name), "n1"
	if owner != "" {
		o.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: owner, Name: "of-" + name, Controller: new(true)}}
	}
	o.Spec.Containers = []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}
	for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
		o.Spec.Tolerations = append(o.Spec.Tolerations,
			corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(300))})
	}
	for _, pv := range volumes {
		o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim-" + pv}}})
	}
	s.All = append(s.All, o)
	p := action.Pod{Namespace: "ns", Name: name, UID: name, ResourceVersion: "1",
		Owner: action.Owner{Kind: owner, Name: "of-" + name}, Tolerations: o.Spec.Tolerations}
	for _, pv := range volumes {
		unique := corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + pv)
		p.Volumes = append(p.Volumes,
			action.Volume{PV: pv, Claim: "claim-" + pv, Driver: driver, Handle: pv, Unique: unique})
		s.Volumes[pv] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv}}
		s.Volumes[pv].Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
		s.attach("n1", pv)
		s.Attachments = append(s.Attachments,
			action.Attachment{Name: "va-" + pv, UID: "va-" + pv, PV: pv, Attacher: driver})
		s.Node.Status.VolumesInUse = append(s.Node.Status.VolumesInUse, unique)
		s.Node.Status.VolumesAttached = append(s.Node.Status.VolumesAttached, corev1.AttachedVolume{Name: unique})
	}
	s.Pods = append(s.Pods, p)
	return &s.Pods[len(s.Pods)-1]
}

func (s *Snapshot) attach(node, pv string) {
	va := storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-" + node + "-" + pv}}
	va.Spec.NodeName, va.Spec.Attacher, va.Spec.Source.PersistentVolumeName = node, driver, &pv
	s.Attached = append(s.Attached, va)
}

func (s *Snapshot) object(name string) *corev1.Pod {
	for i := range s.All {
		if s.All[i].Name == name {
			return &s.All[i]
		}
	}
	return nil
}

// short is a course in few words: outcome, reason, how many pods move.
func short(c Scenario) string { return fmt.Sprintf("%s %s %d", c.Outcome, c.Reason, len(c.Moved)) }

func TestCourses(t *testing.T) {
	const moves = "moves NodeEvicted 3"
	for name, tt := range map[string]struct {
		set              func(s *Snapshot)
		off, on, unknown string
		text             string // of the course On
	}{
		"fence": {nil, moves, moves, "nothing PowerUnknown 0", ""},
		"observe": {func(s *Snapshot) { s.Facts.Mode = fence.Observe }, moves, "nothing PoweredOnNotReady 0",
			"nothing PowerUnknown 0", "mode observe"},
		"requested": {func(s *Snapshot) {
			s.Facts.Mode, s.Facts.RequestedBy = fence.OnRequest,
				"ForcefenceRemediation ns/n1"
		},
			moves, moves, "nothing PowerUnknown 0", ""},
		"not requested": {func(s *Snapshot) { s.Facts.Mode = fence.OnRequest }, moves, "nothing PoweredOnNotReady 0",
			"nothing PowerUnknown 0", "mode onRequest waits for a request"},
		"shadow": {func(s *Snapshot) { s.Facts.Mode = fence.Shadow }, "tells WouldRecover 0", "tells WouldPowerOff 0",
			"nothing PowerUnknown 0", ""},
		"disabled": {func(s *Snapshot) { s.Facts.Mode, s.Facts.ModeBy = fence.Disabled, "me" },
			"nothing ModeDisabled 0", "nothing ModeDisabled 0", "nothing ModeDisabled 0", "me"},
		"paused": {func(s *Snapshot) { s.Facts.Excluded = "new disk" }, "nothing NodeExcluded 0",
			"nothing NodeExcluded 0", "nothing NodeExcluded 0", "new disk"},
		"a drain": {func(s *Snapshot) { s.Facts.KeptOn = "a drain" }, moves, "nothing PowerOffHeldUp 0",
			"nothing PowerUnknown 0", "a drain"},
		"no machine": {func(s *Snapshot) { s.Facts.Devices, s.Facts.NoDeviceErr = nil, errors.New("no rule") },
			"nothing NoMachine 0", "nothing NoMachine 0", "nothing NoMachine 0", "no rule"},
		"not pinned": {func(s *Snapshot) { s.Facts.Devices[0].NoPower = "never pinned" }, moves,
			"nothing PoweredOnNotReady 0", "nothing PowerUnknown 0", "never pinned"},
		"floor": {func(s *Snapshot) {
			s.Limits = &fleet.Limits{MaxPowerOffs: fleet.Amount{Number: 1}, MinHealthy: fleet.Amount{Number: 6}}
		}, moves, "nothing TooFewHealthy 0", "nothing PowerUnknown 0",
			"1 of 6 nodes of the cluster are not healthy, the floor is 6"},
		"a node that is marked": {func(s *Snapshot) {
			s.Limits = &fleet.Limits{MaxPowerOffs: fleet.Amount{Number: 1}, MinHealthy: fleet.Amount{Number: 5}}
			s.Nodes[3].Spec.Taints = []corev1.Taint{
				{Key: taint.DefaultKey, Value: "by-hand", Effect: corev1.TaintEffectNoSchedule}}
		}, moves, "nothing TooFewHealthy 0", "nothing PowerUnknown 0", "2 of 6"},
		"another's turn": {func(s *Snapshot) {
			r := taint.Record{ID: "f-1", By: "ff", PowerOff: true, NodeUID: "n4", BootID: "b", LeaseRV: "9",
				At: now.Wall, Since: now.Wall, Phase: taint.PhasePoweringOff}
			s.Nodes[3].Annotations = map[string]string{taint.RecordAnnotation: r.Encode()}
		}, moves, "nothing PowerOffLimit 0", "nothing PowerUnknown 0", "n4"},
		"control plane": {func(s *Snapshot) { s.plane("n1", "n2", "n3") }, moves, "nothing ControlPlaneNode 0",
			"nothing PowerUnknown 0", ""},
		"quorum": {func(s *Snapshot) {
			s.plane("n1", "n2", "n3")
			s.Facts.Quorum, s.Members = true, map[string]bool{"n1": true, "n2": false, "n3": true}
		}, moves, "nothing EtcdQuorum 0", "nothing PowerUnknown 0",
			"without it, 1 of etcd's 3 members are healthy; the quorum is 2"},
		"quorum is kept": {func(s *Snapshot) {
			s.plane("n1", "n2", "n3")
			s.Facts.Quorum, s.Members = true, map[string]bool{"n1": true, "n2": true, "n3": true}
		}, moves, moves, "nothing PowerUnknown 0", ""},
		"most are silent": {func(s *Snapshot) {
			for _, n := range []string{"n2", "n3", "n4", "n5"} {
				s.LeaseAge[n] = 5 * time.Minute
			}
		}, moves, "nothing MostLeasesStale 0", "nothing PowerUnknown 0", ""},
		"a device that lied": {func(s *Snapshot) {
			r := taint.Record{
				ID: "f-1", By: "ff", NodeUID: "n1", BootID: "b", LeaseRV: "8", At: now.Wall, Since: now.Wall,
				Phase: taint.PhaseDone, Result: taint.ResultNeverPoweredOff, Device: "racks/bmc",
				Machine: &taint.MachineRef{Provider: "racks", ID: "1"},
			}
			s.Node.Annotations = map[string]string{taint.RecordAnnotation: r.Encode()}
			s.Nodes[0].Annotations = s.Node.Annotations
		}, "nothing DeviceDistrusted 0", "nothing DeviceDistrusted 0", "nothing DeviceDistrusted 0",
			"forcefence release n1 --yes"},
		"nothing to move": {func(s *Snapshot) { s.Pods, s.Attachments = s.Pods[3:], nil }, "nothing NothingToEvict 0",
			"nothing NothingToEvict 0", "nothing NothingToEvict 0", "ns/patient"},
		"two outlets": {func(s *Snapshot) {
			s.Facts.Devices = []proof.Device{{Name: "pdu/a", Feeds: true}, {Name: "pdu/b", Feeds: true}}
			s.Quiet = []bool{false, false}
		}, moves, moves, "nothing PowerUnknown 0", ""},
		"a person alone speaks": {func(s *Snapshot) { s.Quiet = []bool{true} }, moves, "nothing PowerUnknown 0",
			"nothing PowerUnknown 0", ""},
		"it is silent already": {func(s *Snapshot) {
			s.LeaseAge["n1"] = 10 * time.Minute
			for _, n := range []*corev1.Node{s.Node, &s.Nodes[0]} {
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
			}
		}, moves, moves, "nothing PowerUnknown 0", ""},
	} {
		s := world()
		if tt.set != nil {
			tt.set(s)
		}
		r := ReportOf(*s)
		for i, want := range []string{tt.off, tt.on, tt.unknown} {
			if got := short(r.Scenarios[i]); got != want {
				t.Errorf("%s, devices say %s: got %s, want %s: %+v", name, r.Scenarios[i].DeviceState, got, want,
					r.Scenarios[i])
			}
		}
		if on := r.Scenarios[1]; !strings.Contains(on.Text, tt.text) {
			t.Errorf("%s: got %q, want %q in it", name, on.Text, tt.text)
		}
	}
}

func (s *Snapshot) plane(names ...string) {
	for i := range s.Nodes {
		if slices.Contains(names, s.Nodes[i].Name) {
			s.Nodes[i].Labels["node-role.kubernetes.io/control-plane"] = ""
		}
	}
	s.Node.Labels = s.Nodes[0].Labels
}

// The report names steps, times and pods: here of a machine that is on, with two outlets.
func TestCourseIsTold(t *testing.T) {
	s := world()
	s.Facts.Devices = []proof.Device{{Name: "pdu/a", Feeds: true}, {Name: "pdu/b", Feeds: true}}
	s.Quiet = []bool{false, false}
	on := ReportOf(*s).Scenarios[1]
	var told []string
	for _, e := range on.Steps {
		told = append(told, e.Reason+" "+strconv.Itoa(int(e.Seconds)))
	}
	want := []string{"WaitingForGrace 26", "PoweringOff 85", "MachineOff 85", "MachineConfirmedOff 85", "EndingPods 85",
		"ClearingVolumes 85", "DeletingPods 85", "NodeEvicted 85"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if got := strings.Join(on.Through, " "); got != "pdu/a pdu/b" {
		t.Errorf("powered off through %q, want both outlets", got)
	}
	if got := strings.Join(on.Moved, " "); got != "ns/db-0 ns/bare ns/web-x" {
		t.Errorf("moves %q", got)
	}
	if got := strings.Join(on.Detach, " "); got != "pv-0" {
		t.Errorf("detaches %q", got)
	}
	if s.Node.Annotations != nil || len(s.Node.Spec.Taints) > 0 || len(s.Pods) != 7 || s.Pods[0].Tombstone {
		t.Error("the snapshot was changed")
	}
}

// The outlets of a level are switched off one after the other, and the machine runs until all are: its BMC, in the next
// level, says so.
func TestOutletsGoTogether(t *testing.T) {
	s := world()
	s.Facts.Devices = []proof.Device{{Name: "pdu/a", Feeds: true}, {Name: "pdu/b", Feeds: true},
		{Name: "racks/bmc", Level: 1}}
	s.Quiet = []bool{false, false, false}
	if on := ReportOf(*s).Scenarios[1]; strings.Join(on.Through, " ") != "pdu/a pdu/b" || on.Outcome != Moves {
		t.Errorf("got %+v, want both outlets, and that the pods are moved", on)
	}
}

// A fence that is under way continues from its record.
func TestFenceUnderWay(t *testing.T) {
	s := world()
	for _, n := range []*corev1.Node{s.Node, &s.Nodes[0]} {
		r := taint.Record{ID: "f-1", By: "ff", NodeUID: "n1", BootID: "b", LeaseRV: "9", At: now.Wall, Since: now.Wall,
			Phase: taint.PhaseEvicting, Device: "racks/bmc"}
		n.Annotations = map[string]string{taint.RecordAnnotation: r.Encode()}
		n.Spec.Taints = taint.WithMark(nil, taint.DefaultKey, "f-1", now.Wall)
		n.Status.Conditions[0].Status = corev1.ConditionUnknown
	}
	s.LeaseAge["n1"] = 2 * time.Minute
	r := ReportOf(*s)
	if off, mute := short(r.Scenarios[0]), r.Scenarios[2]; off != "moves NodeEvicted 3" || mute.Outcome != Hangs ||
		len(mute.Moved) > 0 {
		t.Errorf("got %s and %+v, want that it ends with a proof, and hangs without", off, mute)
	}
}

func TestStay(t *testing.T) {
	var got []string
	for _, p := range ReportOf(*world()).Stay {
		got = append(got, p.Pod+": "+p.Why)
	}
	want := []string{"ns/job-x: finished", "ns/agent: pod of a DaemonSet",
		"ns/proxy: static pod: it belongs to the node", "ns/patient: tolerates the mark"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A fence finishes the deletion of a pod that has finished, or that tolerates the mark. Neither stays.
func TestUnfinishedDeletions(t *testing.T) {
	s := world()
	var names []string
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Terminal || p.Exempt == taint.ExemptTolerate {
			p.Deleting, p.Grace = true, 30
			names = append(names, podName(*p))
		}
	}
	r := ReportOf(*s)
	for _, name := range names {
		if slices.ContainsFunc(r.Stay, func(o Stay) bool { return o.Pod == name }) {
			t.Errorf("%s stays, want that it is deleted", name)
		}
		if off := r.Scenarios[0]; !slices.Contains(off.Moved, name) {
			t.Errorf("if Off: got %q, want %s in it", off.Moved, name)
		}
	}
	if len(names) != 2 {
		t.Errorf("got pods %q, want two", names)
	}
}

// A policy ends pods where nobody can say that the machine is off: at once, or once Kubernetes' own eviction deleted
// them.
func TestPolicies(t *testing.T) {
	for name, tt := range map[string]struct {
		p    policy.Policy
		want string
	}{
		"at once": {policy.Policy{Owners: []string{"StatefulSet"}, WithoutProof: policy.AcceptDuplicates},
			"50 ns/db-0"},
		"once they are deleted": {
			policy.Policy{Owners: []string{"ReplicaSet", "Deployment"}, Terminating: true,
				WithoutProof: policy.AcceptDuplicates}, "380 ns/web-x"},
		"without a word": {policy.Policy{Owners: []string{"StatefulSet"}}, ""},
		"it yields":      {policy.Policy{Yields: true, WithoutProof: policy.AcceptDuplicates}, ""},
	} {
		s := world()
		tt.p.Name, tt.p.When = "p", policy.NotReady
		s.Facts.Policies, s.Rival = []policy.Policy{tt.p}, "Longhorn does"
		got := ""
		c := ReportOf(*s).Scenarios[2]
		for _, e := range c.Policy {
			if e.Policy != tt.p.String() {
				t.Errorf("%s: got policy %q", name, e.Policy)
			}
			got += fmt.Sprintf("%.0f %s", e.Seconds, strings.Join(e.Pods, ","))
		}
		if got != tt.want || len(c.Moved) > 0 {
			t.Errorf("%s: got %q, want %q: %+v", name, got, tt.want, c)
		}
	}
}

// The reason why policies end nothing is reported once: the storage system's own setting does it, or most other nodes
// are silent, too.
func TestPoliciesThatWait(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(s *Snapshot)
		want reason.Reason
	}{
		"nothing keeps it": {func(*Snapshot) {}, ""},
		"it yields": {func(s *Snapshot) { s.Facts.Policies[0].Yields, s.Rival = true, "Longhorn does" },
			reason.PolicyYields},
		"most are silent": {func(s *Snapshot) {
			for _, n := range []string{"n2", "n3", "n4"} {
				s.LeaseAge[n] = 2 * time.Minute
			}
		}, reason.PolicyWaits},
	} {
		s := world()
		s.Facts.Policies = []policy.Policy{{Name: "p", When: policy.NotReady, WithoutProof: policy.AcceptDuplicates}}
		tt.set(s)
		c := ReportOf(*s).Scenarios[2]
		var got []string
		for _, e := range c.Steps {
			if e.Reason == string(reason.PolicyYields) || e.Reason == string(reason.PolicyWaits) {
				got = append(got, e.Reason)
			}
		}
		switch {
		case tt.want == "" && (len(got) > 0 || len(c.Policy) == 0):
			t.Errorf("%s: got reasons %v, ended %v; want pods ended by the policy", name, got, c.Policy)
		case tt.want != "" && (!slices.Equal(got, []string{string(tt.want)}) || len(c.Policy) > 0):
			t.Errorf("%s: got reasons %v, ended %v; want %s once and no pod ended", name, got, c.Policy, tt.want)
		}
	}
}

// The estimate is package room's: here only what the snapshot hands to it.
func TestReplacements(t *testing.T) {
	const bare = "ns/bare: no controller owns it, so it gets no replacement"
	for name, tt := range map[string]struct {
		set  func(s *Snapshot)
		want []string
	}{
		"room":       {nil, []string{"ns/db-0: n2", "ns/web-x: n2", bare}},
		"other pods": {func(s *Snapshot) { s.other("n2", "1500m") }, []string{"ns/db-0: n2", "ns/web-x: n3", bare}},
		"its volume": {func(s *Snapshot) { s.local("pv-0", "n3") }, []string{"ns/db-0: n3", "ns/web-x: n2", bare}},
		"attachments": {func(s *Snapshot) { s.attach("n2", "a"); s.attach("n2", "b") },
			[]string{"ns/db-0: n3", "ns/web-x: n2", bare}},
		"CSI nodes not read": {func(s *Snapshot) { s.CSINodes = nil; s.attach("n2", "a"); s.attach("n2", "b") },
			[]string{"ns/db-0: n2", "ns/web-x: n2", bare}},
		"drivers": {func(s *Snapshot) { delete(s.CSINodes, "n2") }, []string{"ns/db-0: n3", "ns/web-x: n2", bare}},
		"volume not read": {func(s *Snapshot) { s.Pods[0].Volumes[0].Unread = true },
			[]string{"ns/db-0: n2, unchecked [claim claim-pv-0]", "ns/web-x: n2", bare}},
	} {
		s := world()
		if tt.set != nil {
			tt.set(s)
		}
		var got []string
		for _, r := range ReportOf(*s).Replacements {
			text := r.Pod + ": " + r.Node + r.Why
			if r.Unchecked != nil {
				text += fmt.Sprintf(", unchecked %v", r.Unchecked)
			}
			got = append(got, text)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// other binds a pod to another node.
func (s *Snapshot) other(node, cpu string) *corev1.Pod {
	var o corev1.Pod
	o.Namespace, o.Name, o.Spec.NodeName = "ns", fmt.Sprintf("other-%d", len(s.All)), node
	o.UID = types.UID(o.Name)
	o.Spec.Containers = []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}
	s.All = append(s.All, o)
	return &s.All[len(s.All)-1]
}

func (s *Snapshot) local(pv, node string) {
	s.Volumes[pv].Spec.NodeAffinity = &corev1.VolumeNodeAffinity{
		Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}},
		}}}
}
