package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
)

// device is a provider type whose instances note what happens to them.
type device struct {
	Fails bool `yaml:"fails"`

	made *[]*instance
}

func (*device) Validate() []providers.Problem { return nil }

func (d *device) New(o providers.Options) (providers.Provider, error) {
	if d.Fails {
		return nil, errors.New("no such library")
	}
	i := &instance{name: o.Name}
	*d.made = append(*d.made, i)
	return i, nil
}

type instance struct {
	name string

	mu     sync.Mutex // guards closed and asked
	closed int
	asked  []providers.Target
}

func (i *instance) State(_ context.Context, t providers.Target) (providers.Observation, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = append(i.asked, t)
	return providers.Observation{State: providers.PowerOn, At: providers.Now()}, nil
}
func (*instance) PowerOff(context.Context, providers.Target, func() error) error { return nil }
func (*instance) PowerOn(context.Context, providers.Target, func() error) error  { return nil }

// DeviceOf is not the ID: none may be taken for the other.
func (*instance) DeviceOf(t providers.Target) string {
	return "shelf of " + cmp.Or(t.ID, t.SystemUUID)
}

func (i *instance) Close(context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed++
	return nil
}

func (i *instance) state() (closed, asked int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed, len(i.asked)
}

// watching is an instance whose devices push.
type watching struct{ *instance }

func (watching) Watch(context.Context, []providers.Target, func(providers.Target, providers.Observation)) error {
	return nil
}

type pushing struct{ device }

func (p *pushing) New(o providers.Options) (providers.Provider, error) {
	i, err := p.device.New(o)
	if err != nil {
		return nil, err
	}
	return watching{i.(*instance)}, nil
}

func aNode(name, uuid string, labels ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, l := range labels {
		n.Labels[l] = ""
	}
	n.Status.NodeInfo.SystemUUID = uuid
	return n
}

// rules is configs over a file, and what was made of it.
type rules struct {
	t     *testing.T
	p     *configs
	types providers.Registry
	made  []*instance
}

func newRules(t *testing.T) *rules {
	t.Helper()
	r := &rules{t: t}
	r.types = providers.Registry{
		{Name: "device", NewConfig: func() providers.Config { return &device{made: &r.made} }},
		{Name: "pushing", NewConfig: func() providers.Config { return &pushing{device{made: &r.made}} }},
	}
	p, err := newConfigs(Options{Log: slog.New(slog.DiscardHandler), Namespace: "home"}, prometheus.NewRegistry(),
		listedNodes(nil))
	if err != nil {
		t.Fatal(err)
	}
	r.p = p
	return r
}

func (r *rules) parse(text string) *config.Config {
	r.t.Helper()
	cfg, err := config.Parse("config.yaml", []byte(text), r.types)
	if err != nil {
		r.t.Fatal(err)
	}
	return cfg
}

func (r *rules) use(text string) {
	r.t.Helper()
	if err := r.p.applyConfig(r.parse(text)); err != nil {
		r.t.Fatal(err)
	}
}

// clashes reports whether a node's machine is refused because another is led to the same.
func clashes(m machine.Machine, _ error) bool { return m.Clash.Refused != "" }

const twoProviders = `
mode: %s
manualMarks: %s
evictFirst: tier=storage
powerOffAfter: 70s
powerOffTimeout: 40s
detachTimeout: 3m
providers:
- name: racks
  device: {}
- name: virt
  pushing: {}
nodes:
- name: own-word
  selector: pool=a
  provider: racks
  %s
  machine: {from: systemUUID}
- name: listed
  provider: virt
  machine: {from: list, list: [{node: n2, id: shelf-2}]}
`

