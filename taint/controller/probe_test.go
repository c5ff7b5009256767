package controller

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/recovery"
)

// broken is a provider whose device fails in one way.
type broken struct{ err error }

func (b broken) State(context.Context, providers.Target) (providers.Observation, error) {
	return providers.Observation{}, b.err
}
func (b broken) PowerOff(context.Context, providers.Target) error { return b.err }
func (b broken) PowerOn(context.Context, providers.Target) error  { return b.err }

// Why a device cannot be asked stands in the Event and in the log, while the node is healthy: its class and the cause, cleaned.
func TestProbeTellsTheCause(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{providers.WithClass(providers.ErrUntrusted, errors.New("x509: certificate signed by unknown authority (caFile)")), "(untrusted: x509: certificate signed by unknown authority (caFile))"},
		{providers.WithClass(providers.ErrDenied, errors.New("401 Unauthorized (IDRAC.2.1.RAC0218)")), "(denied: 401 Unauthorized (IDRAC.2.1.RAC0218))"},
		{providers.WithClass(providers.ErrUnreachable, errors.New("dial tcp 192.0.2.1:443: connect: no route to host\x1b[2J")), "(unreachable: dial tcp 192.0.2.1:443: connect: no route to host"},
	} {
		log, recorder := &bytes.Buffer{}, events.NewFakeRecorder(5)
		config := &Config{Machine: func(*corev1.Node) (Machine, error) {
			return Machine{Provider: broken{tc.err}, Name: "racks", Device: "racks/bmc1"}, nil
		}}
		p := &Probe{Reconciler: New(Options{
			Now: time.Now, Log: slog.New(slog.NewTextHandler(log, nil)), Events: recorder, Config: func() *Config { return config }, Leading: func() error { return nil },
		}), told: map[string]string{}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		class, text := p.one(t.Context(), node)
		p.tell(node, class, text)
		if class != providers.Class(tc.err) || strings.Contains(text, "\x1b") {
			t.Errorf("got class %s, text %q", class, text)
		}
		if e := <-recorder.Events; !strings.Contains(e, tc.want) || !strings.Contains(log.String(), tc.want) {
			t.Errorf("got Event %q\nand log %q\nwant %q in both", e, log, tc.want)
		}
	}
}

// The same holds for a node that looks dead, and for a power-off that is refused.
func TestCauseOfAnUnknownAnswer(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerUnknown}, taint.PhaseEvicting)
	x.live.pods = podsOf("n1", "a")
	x.upTo(recovery.Wait)
	x.st.machine.Provider = broken{providers.WithClass(providers.ErrDenied, errors.New("403 Forbidden (no licence)"))}
	x.ask(t.Context(), x.st)
	if got := x.st.answer(); got != "denied: 403 Forbidden (no licence)" {
		t.Errorf("got %q", got)
	}
	x.tell(x.st, recovery.Step{Do: recovery.Wait, Why: reason.Unknown})
	if got := told(x.events); len(got) != 1 || !strings.Contains(got[0], "403 Forbidden (no licence)") {
		t.Errorf("got Events %q", got)
	}
}

// Of a node with several devices each is told that does not answer, and all of them when they contradict each other.
func TestProbeOfTwoDevices(t *testing.T) {
	const on, off, unknown = providers.PowerOn, providers.PowerOff, providers.PowerUnknown
	device := func(name string, s providers.PowerState) Machine {
		return Machine{Provider: &oneMachine{now: time.Now, state: s}, Name: name, Device: name + "/1"}
	}
	for _, tc := range []struct {
		name          string
		first, second Machine
		class, says   string
	}{
		{"both answer", device("racks", on), device("pdus", on), "ok", "Device racks/1 answers: On. Device pdus/1 answers: On."},
		{"the second is down", device("racks", on), Machine{Provider: broken{providers.ErrDenied}, Name: "pdus", Device: "pdus/1"}, "denied", "Device pdus/1 cannot say whether the machine is on (denied: access denied). Another device of this node answers."},
		{"the first says what nobody knows", device("racks", unknown), device("pdus", on), "unknown", "Device racks/1 answers with an unknown word"},
		{"both are down", Machine{Provider: broken{providers.ErrDenied}, Device: "racks/1"}, Machine{Provider: broken{providers.ErrDenied}, Device: "pdus/1"}, "denied", "This node could not be fenced at present."},
		{"they disagree", device("racks", on), device("pdus", off), "disagree", "The devices of this node contradict each other (racks/1: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := tc.first
			m.Further = []Machine{tc.second}
			config := &Config{Machine: func(*corev1.Node) (Machine, error) { return m, nil }}
			p := &Probe{Reconciler: New(Options{Now: time.Now, Log: slog.New(slog.DiscardHandler), Config: func() *Config { return config }})}
			class, text := p.one(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			if class != tc.class || !strings.Contains(text, tc.says) {
				t.Errorf("got %s, %q, want %s, %q", class, text, tc.class, tc.says)
			}
		})
	}
}
