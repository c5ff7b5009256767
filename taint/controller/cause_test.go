package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// broken is a provider whose device fails in one way.
type broken struct{ err error }

func (b broken) State(context.Context, providers.Target) (providers.Observation, error) {
	return providers.Observation{}, b.err
}
func (b broken) PowerOff(context.Context, providers.Target, func() error) error { return b.err }
func (b broken) PowerOn(context.Context, providers.Target, func() error) error  { return b.err }

// Why a device gives no answer stands in the Event of a node that looks dead.
func TestCauseOfAnUnknownAnswer(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerUnknown}, taint.PhaseEvicting)
	x.live.pods = podsOf("n1", "a")
	x.upTo("Wait")
	x.st.machine.Provider = broken{providers.WithClass(providers.ErrDenied, errors.New("403 Forbidden (no licence)"))}
	x.work().applyObservation(decide.DevicesAnswered{Answers: x.work().askDevices(t.Context())})
	if got := x.st.course.LastAnswerText(); got != "denied: 403 Forbidden (no licence)" {
		t.Errorf("got %q", got)
	}
	x.tells(action.Decision{Action: action.Wait{}, Reason: reason.Unknown}, nil)
	if got := told(x.events); len(got) != 1 || !strings.Contains(got[0], "403 Forbidden (no licence)") {
		t.Errorf("got Events %q", got)
	}
}