// A rule's own mode wins over the file's, both ways; a rule without one has the file's.
func TestModeOfTheRule(t *testing.T) {
	for _, tc := range []struct {
		file, rule   string
		want, listed fence.Mode
	}{
		{"observe", "", fence.Observe, fence.Observe},
		{"observe", "mode: observe", fence.Observe, fence.Observe},
		{"observe", "mode: fence", fence.Fence, fence.Observe},
		{"fence", "", fence.Fence, fence.Fence},
		{"fence", "mode: observe", fence.Observe, fence.Fence},
		{"fence", "mode: fence", fence.Fence, fence.Fence},
	} {
		t.Run(fmt.Sprintf("file %s, rule %q", tc.file, tc.rule), func(t *testing.T) {
			r := newRules(t)
			defer r.p.providers.closeAll()
			r.use(fmt.Sprintf(twoProviders, tc.file, "refuse", tc.rule))
			n1, n2 := aNode("n1", "4c4c4544-0042-3510-8053-b4c04f383831"),
				aNode("n2", "4c4c4544-0042-3510-8053-b4c04f383832")
			n1.Labels["pool"] = "a"
			feedNodes(r.p, n1, n2)
			for node, want := range map[*corev1.Node]fence.Mode{&n1: tc.want, &n2: tc.listed} {
				if c := r.p.activeConfig().Mode(node); c.Mode != want {
					t.Errorf("%s: got mode %s, want %s", node.Name, c.Mode, want)
				}
				node.Annotations = map[string]string{fence.ModeAnnotation: "shadow"}
				if c := r.p.activeConfig().Mode(node); c.Mode != fence.Shadow {
					t.Errorf("%s, annotated: got mode %s, want shadow", node.Name, c.Mode)
				}
			}
		})
	}
}

// feeding is a device that gives machines their power.
type feeding struct{ device }

func (f *feeding) New(o providers.Options) (providers.Provider, error) {
	i, err := f.device.New(o)
	if err != nil {
		return nil, err
	}
	return struct {
		*instance
		providers.Feeder
	}{instance: i.(*instance)}, nil
}

// The further devices of a node arrive with the first, or without it, each with its own provider, and with who else has
// it.
func TestFurtherDevices(t *testing.T) {
	r := newRules(t)
	defer r.p.providers.closeAll()
	r.types = append(r.types,
		providers.Type{Name: "feeding", NewConfig: func() providers.Config { return &feeding{device{made: &r.made}} }})
	r.use(`
mode: fence
providers: [{name: racks, device: {}}, {name: pdus, feeding: {}}, {name: virt, pushing: {}}]
nodes:
- name: all
  provider: racks
  machine: {from: systemUUID}
  levels:
  - devices: [{provider: pdus, machine: {from: list, list: [{node: n1, id: outlet-1}, {node: n3, id: shared}]}}]
  - devices:
    - provider: virt
      machine: {from: template, template: "{label:node-restriction.kubernetes.io/vm}"}
`)
	n1, n2, n3 := aNode("n1", "4c4c4544-0042-3510-8053-b4c04f383831"), aNode("n2", ""),
		aNode("n3", "4c4c4544-0042-3510-8053-b4c04f383833")
	for n, vm := range map[*corev1.Node]string{&n1: "vm-1", &n2: "vm", &n3: "vm"} {
		n.Labels["node-restriction.kubernetes.io/vm"] = vm
	}
	feedNodes(r.p, n1, n2, n3)
	names := func(m machine.Machine) (out []string) {
		for _, d := range m.Devices() {
			refused := ""
			if d.Clash.Refused != "" {
				refused = " refused"
			}
			out = append(out,
				fmt.Sprintf("%s %s feeds %v watched %v%s", d.Name, d.Device, d.Feeds, d.Watcher != nil, refused))
		}
		return out
	}
	for _, tc := range []struct {
		node *corev1.Node
		want []string
		err  bool
	}{
		{&n1, []string{"racks racks/shelf of " + n1.Status.NodeInfo.SystemUUID + " feeds false watched false",
			"pdus pdus/shelf of outlet-1 feeds true watched false", "virt virt/shelf of vm-1 feeds false watched true"},
			false},
		{&n2, []string{"virt virt/shelf of vm feeds false watched true refused"}, true},
		{&n3, []string{"racks racks/shelf of " + n3.Status.NodeInfo.SystemUUID + " feeds false watched false",
			"pdus pdus/shelf of shared feeds true watched false",
			"virt virt/shelf of vm feeds false watched true refused"}, false},
	} {
		m, err := r.p.activeConfig().Machines.Led(tc.node)
		if got := names(m); !slices.Equal(got, tc.want) || (err != nil) != tc.err {
			t.Errorf("%s: got %q, error %v\nwant %q", tc.node.Name, got, err, tc.want)
		}
	}
	// Each is asked by its own provider.
	m, _ := r.p.activeConfig().Machines.Led(&n1)
	m.AskDevices(t.Context(), nobodyLies, providers.Now)
	for i, inst := range r.made {
		if _, asked := inst.state(); asked != 1 || inst.asked[0].Node != "n1" ||
			inst.asked[0].ID != []string{"", "outlet-1", "vm-1"}[i] {
			t.Errorf("provider %s was asked %+v", inst.name, inst.asked)
		}
	}
}

