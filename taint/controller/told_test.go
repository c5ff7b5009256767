package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/recording"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// newYear is when the courses below begin.
var newYear = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// answers is an API server's client that says the same to every patch, and counts them.
type answers struct {
	client.Client
	err     error
	patches int
	last    string // patch that was sent
}

func (a *answers) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

func (a *answers) SubResource(string) client.SubResourceClient { return subAnswers{a: a} }

func (a *answers) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	b, err := p.Data(o)
	if err != nil {
		return err
	}
	a.patches++
	a.last = string(b)
	return a.err
}

type subAnswers struct {
	client.SubResourceClient
	a *answers
}

func (s subAnswers) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.a.Patch(ctx, o, p)
}

// told returns the Events that were sent.
func told(r *events.FakeRecorder) (out []string) {
	for {
		select {
		case e := <-r.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// Why a policy stands aside is told once, and again when that changed or was over.
func TestStandsAsideOnce(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOn}, "")
	x.st.node = x.live.node
	for _, why := range []string{"", "on", "on", "unread", "", "on", ""} {
		s := action.Decision{Action: action.Wait{}}
		if why != "" {
			s.Aside = action.Aside{Why: reason.PolicyYields, Detail: why}
		}
		x.tellAside(x.st, s)
	}
	got := told(x.events)
	for i, why := range []string{"on", "unread", "on"} {
		if len(got) != 3 || !strings.Contains(got[i], string(reason.PolicyYields)) || !strings.Contains(got[i], ": "+why+".") {
			t.Fatalf("got %q, want on, unread, on", got)
		}
	}
}

// That policies wait is reported once for all nodes, even if the count in it changes. Another incident is reported
// again.
func TestPoliciesWaitIsToldOnce(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOn}, "")
	x.st.node = x.live.node
	other := &nodeState{node: x.live.node}
	waits := func(detail, once string) action.Decision {
		return action.Decision{Action: action.Wait{},
			Aside: action.Aside{Why: reason.PolicyWaits, Detail: detail, Once: once}}
	}
	x.tellAside(x.st, waits("5 of 9", "a"))
	x.tellAside(x.st, waits("6 of 9", "a"))
	x.tellAside(other, waits("6 of 9", "a"))
	x.tellAside(x.st, waits("3 of 4", "b"))
	got := told(x.events)
	for i, detail := range []string{"5 of 9", "3 of 4"} {
		if len(got) != 2 || !strings.Contains(got[i], string(reason.PolicyWaits)+" ") ||
			!strings.Contains(got[i], ": "+detail) {
			t.Fatalf("got %q, want one Event for each incident", got)
		}
	}
}

// What was not written is not told: a conflict while arming leaves an id that never was a fence's.
func TestFenceIsToldOnceWritten(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want int
	}{
		{"written", nil, 1},
		{"a conflict", apierrors.NewConflict(schema.GroupResource{}, "n1", errStale), 0},
		{"the API server fails", errStale, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := inMidst(t, &oneMachine{state: providers.PowerOff}, "")
			x.live.pods, x.api.err = podsOf("n1", "a"), tc.err
			err := x.steps()
			if again := apierrors.IsConflict(tc.err); (err != nil) != (tc.err != nil) || errors.Is(err, kube.ErrAgain) != again || x.api.patches != 1 {
				t.Fatalf("got %d writes, error %v, want one, %v", x.api.patches, err, tc.err)
			}
			n := 0
			for _, e := range told(x.events) {
				if strings.Contains(e, string(reason.ProvenOff)) {
					n++
				}
			}
			if n != tc.want || (x.st.told.said == reason.ProvenOff) != (tc.want == 1) {
				t.Errorf("got %d Events, said %q; want %d", n, x.st.told.said, tc.want)
			}
		})
	}
}

