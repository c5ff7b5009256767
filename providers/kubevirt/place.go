package kubevirt

import (
	"context"
	"fmt"
	"slices"

	"github.com/forcefence/forcefence/providers"
)

// Hypervisors implements providers.Hypervisors: the host cluster's nodes on which the guests may run.
func (c *Config) Hypervisors() []string { return c.Hosts }

// FindGuest reports whether the instance has a launcher pod on one host that has not ended. The API server answers for
// all hosts, as it places each pod before a kubelet starts it. A host that is not Ready is an error, because its own
// device must answer for it. So is an instance that is gone, which would be on no host.
func (p *Provider) FindGuest(ctx context.Context, on string, t providers.Target) (out providers.Placement, _ error) {
	err := p.runCall(ctx, "look on a host for", t, func(ctx context.Context, m machine) error {
		at := providers.InstantOf(p.opts.Now())
		if !slices.Contains(p.cfg.Hosts, on) {
			return providers.Errorf(providers.ErrPermanent, "no such host is configured")
		}
		l, err := m.look(ctx)
		if err != nil {
			return err
		}
		absent, err := l.isAbsent(t, on, p.cfg.Hosts)
		if err != nil {
			return err
		}
		h, err := m.readHost(ctx, on)
		switch {
		case err != nil:
			return err
		case h.ready != "True":
			return providers.Errorf(providers.ErrUnreachable, "the host is not Ready")
		}
		out = providers.Placement{Absent: absent, At: at, Raw: "launcher pod on " + on}
		if absent {
			out.Raw = "no launcher pod on " + on
		}
		return nil
	})
	return out, err
}

// isAbsent reports whether every launcher pod that has not ended is on another one of the hosts. An error means that
// the API server's objects do not say where the guest is.
func (l look) isAbsent(t providers.Target, on string, hosts []string) (bool, error) {
	if l.vmi == nil {
		return false, providers.Errorf(providers.ErrNotFound, "no instance, so it is unknown where the guest ran last")
	}
	if err := providers.SameMachine(t.SystemUUID, l.systemUUID()); err != nil {
		return false, err
	}
	_, node := providers.ParseUUID(t.SystemUUID)
	_, guest := providers.ParseUUID(l.systemUUID())
	if !node || !guest {
		return false, providers.Errorf(providers.ErrIdentity, "the node or the instance has no usable system UUID")
	}
	why := l.findMissing()
	if !slices.Contains(phases, l.vmi.Status.Phase) {
		why = fmt.Sprintf("its phase is %.40q", l.vmi.Status.Phase)
	}
	absent, ended := true, true
	for _, p := range l.pods {
		switch name := p.Spec.NodeName; {
		case p.whyNotEnded() == "":
			continue
		case name == "":
			why = "a launcher pod has no host yet"
		case !slices.Contains(hosts, name):
			why = "it may be on " + name + ", which is not one of hosts"
		case name == on:
			absent = false
		}
		ended = false
	}
	switch {
	case why != "":
		return false, providers.Errorf(providers.ErrUnreachable, "it is unknown where the guest is: %s", why)
	case ended:
		return false, providers.Errorf(providers.ErrUnreachable, "its launcher pods have ended: ask for its state")
	}
	return absent, nil
}