// A mode that the configuration has and the code behind it does not know does nothing: it must not pass for observe.
func TestUnknownMode(t *testing.T) {
	r := newRules(t)
	defer r.p.providers.closeAll()
	cfg := r.parse(fmt.Sprintf(twoProviders, "fence", "refuse", ""))
	cfg.Mode, cfg.Nodes[1].Mode = "pause", ""
	if err := r.p.applyConfig(cfg); err != nil {
		t.Fatal(err)
	}
	n2 := aNode("n2", "4c4c4544-0042-3510-8053-b4c04f383832")
	feedNodes(r.p, n2)
	if c := r.p.activeConfig().Mode(&n2); c.Mode != fence.Disabled {
		t.Errorf("got mode %s of an unknown word, want disabled", c.Mode)
	}
}

// What the file says arrives where it is meant to.
func TestPolicyIsTheFile(t *testing.T) {
	r := newRules(t)
	defer r.p.providers.closeAll()
	n1, n2 := aNode("n1", "4c4c4544-0042-3510-8053-b4c04f383831"), aNode("n2", "4c4c4544-0042-3510-8053-b4c04f383832")
	n1.Labels["pool"] = "a"
	feedNodes(r.p, n1, n2)
	for _, tc := range []struct {
		marks string
		trust bool
	}{{"refuse", false}, {"trust", true}} {
		r.use(fmt.Sprintf(twoProviders, "fence", tc.marks, ""))
		p := r.p.activeConfig()
		if got := p.Fence; got.PowerOffAfter != 70*time.Second || got.PowerOffTimeout != 40*time.Second ||
			got.Retry <= got.PowerOffTimeout {
			t.Errorf("fence settings: got %+v", got)
		}
		if got := p.Evict; got.DetachTimeout != 3*time.Minute || got.TrustPerson != tc.trust {
			t.Errorf("evict settings: got %+v, want trust %v", got, tc.trust)
		}
		if p.EvictFirst.String() != "tier=storage" {
			t.Errorf("evict first: got %s", p.EvictFirst)
		}
		for node, want := range map[*corev1.Node]machine.Machine{
			&n1: {Name: "racks", Device: "racks/shelf of " + n1.Status.NodeInfo.SystemUUID},
			&n2: {Name: "virt", Device: "virt/shelf of shelf-2", Target: providers.Target{ID: "shelf-2"}},
		} {
			m, err := p.Machines.Led(node)
			if err != nil || m.Name != want.Name || m.Device != want.Device || m.Target.Node != node.Name ||
				m.Target.ID != want.Target.ID ||
				m.Target.SystemUUID != node.Status.NodeInfo.SystemUUID || (m.Watcher != nil) != (want.Name == "virt") {
				t.Errorf("%s: got %+v, error %v", node.Name, m, err)
				continue
			}
			inst := r.made[len(r.made)-2]
			if want.Name == "virt" {
				inst = r.made[len(r.made)-1]
			}
			_, before := inst.state()
			if _, err := m.Provider.State(t.Context(), m.Target); err != nil {
				t.Error(err)
			}
			if _, after := inst.state(); inst.name != want.Name || after != before+1 {
				t.Errorf("%s: its provider %s was not asked", node.Name, inst.name)
			}
		}
	}
	if r.p.activeConfig().Fence.VMHosts {
		t.Error("hosts of KubeVirt are powered off, and the file does not say so")
	}
	if cordoned := r.p.activeConfig().Fence.Cordoned; cordoned {
		t.Error("cordoned nodes are kept on, and the file does not say so")
	}
	if got := r.p.activeConfig().Exclusions; got.Pause.String() != "home/forcefence-pause" || got.Leases != "" {
		t.Errorf("elsewhere: got %+v", got)
	}
	r.use(fmt.Sprintf("excludeCordoned: true\nstormGuard: {kubeVirtHosts: powerOff}\nmaintenanceLeases: ops\n"+
		twoProviders, "fence", "refuse", ""))
	if got := r.p.activeConfig().Exclusions; got.Leases != "ops" {
		t.Errorf("elsewhere: got %+v, want what the file says", got)
	}
	if !r.p.activeConfig().Fence.VMHosts {
		t.Error("hosts of KubeVirt are not powered off, and the file says so")
	}
	if !r.p.activeConfig().Fence.Cordoned {
		t.Error("cordoned nodes are not kept on, and the file says so")
	}
	out := aNode("out", "", config.DefaultExclude)
	if p := r.p.activeConfig(); p.Excluded(&out) == "" || p.Excluded(&n1) != "" {
		t.Errorf("excluded: got %q and %q, want a reason for the first", p.Excluded(&out), p.Excluded(&n1))
	}
}

