package drainguard

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
)

// An operator's policy holds on its node until its time, and ends by itself. What cannot be read changes nothing.
func TestOperatorsPolicy(t *testing.T) {
	w := newWorld(t, drain.BlockIfLast, "a", "b")
	for _, node := range []string{"a", "b"} {
		w.copy("v", node, true)
	}
	w.until("budgets before both", func() bool { return w.guarded() == "a b" })
	name := func(node string) string { return w.ns + "-" + node }
	set := func(node, policy string, lasts time.Duration) {
		w.policies = map[string]string{
			node: drain.Override{Policy: drain.Policy(policy), Until: w.k.Now().Add(lasts)}.Text()}
		w.later += 2 * resync // reads are that far apart
	}

	set(name("a"), string(drain.BlockForEviction), time.Hour)
	w.cordon("a", true)
	w.until("its copy is asked to leave a", func() bool { w.refresh(); return w.asked() == "v-a" })
	w.until("the Node has the operator's policy", func() bool {
		p := w.progress("a", "disks")
		return p != nil && p.Policy == drain.BlockForEviction
	})
	w.later += 2 * time.Hour
	w.until("the configuration's policy holds again, and takes the request back",
		func() bool { w.refresh(); return w.asked() == "" && w.guarded() == "b" })
	w.cordon("a", false)
	w.until("a budget again", func() bool { return w.guarded() == "a b" })

	set(drain.AllNodes, string(drain.AlwaysAllow), time.Hour)
	w.until("no budget anywhere", func() bool { return w.guarded() == "" })
	w.unread = apierrors.NewServiceUnavailable("away")
	w.later += 2 * resync
	w.passes()
	if got := w.guarded(); got != "" {
		t.Errorf("what was read before still holds: got budgets before %q, want none", got)
	}
	w.later += 2 * time.Hour
	w.until("it ends although nothing can be read", func() bool { return w.guarded() == "a b" })

	set(name("a"), "allways-allow", time.Hour)
	w.unread = nil
	w.cordon("a", true)
	w.until("an unknown policy holds the drain up", func() bool {
		p := w.progress("a", "disks")
		return p != nil && p.Summary() == `volume v, replica v-a: unknown policy "allways-allow"`
	})

	// A guard that the configuration does not have any more stays removed.
	set(drain.AllNodes, string(drain.BlockForEviction), time.Hour)
	w.guards = nil
	w.until("its budgets go", func() bool { return w.guarded() == "" })
}

// Until the operators' policies were read once, nothing is decided: one may protect more than the configuration's.
func TestOperatorsPolicyUnread(t *testing.T) {
	w := newWorld(t, drain.AlwaysAllow, "a", "b")
	w.copy("v", "a", true)
	w.policies = map[string]string{drain.AllNodes: string(drain.BlockIfLast)}
	w.until("budgets before both", func() bool { return w.guarded() == "a b" })
	w.k.overrides, w.k.overridesRead = nil, time.Time{} // as in a new process
	w.unread = errors.New("away")
	w.passes()
	if got := w.guarded(); got != "a b" {
		t.Errorf("nothing is known: got budgets before %q, want both", got)
	}
	w.policies, w.unread = nil,
		apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "forcefence-drain", nil)
	w.until("without the right the configuration's policy holds", func() bool { return w.guarded() == "" })
	if got := w.notes("a")[taint.DrainAnnotation]; got != "" {
		t.Errorf("nothing holds its drain up: got %s", got)
	}
}

// A right that is taken away drops no policy that was read: each ends at its own time. Deleting the ConfigMap drops
// all, because that is an operator's decision.
func TestOperatorsPolicyOutlivesTheRight(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "forcefence-drain", nil)
	w := newWorld(t, drain.AlwaysAllow, "a", "b")
	w.copy("v", "a", true)
	w.policies = map[string]string{
		drain.AllNodes: string(drain.BlockIfLast),
		w.ns + "-a":    drain.Override{Policy: drain.BlockIfLast, Until: w.k.Now().Add(time.Hour)}.Text(),
	}
	w.until("budgets before both", func() bool { return w.guarded() == "a b" })
	w.policies, w.unread = nil, forbidden
	w.later += 2 * resync
	w.passes()
	if got := w.guarded(); got != "a b" {
		t.Errorf("the right is gone: got budgets before %q, want both, as before", got)
	}
	if got := w.k.warned["\nCannot read the policies of nodes"]; !strings.Contains(got, "Role forcefence-pause") {
		t.Errorf("got the warning %q, want it to name the Role", got)
	}
	w.policies, w.unread = map[string]string{
		drain.AllNodes: drain.Override{Policy: drain.BlockIfLast, Until: w.k.Now().Add(time.Hour)}.Text()}, nil
	w.later += 2 * resync
	w.passes()
	w.unread = forbidden
	w.later += 2 * time.Hour
	w.until("it ends at its time all the same", func() bool { return w.guarded() == "" })

	w.policies, w.unread = map[string]string{drain.AllNodes: string(drain.BlockIfLast)}, nil
	w.later += 2 * resync
	w.until("budgets again", func() bool { w.refresh(); return w.guarded() == "a b" })
	w.policies = nil // as for a ConfigMap that is gone
	w.later += 2 * resync
	w.until("an operator deleted the ConfigMap", func() bool { w.refresh(); return w.guarded() == "" })
}

// For Longhorn the policy of all nodes is written, and after its time the configuration's.
func TestOperatorsPolicyDelegated(t *testing.T) {
	w := newWorld(t, drain.BlockForEviction)
	setting := Setting{Resource: copies, Namespace: w.ns, Name: "policy", Default: drain.BlockIfLast}
	w.guards = []Guarded{{Guard: drain.Guard{Name: "theirs", Policy: drain.AllowIfStopped}, Setting: &setting}}
	w.makeSetting()
	w.until("the configuration's", func() bool { return w.settingValue() == drain.AllowIfStopped })
	for _, p := range []drain.Policy{"no-policy", drain.BlockForEviction} {
		w.policies = map[string]string{
			drain.AllNodes: drain.Override{Policy: p, Until: w.k.Now().Add(time.Hour)}.Text(),
			w.ns + "-a":    string(drain.AlwaysAllow),
		}
		w.later += 2 * resync
		want := p
		if p == "no-policy" { // Longhorn would not know it either
			want = drain.AllowIfStopped
		}
		w.until("the operator's, if it is one", func() bool { return w.settingValue() == want })
	}
	w.policies[drain.AllNodes] = "no-policy"
	w.later += 2 * resync
	w.passes()
	if got := w.settingValue(); got != drain.BlockForEviction {
		t.Errorf("a policy that cannot be read: got %q, want the last known one", got)
	}
	w.later += 2 * time.Hour
	w.until("the configuration's again", func() bool { return w.settingValue() == drain.AllowIfStopped })
}
