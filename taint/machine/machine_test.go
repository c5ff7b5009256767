package machine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// answering is a device with one answer, after a time.
type answering struct {
	providers.Provider
	state providers.PowerState
	after time.Duration
}

func (a answering) State(context.Context, providers.Target) (providers.Observation, error) {
	time.Sleep(a.after)
	return providers.Observation{State: a.state, At: providers.Now()}, nil
}

// The Off of a device that is known to lie is no verdict, alone or beside another device. What it says of a machine that
// runs counts.
func TestVerdictWithoutLiars(t *testing.T) {
	const (
		off, on  = providers.PowerOff, providers.PowerOn
		changing = providers.PowerChanging
		silent   = providers.PowerUnknown
	)
	for name, tc := range map[string]struct {
		own, further providers.PowerState
		liar         string
		want         providers.PowerState
	}{
		"alone":                               {own: off, want: off},
		"alone, and lies":                     {own: off, liar: "bmc", want: silent},
		"alone, lies, and says On":            {own: on, liar: "bmc", want: on},
		"another device lies":                 {own: off, further: off, liar: "pdu", want: off},
		"it lies, the other says Off":         {own: off, further: off, liar: "bmc", want: off},
		"it lies, the other says Changing":    {own: off, further: changing, liar: "bmc", want: changing},
		"it lies, the other says On":          {own: off, further: on, liar: "bmc", want: on},
		"no answer, the other says Off":       {own: silent, further: off, want: off},
		"no answer, the other says Off, lies": {own: silent, further: off, liar: "pdu", want: silent},
	} {
		t.Run(name, func(t *testing.T) {
			m := Machine{Provider: answering{state: tc.own}, Name: "bmc", Device: "bmc/n1"}
			if tc.further != silent {
				m.Further = []Machine{{Provider: answering{state: tc.further}, Name: "pdu", Device: "pdu/n1", Level: 1}}
			}
			got := m.AskVerdict(t.Context(), func(d Machine) string {
				if d.Name == tc.liar {
					return "n9"
				}
				return ""
			}, providers.Now)
			if got.State != tc.want {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
		})
	}
}

// The Off of a device that is known to lie does not end the wait for another device, which has more to say.
func TestLiarDoesNotEndTheWait(t *testing.T) {
	for _, tc := range []struct {
		liar string
		want providers.PowerState // of the second device's answer
	}{{"bmc", providers.PowerOn}, {"pdu", providers.PowerUnknown}, {"", providers.PowerUnknown}} {
		synctest.Test(t, func(t *testing.T) {
			m := Machine{Provider: answering{state: providers.PowerOff}, Name: "bmc", Device: "bmc/n1",
				Further: []Machine{{Provider: answering{state: providers.PowerOn, after: 2 * providers.Patience}, Name: "pdu",
					Device: "pdu/n1", Level: 1}}}
			now := func() providers.Instant { return providers.InstantOf(time.Now()) }
			all := m.AskDevices(t.Context(), func(d Machine) string {
				if d.Name == tc.liar {
					return "n9"
				}
				return ""
			}, now)
			if all[0].State != providers.PowerOff || all[1].State != tc.want {
				t.Errorf("liar %q: got %s and %s, want Off and %s", tc.liar, all[0].State, all[1].State, tc.want)
			}
			time.Sleep(2 * providers.Patience) // a question goes on until its device answers
		})
	}
}