// Two nodes that are led to one machine have none, in either spelling of it, and have one again when the other is gone.
func TestClashComesAndGoes(t *testing.T) {
	r := newRules(t)
	defer r.p.providers.closeAll()
	r.use("providers: [{name: racks, device: {}}]\nnodes: [{name: all, provider: racks, machine: {from: systemUUID}}]")
	a, twin := aNode("a", "4c4c4544-0042-3510-8053-b4c04f383831"), aNode("twin", "44454C4C-4200-1035-8053-B4C04F383831")
	other := aNode("other", "4c4c4544-0042-3510-8053-b4c04f383832")
	check := func(what string, want bool) {
		t.Helper()
		if m, err := r.p.activeConfig().Machines.Led(&a); clashes(m, err) != want || err != nil && !want {
			t.Errorf("%s: got %q, error %v, want a clash: %v", what, m.Name, err, want)
		}
		if m, err := r.p.activeConfig().Machines.Led(&other); clashes(m, err) || err != nil {
			t.Errorf("%s: the node beside them: got %q, error %v", what, m.Name, err)
		}
	}
	feedNodes(r.p, a, other)
	check("alone", false)
	feedNodes(r.p, a, other, twin)
	check("a twin", true)
	check("a twin, still", true)
	feedNodes(r.p, a, other)
	check("the twin is gone", false)
}

