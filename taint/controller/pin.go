package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// ErrNotBelieved is the class of a machine that something leads to and that is not believed to be the node's.
var ErrNotBelieved = errors.New("the node's machine is not believed")

// Believed finds the devices that speak for a node: the first, as far as it is believed (believe), and those of the further levels, to
// which the operator's word leads. A level is left out whole where another node has one of its devices as well, or where one speaks
// already: the others of it alone would prove what they must not. The error is why there is none.
func (p *Config) Believed(node *corev1.Node, rec *taint.Record) (Machine, error) {
	led, _ := p.Machine(node)
	m, b, err := p.believe(node, rec, false)
	m.NoPower = b.NoPower
	if m.Device != led.Device && slices.ContainsFunc(led.Further, func(f Machine) bool { return f.Device == m.Device }) {
		m = Machine{} // the fence began with it as one of a level, and it proves with that
	}
	out := map[int]bool{}
	for i, f := range led.Further {
		if f.Clash.Refused != "" || f.Device == m.Device || slices.ContainsFunc(led.Further[:i], func(o Machine) bool { return o.Device == f.Device }) {
			out[f.Level] = true
		}
	}
	m.Further = slices.DeleteFunc(slices.Clone(led.Further), func(f Machine) bool { return out[f.Level] })
	if len(m.Further) == 0 {
		return m, err
	}
	m.Mode = led.Mode
	return m, nil
}

// believe finds the first device of a node: by its open fence's record, else by what leads to one now, as far as taint.Believe believes it.
// healthy allows a pin, which the Belief then asks for.
func (p *Config) believe(node *corev1.Node, rec *taint.Record, healthy bool) (Machine, taint.Belief, error) {
	m, err := p.Machine(node)
	v := taint.Identity{
		Claim: taint.Claim{Node: node.Name, Machine: m.Identity, Claimed: m.Target.Claimed, Fixed: m.Fixed, Pin: node.Labels[taint.PinLabel]},
		Clash: m.Clash, Record: rec, Healthy: healthy,
	}
	b := taint.Believe(v)
	switch {
	case b.Refused != "":
		return Machine{}, b, fmt.Errorf("%w: %s", ErrNotBelieved, b.Refused)
	case b.Machine != m.Identity: // the record's
		mode, limits := m.Mode, m.Limits
		if m, err = p.Recorded(node, b.Machine); err == nil {
			m.Mode, m.Limits = mode, limits
		}
	}
	if err == nil && rec.Open() && rec.Machine == nil && rec.Device != "" && rec.Device != m.Device {
		err = fmt.Errorf("%w: the fence began with device %s, but the node now names %s", ErrNotBelieved, rec.Device, m.Device)
	}
	if err != nil {
		return Machine{}, b, err
	}
	m.Target.Claimed = b.Claimed
	if b.NoPower != "" {
		m.Mode = fence.Safer(m.Mode, fence.Observe)
	}
	m.Further = nil
	return m, b, nil
}

// since adds to an error how long it has stood, which a person needs to find what changed.
func (st *nodeState) since(err error, now time.Time) error {
	switch {
	case !errors.Is(err, ErrNotBelieved):
		st.unbelieved = time.Time{}
		return err
	case st.unbelieved.IsZero():
		st.unbelieved = now
	}
	return fmt.Errorf("%w (since %s)", err, st.unbelieved.UTC().Format(time.RFC3339))
}

// pinRetry is how long a pin waits that the API server refused, or that another node's stands against.
const pinRetry = time.Minute

// pin writes the pin of a healthy node that has none, or whose machine has changed, by what the informer brought: a node that changed
// since is a conflict. It is all that a healthy node costs, once. It returns when to try again; zero: a change will wake us.
func (r *Reconciler) pin(ctx context.Context, node *corev1.Node, l taint.Look, st *nodeState) (after time.Duration) {
	_, b, err := r.Config().believe(node, l.Record, true)
	if err = st.since(err, r.Now()); errors.Is(err, ErrNotBelieved) {
		if st.refused != b.Refused {
			st.refused = b.Refused
			r.Log.Warn("Machine is not believed", "node", l.Name, "why", err)
			r.event(node, reason.NotBelieved, "Pin", "{detail}", err.Error())
		}
		return pinRetry // the node that has its machine may go
	}
	st.refused = ""
	now := r.Now()
	switch {
	case err != nil || b.Pin == "":
		return 0
	case now.Before(st.pinAgain):
		return st.pinAgain.Sub(now)
	}
	err = r.writer.Pin(ctx, l, b.Pin)
	switch {
	case errors.Is(err, kube.ErrAgain):
		return time.Second
	case err != nil:
		st.pinAgain = now.Add(pinRetry)
		r.Log.Warn("Could not pin the node's machine", "node", l.Name, "error", err)
		return pinRetry
	}
	r.Log.Debug("Pinned the node's machine", "node", l.Name, "machine", b.Machine.String())
	if b.Repin {
		r.Log.Info("Pinned the node to another machine", "node", l.Name, "machine", b.Machine.String())
		r.event(node, reason.Repinned, "Pin", "{detail}", b.Machine.String())
	}
	return 0
}
