package controller

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/machine"
)

// orderTaker is a device whose power-offs others carry out.
type orderTaker struct {
	oneMachine
	lives []providers.Life // of the power-offs
	taken []providers.Life // of the withdrawals
	err   error            // of a withdrawal
}

func (o *orderTaker) PowerOff(_ context.Context, t providers.Target, _ func() error) error {
	o.lives = append(o.lives, t.Life)
	return nil
}

func (o *orderTaker) Withdraw(_ context.Context, t providers.Target) error {
	o.taken = append(o.taken, t.Life)
	return o.err
}

// withOrders is a node whose silent machine is on, and whose device is this.
func withOrders(t *testing.T, o *orderTaker) *midst {
	x := inMidst(t, &o.oneMachine, "")
	o.state = providers.PowerOn
	config := x.Config()
	config.Machines.Led = func(*corev1.Node) (machine.Machine, error) {
		return machine.Machine{Provider: o, Name: "hosts", Device: "hosts/n1", Orders: true,
			Target: providers.Target{Node: "n1"}, Identity: taint.MachineRef{Provider: "hosts", ID: "n1"}}, nil
	}
	x.Config = func() *Config { return config }
	x.live.pods = podsOf("n1", "p")
	return x
}

// beat is a heartbeat of the node.
func (x *midst) beat() {
	x.live.lease = "2"
	x.live.node = x.live.node.DeepCopy()
	x.live.node.Status.Conditions[0].Status = corev1.ConditionTrue
}

// An order names its fence, and is in the record before it is given. Once the node shows life it is taken back, again
// and again until that succeeds. Then the record no longer names it.
func TestOrdersAreWithdrawn(t *testing.T) {
	o := &orderTaker{err: providers.ErrUnreachable}
	x := withOrders(t, o)
	announced := x.upTo("WriteRecord")
	rec := action.RecordOf(announced.Action)
	if len(rec.Orders) != 1 || rec.Orders[0].Device != "hosts/n1" {
		t.Fatalf("got orders %+v in the announcement, want one to hosts/n1", rec.Orders)
	}
	x.does(announced)
	x.does(x.upTo("PowerOff"))
	if want := []providers.Life{{NodeUID: "u", BootID: "b", Fence: rec.ID}}; !slices.Equal(o.lives, want) {
		t.Errorf("got power-offs of %+v, want %+v", o.lives, want)
	}
	x.beat()
	x.does(x.upTo("WriteRecord"))
	for range 2 { // the first withdrawal fails
		d, before := x.upTo("WithdrawOrders"), x.api.patches
		done := x.act(t.Context(), d)
		if !errors.Is(done.Err, o.err) || done.Withheld {
			t.Errorf("got %+v, want error %v", done, o.err)
		}
		if o.err == nil {
			if left := action.RecordOf(d.Action); len(left.Orders) > 0 || left.Result != taint.ResultCancelled {
				t.Errorf("got record %+v, want the closed one without orders", left)
			}
			x.write(action.RecordOf(d.Action))
		} else if x.api.patches > before {
			t.Error("the record was written although the order remains")
		}
		o.err = nil
		x.work().applyObservation(done)
	}
	if len(o.taken) != 2 || o.taken[0].NodeUID != "u" {
		t.Errorf("got withdrawals %+v, want two of Node u", o.taken)
	}
	x.upTo("NoAction")
}

// A process that may not lead takes nothing back. A device that no longer speaks for the node is found by the record.
func TestWithdrawnOrdersDevice(t *testing.T) {
	o, other := &orderTaker{}, &orderTaker{}
	x := withOrders(t, o)
	x.does(x.upTo("WriteRecord"))
	x.beat()
	x.does(x.upTo("WriteRecord"))
	d := x.upTo("WithdrawOrders")
	x.Leading = func() error { return errStale }
	if done := x.act(t.Context(), d); !errors.Is(done.Err, errStale) || len(o.taken) > 0 {
		t.Errorf("no leader: got %v and withdrawals %+v, want %v and none", done.Err, o.taken, errStale)
	}
	x.Leading = func() error { return nil }
	x.st.machine = machine.Machine{Provider: other, Device: "hosts/n2",
		Identity: taint.MachineRef{Provider: "hosts", ID: "n2"}}
	recorded := machine.Machine{Provider: o, Device: "hosts/n1"}
	var err error
	config := x.Config()
	config.Machines.Recorded = func(_ *corev1.Node, m taint.MachineRef) (machine.Machine, error) {
		if m.ID != "n1" {
			t.Errorf("asked for the machine %+v, want n1", m)
		}
		return recorded, err
	}
	if err = errors.New("no such provider"); x.act(t.Context(), d).Err == nil {
		t.Error("a provider that is gone: got no error")
	}
	if err = nil; x.act(t.Context(), d).Err != nil || len(o.taken) != 1 || len(other.taken) > 0 {
		t.Errorf("got withdrawals %+v, and of another machine %+v; want one of its own", o.taken, other.taken)
	}
}