// A reload makes new providers for changed entries, keeps the old ones open until no question to them is under way, and
// keeps the old policy where the new one cannot be made. A provider that did not change stays: it knows which password
// was refused.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRules(t)
		const file = "mode: %s\nproviders: [{name: one, timeout: %s, device: {}}, {name: two, device: {fails: %v}}, " +
			"{name: three, device: {}}]\n" +
			"nodes: [{name: all, provider: one, machine: {from: systemUUID}}]"
		r.use(fmt.Sprintf(file, "observe", "5s", false))
		n := aNode("a", "4c4c4544-0042-3510-8053-b4c04f383831")
		feedNodes(r.p, n)
		mode := func() fence.Mode { return r.p.activeConfig().Mode(&n).Mode }
		closed := func() (n []int) {
			synctest.Wait()
			for _, i := range r.made {
				c, _ := i.state()
				n = append(n, c)
			}
			return n
		}
		if mode() != fence.Observe || len(r.made) != 3 {
			t.Fatalf("at first: got mode %d, %d providers", mode(), len(r.made))
		}
		r.p.applyChange(r.parse(fmt.Sprintf(file, "observe", "5s", false)))
		if len(r.made) != 3 {
			t.Errorf("the same file again: got %d providers, want the three", len(r.made))
		}

		var reported []string
		r.p.report = func(why reason.Reason, words ...string) {
			reported = append(reported, reason.RowOf(why).EventNote(words...))
		}
		r.p.applyChange(r.parse(fmt.Sprintf(file, "fence", "4s", true)))
		if len(reported) != 1 ||
			!strings.Contains(reported[0], "the previous one stays in force: making provider two: ") {
			t.Errorf("a provider that cannot be made: reported %q, want it once, with the cause", reported)
		}
		if mode() != fence.Observe || testutil.ToFloat64(r.p.lastReloadOK) != 0 ||
			testutil.ToFloat64(r.p.reloads.WithLabelValues("refused")) != 1 {
			t.Errorf("a provider that cannot be made: got mode %d, metric %v", mode(),
				testutil.ToFloat64(r.p.lastReloadOK))
		}
		if got := r.p.rejectedReason(); !strings.HasPrefix(got, "making provider two: ") {
			t.Errorf("a provider that cannot be made: rejected because of %q, want the cause", got)
		}
		if got := closed(); !slices.Equal(got, []int{0, 0, 0, 1}) {
			t.Errorf("closed after it: got %v, want the one that was made in vain", got)
		}

		r.p.applyChange(r.parse(fmt.Sprintf(file, "fence", "4s", false)))
		if len(reported) != 1 {
			t.Errorf("a good file: reported %q", reported[1:])
		}
		if got := r.p.rejectedReason(); got != "" {
			t.Errorf("a good file: rejected because of %q", got)
		}
		if mode() != fence.Fence || testutil.ToFloat64(r.p.lastReloadOK) != 1 ||
			testutil.ToFloat64(r.p.reloads.WithLabelValues("ok")) != 1 {
			t.Errorf("a good file: got mode %d, metric %v", mode(), testutil.ToFloat64(r.p.lastReloadOK))
		}
		time.Sleep(closeDelay - time.Second)
		if got := closed(); !slices.Equal(got, []int{0, 0, 0, 1, 0}) {
			t.Errorf("closed while questions may be under way: got %v", got)
		}
		time.Sleep(2 * time.Second)
		if got := closed(); !slices.Equal(got, []int{1, 0, 0, 1, 0}) {
			t.Errorf("closed %s after the reload: got %v, want the old one", closeDelay, got)
		}
		if m, err := r.p.activeConfig().Machines.Led(&n); err != nil {
			t.Error(err)
		} else if _, err := m.Provider.State(t.Context(), m.Target); err != nil {
			t.Errorf("the provider in force: %v", err)
		}
		r.p.applyChange(r.parse(fmt.Sprintf(file, "observe", "4s", false)))
		r.p.providers.closeAll()
		if got := closed(); !slices.Equal(got, []int{1, 1, 1, 1, 1}) {
			t.Errorf("closed at the end: got %v, want all", got)
		}
	})
}

// nobodyLies is a fleet without a record that distrusts a device.
func nobodyLies(machine.Machine) string { return "" }

// The leader's Lease says which configuration is in force, and since when. A new leader keeps the same file's time.
func TestLeaseNamesConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRules(t)
		const file = "mode: %s\nproviders: [{name: one, device: {}}]\n" +
			"nodes: [{name: all, provider: one, machine: {from: systemUUID}}]"
		r.use(fmt.Sprintf(file, "observe"))
		changes := 0
		r.p.changed = func() { changes++ }
		began := time.Now().UTC().Truncate(time.Second)
		digest := r.p.activeFile().Digest()
		earlier := began.Add(-time.Hour).Format(time.RFC3339)
		for _, tt := range []struct {
			name        string
			has         map[string]string
			since, kept string
		}{
			{"no leader before", map[string]string{}, began.Format(time.RFC3339), ""},
			{"another file before", map[string]string{ConfigDigestAnnotation: "x", ConfigSinceAnnotation: earlier},
				began.Format(time.RFC3339), ""},
			{"a time that cannot be read", map[string]string{ConfigDigestAnnotation: digest,
				ConfigSinceAnnotation: "noon"}, began.Format(time.RFC3339), ""},
			{"the same file before", map[string]string{ConfigDigestAnnotation: digest, ConfigSinceAnnotation: earlier,
				"other": "kept"}, earlier, "kept"},
		} {
			r.p.annotateLease(tt.has)
			if tt.has[ConfigDigestAnnotation] != digest || tt.has[ConfigSinceAnnotation] != tt.since ||
				tt.has["other"] != tt.kept || r.p.inForceSince().Format(time.RFC3339) != tt.since {
				t.Errorf("%s: got %v, want since %s", tt.name, tt.has, tt.since)
			}
		}
		time.Sleep(time.Minute)
		r.p.applyChange(r.parse(fmt.Sprintf(file, "observe")))
		if changes != 0 {
			t.Errorf("the same file: reported %d changes, want none", changes)
		}
		r.p.applyChange(r.parse(fmt.Sprintf(file, "fence")))
		if got := r.p.inForceSince().Sub(began); changes != 1 || got < time.Minute || got > time.Minute+time.Second {
			t.Errorf("another file: reported %d changes, in force %s after the first, want 1 and a minute", changes,
				got)
		}
		time.Sleep(2 * closeDelay) // the providers before it are closed
	})
}

