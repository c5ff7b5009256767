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
