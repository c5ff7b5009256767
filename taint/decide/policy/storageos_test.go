package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

var (
	well    = action.Health{Known: true, Healthy: true}
	sick    = action.Health{Known: true, Why: "offline"}
	unknown = action.Health{Why: "not reported"}
)

// fenced is the preset, with a word.
func fenced(word WithoutProof) Policy {
	p, _ := PresetOf("storageos")
	rule := p.Policy
	rule.Name, rule.Storage, rule.Drivers, rule.WithoutProof = "p", "s", []string{"csi"}, word
	return rule
}

// A spell begins when a node becomes unhealthy, and again after it was healthy or has expired. Unknown health changes
// nothing.
func TestUnhealthySpells(t *testing.T) {
	type at struct {
		after time.Duration // since the one before
		says  action.Health
		done  bool // the policy is done after it
		turn  bool // wanted
	}
	tests := []struct {
		name  string
		story []at
	}{
		{"unhealthy at once", []at{{0, sick, false, true}, {5 * time.Second, sick, false, true}}},
		{"healthy, then unhealthy", []at{{0, well, false, false}, {time.Second, sick, false, true}}},
		{"done", []at{{0, sick, true, true}, {5 * time.Second, sick, false, false}, {time.Minute, sick, false, false}}},
		{"done, healthy and unhealthy again",
			[]at{{0, sick, true, true}, {time.Second, well, false, false}, {time.Second, sick, false, true}}},
		{"done, unknown and unhealthy again",
			[]at{{0, sick, true, true}, {time.Second, unknown, false, false}, {time.Second, sick, false, false}}},
		{"healthy, unknown, unhealthy",
			[]at{{0, well, false, false}, {time.Second, unknown, false, false}, {time.Second, sick, false, true}}},
		{"unknown for ever", []at{{0, unknown, false, false}, {2 * time.Hour, unknown, false, false}}},
		{"unknown in the middle of a spell",
			[]at{{0, sick, false, true}, {time.Second, unknown, false, false}, {time.Second, sick, false, true}}},
		{"healthy in the middle of a spell", []at{{0, sick, false, true}, {time.Second, well, false, false}}},
		{"a moment before it expires", []at{{0, sick, true, true}, {time.Hour - 1, sick, false, false}}},
		{"expired", []at{{0, sick, true, true}, {time.Hour, sick, true, true}, {time.Hour - 1, sick, false, false},
			{1, sick, false, true}}},
		{"expiry counts from the change",
			[]at{{0, well, false, false}, {59 * time.Minute, sick, true, true}, {59 * time.Minute, sick, false, false},
				{time.Minute, sick, false, true}}},
		{"healthy ones expire, too",
			[]at{{0, well, false, false}, {time.Hour, well, false, false}, {time.Minute, sick, true, true},
				{59 * time.Minute, sick, false, false}}},
		{"expired while unknown",
			[]at{{0, sick, true, true}, {2 * time.Hour, unknown, false, false}, {time.Second, sick, false, true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var m Memory
			clock := now
			for i, a := range tt.story {
				clock = clock.Add(a.after)
				if got := m.ApplyStorage([]Policy{fenced(StorageFences), full()},
					map[string]action.Health{"s": a.says}, clock); got != a.turn {
					t.Errorf("step %d: got turn %t, want %t", i, got, a.turn)
				}
				if a.done {
					m.ApplyEffects(Effects{Done: []string{"p"}})
				}
			}
		})
	}
}

// model is a node and what is on it, for stories that go on.
type model struct {
	Memory
	policy Policy
	clock  providers.Instant
	look   taint.Look
	says   action.Health
	pods   []action.Pod
	health map[string]action.Health // of volumes, by PV
	atts   []action.Attachment
	refuse func(d action.Decision, name string) bool // nil: nothing
	lost   bool                                      // what is refused is done all the same: the answer was lost
	told   []action.Note
	lines  []string // what was done, with the time since now
}

func newModel(word WithoutProof) *model {
	m := &model{policy: fenced(word), clock: now, look: down(), says: sick, health: map[string]action.Health{}}
	m.look.BootID = "b"
	return m
}

// add makes a pod with volumes named driver/PV, which are attached and in use.
func (m *model) add(name, label string, volumes ...string) {
	five := int64(300) // as Kubernetes gives every pod: its own eviction is far away
	p := action.Pod{Namespace: "db", Name: name, UID: name, Claims: len(volumes) > 0,
		Tolerations: []corev1.Toleration{
			{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &five}}}
	if k, v, ok := strings.Cut(label, "="); ok {
		p.Labels = map[string]string{k: v}
	}
	for _, vol := range volumes {
		driver, pv, _ := strings.Cut(vol, "/")
		p.Volumes = append(p.Volumes, action.Volume{PV: pv, Driver: driver, Unique: corev1.UniqueVolumeName(vol)})
		if !slices.ContainsFunc(m.atts, func(a action.Attachment) bool { return a.PV == pv }) {
			m.atts = append(m.atts,
				action.Attachment{Name: "va-" + pv, UID: "va-" + pv, ResourceVersion: "1", PV: pv, Attacher: driver})
			m.look.InUse = append(m.look.InUse, corev1.UniqueVolumeName(vol))
			m.health[pv] = well
		}
	}
	m.pods = append(m.pods, p)
}

// done records an act on something, and reports whether it is refused.
func (m *model) done(d action.Decision, name string) action.WriteResult {
	word := map[string]string{
		"EndPods": "end", "DeletePods": "delete", "DeleteAttachments": "detach", "ClearVolumes": "clear",
	}[action.Name(d.Action)]
	if m.refuse != nil && m.refuse(d, name) {
		m.lines = append(m.lines, fmt.Sprintf("%s refused: %s %s", m.clock.Sub(now), word, name))
		if m.lost {
			return action.Failed
		}
		return action.Denied
	}
	m.lines = append(m.lines, fmt.Sprintf("%s: %s %s", m.clock.Sub(now), word, name))
	return action.Accepted
}

// turn looks and acts until there is nothing to do, and returns when to come again; 0: not before something changes.
func (m *model) turn(t *testing.T) time.Duration {
	t.Helper()
	for range 50 {
		m.look.Got, m.look.Sent = m.clock, m.clock
		m.ApplyLook(m.look)
		says := map[string]action.Health{"s": m.says}
		m.ApplyStorage([]Policy{m.policy}, says, m.clock)
		v := View{Now: m.clock, Look: m.look, Policies: []Policy{m.policy}, Storage: says}
		var d action.Decision
		var e Effects
		for range 10 {
			v.Memory = m.Memory
			d, e = announced(v)
			m.ApplyEffects(e)
			switch a := d.Action.(type) {
			case action.ListPods:
				v.Listed = true
				for _, p := range m.pods {
					p.Volumes, v.Pods = nil, append(v.Pods, p)
				}
				m.ApplyPods(v.Pods)
			case action.ReadVolumes:
				for i, p := range v.Pods {
					same := func(q action.Pod) bool { return q.UID == p.UID }
					if j := slices.IndexFunc(m.pods, same); slices.ContainsFunc(a.Pods, same) {
						v.Pods[i].Claims, v.Pods[i].Volumes = false, slices.Clone(m.pods[j].Volumes)
						for k, vol := range v.Pods[i].Volumes {
							v.Pods[i].Volumes[k].Health = m.health[vol.PV]
						}
					}
				}
			case action.ListAttachments:
				v.Attached, v.Attachments = true, slices.Clone(m.atts)
				m.ApplyAttachments(m.atts)
			default:
				goto decided
			}
		}
		t.Fatal("reads without end")
	decided:
		m.told = append(m.told, d.Notes...)
		how := map[string]action.WriteResult{}
		switch a := d.Action.(type) {
		case action.EndPods, action.DeletePods:
			for _, p := range action.PodsOf(a) {
				how[p.UID] = m.done(d, p.Name)
				i := slices.IndexFunc(m.pods, func(q action.Pod) bool { return q.UID == p.UID })
				switch {
				case how[p.UID] != action.Accepted && !m.lost:
				case action.Is[action.DeletePods](d):
					m.pods = slices.Delete(m.pods, i, i+1)
				default:
					m.pods[i].Terminal, m.pods[i].Tombstone = true, true
				}
			}
			m.ApplyWrites(a, e, how, m.clock)
		case action.DeleteAttachments:
			for _, a := range a.Attachments {
				if how[a.UID] = m.done(d, a.Name); how[a.UID] == action.Accepted {
					m.atts = slices.DeleteFunc(m.atts, func(b action.Attachment) bool { return b.UID == a.UID })
				}
			}
			m.ApplyWrites(a, e, how, m.clock)
		case action.ClearVolumes:
			for _, n := range m.look.InUse {
				if !slices.Contains(a.InUse, n) {
					m.done(d, string(n))
				}
			}
			m.look.InUse = a.InUse
			m.ApplyCleared(a.InUse)
		case action.Wait:
			return d.RequeueAfter
		default:
			return 0
		}
	}
	t.Fatal("50 acts without a pause")
	return 0
}

// pass lets time pass, with a turn whenever one is due, and one each poll.
func (m *model) pass(t *testing.T, d time.Duration) {
	t.Helper()
	for end := m.clock.Add(d); ; {
		next := m.policy.Intervals.Poll
		if after := m.turn(t); after > 0 {
			next = min(next, after)
		}
		if m.clock.Add(next).After(end) {
			m.clock = end
			return
		}
		m.clock = m.clock.Add(next)
	}
}

const yes = "storageos.com/fenced=true"

// What is done with a node, in its order.
func TestStorageOSStories(t *testing.T) {
	tests := []struct {
		name  string
		word  WithoutProof
		story func(t *testing.T, m *model)
		want  []string
		told  []reason.Reason
	}{
		{"as written: the pods, then the attachments of their volumes there", AcceptDuplicates,
			func(t *testing.T, m *model) {
				m.add("a", yes, "csi/1", "other/2")
				m.add("b", yes, "csi/3")
				m.pass(t, time.Minute)
			}, []string{"0s: end a", "0s: end b", "0s: delete a", "0s: delete b", "0s: detach va-1", "0s: detach va-3"},
			nil},
		{"where the storage fences, their entries are cleared as well", StorageFences, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1", "other/2")
			m.add("stays", "", "csi/3")
			m.pass(t, time.Minute)
		}, []string{"0s: end a", "0s: delete a", "0s: clear csi/1", "0s: detach va-1"}, nil},
		{"a Ready node's list is never cleared", StorageFences, func(t *testing.T, m *model) {
			m.look.Ready, m.look.Taints = corev1.ConditionTrue, nil
			m.add("a", yes, "csi/1")
			m.pass(t, time.Minute)
		}, []string{"0s: end a", "0s: delete a", "0s: detach va-1"}, nil},
		{"but once it is not Ready any more, which a dead node reports late", StorageFences,
			func(t *testing.T, m *model) {
				m.look.Ready, m.look.Taints = corev1.ConditionTrue, nil
				m.add("a", yes, "csi/1")
				m.pass(t, 50*time.Second)
				m.look.Ready = corev1.ConditionUnknown
				m.add("late", yes, "csi/2")
				m.pass(t, time.Minute)
			}, []string{"0s: end a", "0s: delete a", "0s: detach va-1", "50s: clear csi/1"}, nil},
		{"and not after its storage was healthy", StorageFences, func(t *testing.T, m *model) {
			m.look.Ready, m.look.Taints = corev1.ConditionTrue, nil
			m.add("a", yes, "csi/1")
			m.pass(t, 10*time.Second)
			m.says = well
			m.pass(t, 10*time.Second)
			m.says, m.look.Ready = sick, corev1.ConditionUnknown
			m.pass(t, 10*time.Second)
		}, []string{"0s: end a", "0s: delete a", "0s: detach va-1"}, nil},
		{"nor after another boot", StorageFences, func(t *testing.T, m *model) {
			m.look.Ready, m.look.Taints = corev1.ConditionTrue, nil
			m.add("a", yes, "csi/1")
			m.pass(t, 10*time.Second)
			m.look.BootID, m.look.Ready = "c", corev1.ConditionUnknown
			m.pass(t, 10*time.Second)
		}, []string{"0s: end a", "0s: delete a", "0s: detach va-1"}, nil},
		{"a volume that another pod uses stays", StorageFences, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1", "csi/2")
			m.add("stays", "", "csi/1")
			m.pass(t, time.Minute)
		}, []string{"0s: end a", "0s: delete a", "0s: clear csi/2", "0s: detach va-2"}, nil},
		{"volumes that a pod with an unread claim may use stay", StorageFences, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.add("stays", "")
			m.pods[1].Volumes = []action.Volume{{Claim: "x", Unread: true}}
			m.pass(t, time.Minute)
		}, []string{"0s: end a", "0s: delete a"}, nil},
		{"an entry that a kubelet writes back is not fought for", StorageFences, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.refuse = func(d action.Decision, _ string) bool { return action.Is[action.DeleteAttachments](d) }
			m.pass(t, 2*time.Second)
			m.look.InUse = []corev1.UniqueVolumeName{"csi/1"}
			m.pass(t, 5*time.Second)
		},
			[]string{"0s: end a", "0s: delete a", "0s: clear csi/1", "0s refused: detach va-1",
				"5s refused: detach va-1"}, nil},
		{"unknown in the middle: nothing more is ended until it is known", AcceptDuplicates,
			func(t *testing.T, m *model) {
				m.add("a", yes, "csi/1")
				m.refuse = func(action.Decision, string) bool { return m.clock.Before(now.Add(3 * time.Second)) }
				m.pass(t, 2*time.Second)
				m.says = unknown
				m.pass(t, 20*time.Second)
				m.says = sick
				m.pass(t, time.Second)
			}, []string{"0s refused: end a", "22s: end a", "22s: delete a", "22s: detach va-1"}, nil},
		{"labels that are not exactly true", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", "storageos.com/fenced=True", "csi/1")
			m.add("b", "storageos.com/fenced=1", "csi/2")
			m.add("c", "", "csi/3")
			m.add("d", "fenced=true", "csi/4")
			m.pass(t, 2*time.Hour)
		}, nil, nil},
		{"no volume of the storage", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes)
			m.add("b", yes, "other/1")
			m.pass(t, 2*time.Hour)
		}, nil, nil},
		{"an unhealthy volume, healthy again before the hour is over", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1", "csi/2")
			m.add("b", yes, "csi/3")
			m.health["2"] = sick
			m.pass(t, time.Minute)
			m.health["2"] = well
			m.pass(t, time.Hour)
		},
			[]string{"0s: end b", "0s: delete b", "0s: detach va-3", "1h0m0s: end a", "1h0m0s: delete a",
				"1h0m0s: detach va-1", "1h0m0s: detach va-2"},
			[]reason.Reason{reason.PolicySkipped}},
		{"a volume of unknown health", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.health["1"] = unknown
			m.pass(t, time.Minute)
		}, nil, []reason.Reason{reason.PolicySkipped}},
		{"a pod that tolerates the mark stays, and is named", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.add("b", yes, "csi/2")
			m.pods[0].Exempt = taint.ExemptTolerate
			m.pass(t, time.Minute)
		}, []string{"0s: end b", "0s: delete b", "0s: detach va-2"}, []reason.Reason{reason.PolicySkipped}},
		{"another storage's volume may be as it likes", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1", "other/2")
			m.health["2"] = sick
			m.pass(t, time.Minute)
		}, []string{"0s: end a", "0s: delete a", "0s: detach va-1"}, nil},
		{"errors are tried again after five seconds", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.add("b", yes, "csi/2")
			m.refuse = func(_ action.Decision, name string) bool {
				return name == "a" && m.clock.Before(now.Add(10*time.Second))
			}
			m.pass(t, time.Minute)
		},
			[]string{"0s refused: end a", "0s: end b", "0s: delete b", "0s: detach va-2", "5s refused: end a",
				"10s: end a", "10s: delete a", "10s: detach va-1"}, nil},
		{"until 25 s are over, and then an error is reported", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.refuse = func(action.Decision, string) bool { return true }
			m.pass(t, 30*time.Second)
			m.refuse = nil
			m.pass(t, 30*time.Minute)
		},
			[]string{"0s refused: end a", "5s refused: end a", "10s refused: end a", "15s refused: end a",
				"20s refused: end a"}, []reason.Reason{reason.PolicyTimedOut}},
		{"an answer that was lost is found out", StorageFences, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.lost = true
			m.refuse = func(d action.Decision, _ string) bool { return action.Is[action.EndPods](d) }
			m.pass(t, 10*time.Second)
		}, []string{"0s refused: end a", "0s: detach va-1", "5s: delete a"}, nil},
		{"attachments, too", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.refuse = func(d action.Decision, _ string) bool { return action.Is[action.DeleteAttachments](d) }
			m.pass(t, time.Minute)
		},
			[]string{"0s: end a", "0s: delete a", "0s refused: detach va-1", "5s refused: detach va-1",
				"10s refused: detach va-1", "15s refused: detach va-1",
				"20s refused: detach va-1"}, []reason.Reason{reason.PolicyTimedOut}},
		{"what was ended is deleted, however late", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.refuse = func(d action.Decision, _ string) bool {
				return action.Is[action.DeletePods](d) && m.clock.Before(now.Add(30*time.Second))
			}
			m.pass(t, time.Minute)
		},
			[]string{"0s: end a", "0s refused: delete a", "0s: detach va-1", "5s refused: delete a",
				"10s refused: delete a", "15s refused: delete a", "20s refused: delete a",
				"25s refused: delete a", "30s: delete a"}, []reason.Reason{reason.PolicyTimedOut}},
		{"healthy in the middle: nothing more is ended, and the next time it is", AcceptDuplicates,
			func(t *testing.T, m *model) {
				m.add("a", yes, "csi/1")
				m.refuse = func(action.Decision, string) bool { return m.clock.Before(now.Add(10 * time.Second)) }
				m.pass(t, 7*time.Second)
				m.says = well
				m.pass(t, time.Minute)
				m.says = sick
				m.pass(t, time.Second)
			}, []string{"0s refused: end a", "5s refused: end a", "1m7s: end a", "1m7s: delete a", "1m7s: detach va-1"},
			nil},
		{"done: a pod that comes later stays until the hour is over", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.pass(t, time.Minute)
			m.add("b", yes, "csi/2")
			m.pass(t, time.Hour)
		},
			[]string{"0s: end a", "0s: delete a", "0s: detach va-1", "1h0m0s: end b", "1h0m0s: delete b",
				"1h0m0s: detach va-2"}, nil},
		{"done, with an entry of the list that another pod keeps: a pod that comes later stays, too", StorageFences,
			func(t *testing.T, m *model) {
				m.add("a", yes, "csi/1")
				m.add("stays", "", "csi/1")
				m.pass(t, time.Minute)
				m.add("b", yes, "csi/2")
				m.pass(t, 10*time.Minute)
			}, []string{"0s: end a", "0s: delete a"}, nil},
		{"a fence goes first, and its time is not the spell's", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			m.look.Record = &taint.Record{Phase: taint.PhasePoweringOff}
			m.pass(t, time.Minute)
			m.look.Record = nil
			m.pass(t, time.Minute)
		}, []string{"1m0s: end a", "1m0s: delete a", "1m0s: detach va-1"}, nil},
		{"unknown does nothing", AcceptDuplicates, func(t *testing.T, m *model) {
			m.says = unknown
			m.add("a", yes, "csi/1")
			m.pass(t, 2*time.Hour)
		}, nil, nil},
		{"Kubernetes' own eviction is waited for, longer than 25 s", AcceptDuplicates, func(t *testing.T, m *model) {
			m.add("a", yes, "csi/1")
			half := int64(30)
			m.pods[0].Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, TolerationSeconds: &half}}
			m.look.Taints = append(m.look.Taints,
				corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
			m.pass(t, 30*time.Second)
			m.pods[0].Deleting, m.pods[0].DeleteAt = true, m.clock.Add(30*time.Second).Wall
			m.pass(t, time.Second)
		}, []string{"30s: end a", "30s: delete a", "30s: detach va-1"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newModel(tt.word)
			tt.story(t, m)
			if !slices.Equal(m.lines, tt.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(m.lines, "\n\t"), strings.Join(tt.want, "\n\t"))
			}
			var told []reason.Reason
			for _, n := range m.told {
				told = append(told, n.Why)
			}
			if !slices.Equal(slices.Compact(told), tt.told) {
				t.Errorf("notes: got %v, want %v", m.told, tt.told)
			}
		})
	}
}

