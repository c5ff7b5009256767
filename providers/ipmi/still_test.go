package ipmi_test

import (
	"errors"
	"testing"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
)

// Each time that the library sends the command it asks first: a datagram without an answer is not sent again.
func TestRetransmissionAsks(t *testing.T) {
	t.Parallel()
	s := newSoft(t, "secret")
	x := newProxy(t, s.address)
	p, _ := newProvider(t, passwordFile(t, "secret"), nil)
	n1 := providers.Target{Node: "n1", ID: x.address(), SystemUUID: machineUUID}
	refuse := errors.New("no longer the leader")
	s.edit(func() { s.ignore = true })
	x.edit(func() {
		x.answered = func(answer packet) []packet { // once the command has arrived no answer comes
			if s.count(types.CommandChassisControl) > 0 {
				return nil
			}
			return []packet{answer}
		}
	})
	asked := 0
	err := p.PowerOff(t.Context(), n1, func() error {
		if asked++; asked > 1 {
			return refuse
		}
		return nil
	})
	if n := s.count(types.CommandChassisControl); n != 1 || asked != 2 {
		t.Errorf("%d commands were sent, asked %d times; want 1, 2", n, asked)
	}
	if providers.ErrorClass(err) != "unreachable" || !errors.Is(err, refuse) || errors.Is(err, providers.ErrNotSent) {
		t.Errorf("got %v, want an error other than ErrNotSent", err)
	}
}

// A refusal on a session that is open opens no other.
func TestRefusalNeedsNoNewSession(t *testing.T) {
	t.Parallel()
	s := newSoft(t, "secret")
	x := newProxy(t, s.address)
	p, _ := newProvider(t, passwordFile(t, "secret"), nil)
	n1 := providers.Target{Node: "n1", ID: x.address(), SystemUUID: machineUUID}
	if _, err := p.State(t.Context(), n1); err != nil {
		t.Fatal(err)
	}
	logins := x.logins()
	err := p.PowerOff(t.Context(), n1, func() error { return errors.New("no longer the leader") })
	if n := s.count(types.CommandChassisControl); n != 0 || !errors.Is(err, providers.ErrNotSent) ||
		x.logins() != logins {
		t.Errorf("%d commands were sent, %d log-ins more, %v; want none, none, %v", n, x.logins()-logins, err,
			providers.ErrNotSent)
	}
}