func TestReadLeader(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name        string
		ago         time.Duration
		lasts       int32
		leads, late bool
	}{
		{"in time", 10 * time.Second, 15, true, false},
		{"late", 21 * time.Second, 15, true, true},
		{"for a minute", 61 * time.Second, 15, false, false},
		{"a long Lease", 90 * time.Second, 120, true, false},
		{"no duration", 30 * time.Second, 0, true, false},
		{"its clock is ahead", -30 * time.Second, 15, true, false},
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "forcefence",
			Annotations: map[string]string{NamespaceAnnotation: "ns", ConfigDigestAnnotation: "d",
				ConfigSinceAnnotation: now.Format(time.RFC3339), DrilledSinceAnnotation: now.Format(time.RFC3339)}}}
		annotateHeldBack(lease.Annotations, &view.HeldBack{Held: 2, Since: now, By: "ff-1"})
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("ff-1"), &tt.lasts
		lease.Spec.RenewTime = new(metav1.NewMicroTime(now.Add(-tt.ago)))
		got, err := ReadLeader(t.Context(), fake.NewClientBuilder().WithObjects(lease).Build(), now)
		if err != nil || got.Leads != tt.leads || got.Late != tt.late || got.Namespace != "ns" ||
			got.ConfigDigest != "d" || got.ConfigSince == nil || !got.ConfigSince.Equal(now) ||
			got.DrilledSince == nil || !got.DrilledSince.Equal(now) || got.HeldBack == nil || got.HeldBack.Held != 2 ||
			(got.Until != nil) != (tt.lasts > 0) ||
			got.Until != nil && got.Until.Sub(*got.Renewed) != time.Duration(tt.lasts)*time.Second {
			t.Errorf("%s: got %+v, %v, want leads %t, late %t", tt.name, got, err, tt.leads, tt.late)
		}
	}
	got, err := ReadLeader(t.Context(), fake.NewClientBuilder().Build(), now)
	if err != nil || *got != (view.Leader{}) {
		t.Errorf("no Lease: got %+v, %v, want the zero value", got, err)
	}
}

// A leader publishes the age of its drills once it has asked the devices of every node, and takes back that of the
// leader before it.
func TestAnnotateDrills(t *testing.T) {
	var since time.Time
	a := map[string]string{DrilledSinceAnnotation: "2026-03-01T12:00:00Z"}
	annotateDrills(a, func() time.Time { return since })
	if len(a) != 0 {
		t.Errorf("not every node was asked: got %v", a)
	}
	since = time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)
	annotateDrills(a, func() time.Time { return since })
	if a[DrilledSinceAnnotation] != "2026-03-01T13:00:00Z" {
		t.Errorf("every node was asked: got %v", a)
	}
}

// A leader takes back what its storm guard does not hold back any more, and what the leader before it held back.
func TestAnnotateHeldBack(t *testing.T) {
	a := map[string]string{HeldBackAnnotation: `{"held":3}`}
	annotateHeldBack(a, &view.HeldBack{Held: 2, By: "ff-1"})
	if !strings.Contains(a[HeldBackAnnotation], `"held":2`) {
		t.Errorf("two nodes are held back: got %v", a)
	}
	if annotateHeldBack(a, nil); len(a) != 0 {
		t.Errorf("none is held back: got %v, want no annotation", a)
	}
}