// A reason is told once, when it becomes the node's, and again when another was in between; a question in between is no news.
func TestToldOnce(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerUnknown}, taint.PhaseEvicting)
	x.live.pods = podsOf("n1", "a")
	x.upTo("Wait")
	waits := func(why reason.Reason) action.Decision { return action.Decision{Action: action.Wait{}, Reason: why} }
	for _, s := range []action.Decision{
		waits(reason.ProofLost), waits(reason.ProofLost), {Action: action.Ask{}, Reason: reason.Confirming}, waits(reason.ProofLost),
		waits(reason.WaitingDetach), waits(reason.ProofLost),
	} {
		x.tell(x.st, s)
	}
	var got []string
	for _, e := range told(x.events) {
		got = append(got, strings.Fields(e)[1])
	}
	if want := []string{"ProofLost", "WaitingForDetach", "ProofLost"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	x.Leading = func() error { return errStale }
	x.tell(x.st, waits(reason.Finished))
	if got := told(x.events); got != nil {
		t.Errorf("told by a process that does not lead: %v", got)
	}
}

// While pods are written the node's Events wait: until the writes are done, or for a while. None is lost, and they come in their order.
func TestEventsWaitForWrites(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
	x.upTo("Unmark")
	write := func(a action.Action, why reason.Reason) {
		t.Helper()
		x.tell(x.st, action.Decision{Action: a, Reason: why})
	}
	wants := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, e := range told(x.events) {
			got = append(got, strings.Fields(e)[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	write(action.Write{}, reason.Confirmed)
	write(action.Tombstone{}, reason.Tombstoning)
	x.flush(&x.st.told.later, false)
	wants("while pods are ended")
	write(action.Wait{}, reason.WaitingDetach)
	wants("once they are", "MachineConfirmedOff", "NoHookOnNode", "EndingPods", "WaitingForDetach")
	write(action.Delete{}, reason.Deleting)
	x.pass(tellWithin)
	x.flush(&x.st.told.later, false)
	wants("pods that take their time", "DeletingPods")
	write(action.ClearVolumes{}, reason.Clearing)
	write(action.Unmark{}, reason.Finished)
	wants("the mark goes", "ClearingVolumes", "NodeEvicted")

	x.batches.Add(1) // another node's
	x.tellWritten(x.st, action.Tombstone{}, []action.Pod{{Name: "a"}})
	write(action.Unmark{}, reason.NeverOff)
	wants("the mark goes while another node's pods are ended")
	course := x.st.course
	x.st.course = recording.Course{}
	if after := x.tellRest(x.st); after != 0 {
		t.Errorf("come again after %s, want never", after)
	}
	wants("a moment later")
	x.batches.Add(-1)
	x.each(t.Context(), x.st, action.Tombstone{}, nil) // that one's end
	wants("no pods are being ended", "FencedNodeNeverPoweredOff", "NodeFenced")

	x.batches.Add(1) // another, which does not end
	x.st.course = course
	x.tellWritten(x.st, action.Tombstone{}, []action.Pod{{Name: "b"}})
	x.st.course = recording.Course{}
	x.tellRest(x.st)
	x.each(t.Context(), x.st, action.Tombstone{}, nil)
	wants("a run beside it ends")
	x.pass(tellWithin)
	synctest.Test(t, func(t *testing.T) {
		go x.tellLate(t.Context())
		time.Sleep(time.Second)
	})
	wants("it still does not end", "NodeFenced")
}

// Every word in braces that the text of a decision's reason has is replaced.
func TestEventsHaveNoBraces(t *testing.T) {
	// they are no decisions, and have words of their own
	others := []reason.Reason{reason.OddLease, reason.Fenced, reason.PoweredOff}
	x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
	x.upTo("Unmark")
	for _, row := range reason.Table() {
		if row.Text == "" || slices.Contains(others, row.Reason) {
			continue
		}
		told(x.events)
		d := action.Decision{Action: action.Wait{}, Reason: row.Reason, Detail: "because"}
		if strings.Contains(row.Text, "{by}") {
			d.Action = action.Write{Record: taint.Record{ID: "f-9", By: "kim"}}
		}
		x.tell(x.st, d)
		x.flush(&x.st.told.later, true)
		if got := told(x.events); len(got) == 0 || !strings.Contains(got[0], string(row.Reason)) || strings.ContainsAny(got[0], "{}") {
			t.Errorf("%s: got %q", row.Reason, got)
		}
	}
}
