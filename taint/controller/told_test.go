package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/fence"
	"github.com/forcefence/forcefence/taint/fleet"
)

// newYear is when the turns below begin.
var newYear = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// answers is an API server's client that says the same to every patch, and counts them.
type answers struct {
	client.Client
	err     error
	patches int
}

func (a *answers) SubResource(string) client.SubResourceClient { return subAnswers{a: a} }

func (a *answers) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	a.patches++
	return a.err
}

type subAnswers struct {
	client.SubResourceClient
	a *answers
}

func (s subAnswers) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	s.a.patches++
	return s.a.err
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
			c := &clock{now: newYear}
			tn, _ := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseArmed)
			tn.look.Mark, tn.look.Record = nil, nil
			tn.policy = &Policy{Excluded: func(*corev1.Node) string { return "" }}
			tn.st.fence = fence.Memory{}
			tn.st.suspect, tn.fleet = "NotReady", fleet.View{Stale: true, Missed: true, Others: 1, Fresh: 1, Heard: true}
			api, events := &answers{err: tc.err}, events.NewFakeRecorder(50)
			tn.writer.client, tn.Events = api, events
			var err error
			for turns := 0; api.patches == 0 && err == nil; turns++ {
				if turns == 10 {
					t.Fatal("no mark was tried in ten turns")
				}
				c.now = c.now.Add(10 * time.Millisecond)
				tn.look.Sent, tn.look.Got = c.now, c.now
				tn.st.work, tn.st.worked = fence.SomeToDo, c.now
				tn.st.fence.Saw(tn.look)
				_, _, err = tn.fence(t.Context())
			}
			if (err != nil) != (tc.err != nil) {
				t.Fatal(err)
			}
			n := 0
			for _, e := range told(events) {
				if strings.Contains(e, string(fence.ProvenOff)) {
					n++
				}
			}
			if n != tc.want || (tn.st.said == string(fence.ProvenOff)) != (tc.want == 1) {
				t.Errorf("got %d Events, said %q; want %d", n, tn.st.said, tc.want)
			}
		})
	}
}
