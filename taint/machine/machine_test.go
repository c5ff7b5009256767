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

// The Off of a device that is known to lie is no verdict, alone or beside another device. Its On counts.
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

// The Off of a device that is known to lie does not end the wait for another device, which has more to say. The Off of
// another device does.
func TestLiarDoesNotEndTheWait(t *testing.T) {
	for _, tc := range []struct {
		liar, slow string
		want       providers.PowerState // the slow device's answer
	}{
		{"bmc", "pdu", providers.PowerOn}, {"pdu", "pdu", providers.PowerUnknown}, {"", "pdu", providers.PowerUnknown},
		{"pdu", "bmc", providers.PowerOn}, {"bmc", "bmc", providers.PowerUnknown}, {"", "bmc", providers.PowerUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			device := func(name string) Machine {
				d := answering{state: providers.PowerOff}
				if name == tc.slow {
					d = answering{state: providers.PowerOn, after: 2 * providers.Patience}
				}
				return Machine{Provider: d, Name: name, Device: name + "/n1"}
			}
			m, pdu := device("bmc"), device("pdu")
			pdu.Level = 1
			m.Further = []Machine{pdu}
			now := func() providers.Instant { return providers.InstantOf(time.Now()) }
			all := m.AskDevices(t.Context(), func(d Machine) string {
				if d.Name == tc.liar {
					return "n9"
				}
				return ""
			}, now)
			fast, slow := all[0], all[1]
			if tc.slow == "bmc" {
				fast, slow = slow, fast
			}
			if fast.State != providers.PowerOff || slow.State != tc.want {
				t.Errorf("%q lies, %q is slow: got %s of it, and %s; want %s, and Off", tc.liar, tc.slow, slow.State,
					fast.State, tc.want)
			}
			time.Sleep(2 * providers.Patience) // a question goes on until its device answers
		})
	}
}
