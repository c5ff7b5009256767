package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
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

func (s subAnswers) Patch(ctx context.Context, o client.Object, p client.Patch,
	_ ...client.SubResourcePatchOption) error {
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
			if again := apierrors.IsConflict(tc.err); (err != nil) != (tc.err != nil) ||
				errors.Is(err, kube.ErrAgain) != again || x.api.patches != 1 {
				t.Fatalf("got %d writes, error %v, want one, %v", x.api.patches, err, tc.err)
			}
			n := 0
			for _, e := range told(x.events) {
				if strings.Contains(e, string(reason.ProvenOff)) {
					n++
				}
			}
			if n != tc.want || (x.heard.reason == reason.ProvenOff) != (tc.want == 1) {
				t.Errorf("got %d Events, said %q; want %d", n, x.heard.reason, tc.want)
			}
		})
	}
}