// In any order of events: a pod is ended only if the storage says that its node is unhealthy and that all its volumes
// there are healthy, and if it has the label. Nothing is tried twice within the retry interval, or after the timeout.
// Once all is quiet, every pod that should have gone has gone.
func TestStorageOSHistories(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 0))
		m := newModel([]WithoutProof{StorageFences, AcceptDuplicates}[rng.IntN(2)])
		m.policy.Intervals.Retry = time.Duration(1+rng.IntN(20)) * time.Second
		chance := func(p float64) bool { return rng.Float64() < p }
		healths := []action.Health{well, sick, sick, unknown}
		tried := map[string]providers.Instant{}
		m.refuse = func(d action.Decision, name string) bool {
			write := action.Name(d.Action) + " " + name
			last, ok := tried[write]
			if ok && !action.Is[action.DeletePods](d) && m.clock.Sub(last) < m.policy.Intervals.Retry {
				t.Errorf("seed %d: %s again after %s", seed, write, m.clock.Sub(last))
			}
			if action.Is[action.EndPods](d) {
				p := m.pods[slices.IndexFunc(m.pods, func(p action.Pod) bool { return p.Name == name })]
				switch {
				case m.says != sick:
					t.Errorf("seed %d: %s ended while the storage says %+v", seed, name, m.says)
				case p.Labels["storageos.com/fenced"] != "true":
					t.Errorf("seed %d: %s ended, with labels %v", seed, name, p.Labels)
				case !slices.ContainsFunc(p.Volumes, func(v action.Volume) bool { return v.Driver == "csi" }):
					t.Errorf("seed %d: %s ended, without a volume of the storage", seed, name)
				case slices.ContainsFunc(p.Volumes,
					func(v action.Volume) bool { return v.Driver == "csi" && m.health[v.PV] != well }):
					t.Errorf("seed %d: %s ended, with a volume that is not healthy", seed, name)
				}
			}
			if action.Is[action.ClearVolumes](d) && (m.look.IsReady() || m.policy.WithoutProof != StorageFences) {
				t.Errorf("seed %d: %s cleared, Ready %s, %s", seed, name, m.look.Ready, m.policy.WithoutProof)
			}
			if chance(0.2) {
				tried[write] = m.clock
				return true
			}
			return false
		}
		for i := range 30 {
			switch rng.IntN(6) {
			case 0:
				m.says = healths[rng.IntN(4)]
			case 1:
				vols := []string{fmt.Sprintf("csi/%d", rng.IntN(20)),
					fmt.Sprintf("other/x%d", rng.IntN(20))}[:rng.IntN(3)]
				m.add(fmt.Sprint("p", i), []string{yes, yes, "storageos.com/fenced=yes"}[rng.IntN(3)], vols...)
			case 2:
				m.look.Ready = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown,
					corev1.ConditionFalse}[rng.IntN(3)]
			case 3:
				for pv := range m.health {
					if chance(0.3) {
						m.health[pv] = healths[rng.IntN(4)]
					}
				}
			default:
				m.pass(t, time.Duration(rng.Int64N(int64(10*time.Minute))))
			}
		}
		m.refuse = nil
		for pv := range m.health {
			m.health[pv] = well
		}
		m.says = well
		m.pass(t, time.Second)
		m.says = sick
		m.pass(t, time.Minute)
		for _, p := range m.pods {
			if !p.Terminal && m.policy.matchesPod(p) &&
				slices.ContainsFunc(p.Volumes, func(v action.Volume) bool { return v.Driver == "csi" }) {
				t.Errorf("seed %d: %s is left", seed, p.Name)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(m.lines, "\n"))
		}
	}
}

// The preset is the document's.
func TestStorageOSPreset(t *testing.T) {
	p, _ := PresetOf("storageos")
	if want := (Intervals{5 * time.Second, time.Hour, 25 * time.Second, 5 * time.Second}); p.Policy.Intervals != want ||
		!p.Fences || p.Policy.When != StorageUnhealthy {
		t.Errorf("got %+v, want the document's intervals and its claim", p)
	}
	for value, want := range map[string]bool{"true": true, "True": false, "1": false, "": false} {
		if got := p.Policy.Pods.Matches(labels.Set{"storageos.com/fenced": value}); got != want {
			t.Errorf("label %q: got %t, want %t", value, got, want)
		}
	}
}
