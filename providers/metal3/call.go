package metal3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ipmi"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/providers/remote/kubeapi"
)

// bmc is a provider of the type redfish or ipmi for one BMC.
type bmc interface {
	providers.Provider
	providers.Closer
}

// call is one call about a host: what was read of it, and its BMC.
type call struct {
	ref    hostRef
	api    *kubeapi.Client
	host   *host
	bmc    bmc
	target providers.Target // as the BMC's type knows it
}

// runHostCall reads the target's BareMetalHost, and runs one call without its BMC.
func (p *Provider) runHostCall(
	ctx context.Context, act string, t providers.Target, f func(context.Context, call) error,
) error {
	return remote.RunCall(ctx, act, t, "metal3 "+p.opts.Name+" "+p.DeviceOf(t), func(ctx context.Context) error {
		ref, err := p.cfg.parseID(t.ID)
		if err != nil {
			return providers.WithClass(providers.ErrNotFound, fmt.Errorf("the target's ID %w", err))
		}
		c := call{ref: ref, target: t}
		if c.api, err = p.api.Client(); err != nil {
			return err
		}
		if c.host, err = c.readHost(ctx); err != nil {
			return err
		}
		return f(ctx, c)
	})
}

// runCall reads the target's BareMetalHost and Secret, and runs one call with their BMC.
func (p *Provider) runCall(
	ctx context.Context, act string, t providers.Target, f func(context.Context, call) error,
) error {
	return p.runHostCall(ctx, act, t, func(ctx context.Context, c call) error {
		if err := c.host.checkConsumer(c.ref.machine); err != nil {
			return err
		}
		a, err := p.readAccess(ctx, c)
		if err != nil {
			return err
		}
		s, release, err := p.pool.Acquire(a.account(c.ref))
		if err != nil {
			return err
		}
		defer release()
		if c.bmc, err = s.open(a, p); err != nil {
			return err
		}
		c.target.ID = a.Address.id
		err = f(ctx, c)
		if errors.Is(err, providers.ErrUntrusted) && c.host.Spec.BMC.DisableCertificateVerification &&
			!p.cfg.AllowUnverified {
			err = providers.Errorf(providers.ErrUntrusted, "the BareMetalHost's disableCertificateVerification counts "+
				"only with allowUnverified: %s", providers.ErrorText(err))
		}
		return err
	})
}

const hostsPath = "/apis/metal3.io/v1alpha1/namespaces"

func (c call) path() []string {
	return []string{hostsPath, c.ref.namespace, "baremetalhosts", c.ref.name}
}

// readHost reads the BareMetalHost.
func (c call) readHost(ctx context.Context) (*host, error) {
	var h host
	if err := c.api.Get(ctx, &h, "BareMetalHost", "", c.path()...); err != nil {
		return nil, fmt.Errorf("reading the BareMetalHost: %w", err)
	}
	if m := h.Metadata; m.Name != c.ref.name || m.Namespace != c.ref.namespace || m.UID == "" ||
		m.ResourceVersion == "" {
		return nil, providers.Errorf(providers.ErrPermanent, "the API server answered for another BareMetalHost")
	}
	return &h, nil
}

// access is how a BMC is reached.
type access struct {
	Address        address
	User, Password string
	Unverified     bool // the BareMetalHost has disableCertificateVerification
}

// account returns the pool's name of the BMC: another one for each address and Secret.
func (a access) account(r hostRef) remote.Account {
	sum := sha256.New()
	for _, part := range []string{a.Address.id, a.Address.privilege, a.User, a.Password, fmt.Sprint(a.Unverified)} {
		fmt.Fprintf(sum, "%d %s", len(part), part)
	}
	return remote.Account{Device: r.namespace + "/" + r.name, Owner: hex.EncodeToString(sum.Sum(nil))}
}

// readAccess reads the address, and the credentials from the Secret in the host's own namespace.
func (p *Provider) readAccess(ctx context.Context, c call) (a access, err error) {
	of := c.host.Spec.BMC
	if a.Address, err = parseAddress(of.Address); err != nil {
		return a, err
	}
	if !isName(of.CredentialsName) {
		return a, providers.Errorf(providers.ErrDenied, "the BareMetalHost names no Secret (spec.bmc.credentialsName)")
	}
	var secret struct {
		kubeapi.TypeMeta
		Metadata struct{ Name, Namespace string }
		Data     map[string][]byte
	}
	err = c.api.Get(ctx, &secret, "Secret", "", "/api/v1/namespaces", c.ref.namespace, "secrets", of.CredentialsName)
	switch {
	case errors.Is(err, providers.ErrNotFound): // the BMC exists, and its credentials do not
		return a, providers.Errorf(providers.ErrDenied, "the BareMetalHost's Secret does not exist")
	case err != nil:
		return a, fmt.Errorf("reading the BareMetalHost's Secret: %w", err)
	}
	a.User, a.Password = trimmed(secret.Data["username"]), trimmed(secret.Data["password"])
	a.Unverified = of.DisableCertificateVerification
	if secret.Metadata.Name != of.CredentialsName || secret.Metadata.Namespace != c.ref.namespace || a.User == "" ||
		a.Password == "" {
		return a, providers.Errorf(providers.ErrDenied, "the BareMetalHost's Secret has no username or no password")
	}
	return a, nil
}

// trimmed is a value of a Secret as the baremetal-operator reads it.
func trimmed(value []byte) string { return strings.TrimSpace(string(value)) }

// slot holds the BMC of one account of the pool.
type slot struct {
	once sync.Once
	bmc  bmc
	err  error
}

// open returns the BMC. The first call of a slot makes it, and contacts no device.
func (s *slot) open(a access, p *Provider) (bmc, error) {
	s.once.Do(func() {
		credentials := remote.GivenCredentials(a.User, providers.NewSecret(a.Password))
		if a.Address.ipmi {
			c := ipmi.NewConfig()
			c.Credentials, c.Privilege = credentials, a.Address.privilege
			if _, _, s.err = c.CanonicalID(a.Address.id); s.err == nil {
				s.bmc, s.err = ipmi.New(*c, p.opts)
			}
		} else {
			c := redfish.NewConfig()
			c.Credentials, c.Trust, c.AllowHTTP = credentials, *p.cfg.trust(a.Unverified), p.cfg.AllowHTTP
			if _, _, s.err = c.CanonicalID(a.Address.id); s.err == nil {
				s.bmc, s.err = redfish.New(*c, p.opts)
			}
		}
		if s.err != nil {
			s.err = providers.Errorf(providers.ErrPermanent, "the BareMetalHost's spec.bmc.address %w", s.err)
		}
	})
	return s.bmc, s.err
}

func (s *slot) close(ctx context.Context) error {
	s.once.Do(func() { s.err = remote.ErrClosed })
	if s.err != nil {
		return nil
	}
	return s.bmc.Close(ctx)
}

// confirm asks the BMC which machine it controls. The write that follows names the version of the BareMetalHost that
// led to this BMC, so it reaches that machine or none.
func (c call) confirm(ctx context.Context, now func() time.Time) error {
	sent := providers.InstantOf(now())
	obs, err := c.bmc.State(ctx, c.target)
	return providers.CheckIdentity(c.target, sent, obs, err)
}

// annotate writes what of returns for the host that was read. If the BareMetalHost changed since then, it writes
// nothing: the error is ErrUnreachable, unless there is nothing left to be written.
func (c call) annotate(ctx context.Context, of func(*host) annotations) error {
	change := of(c.host)
	if len(change) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": c.host.Metadata.UID, "resourceVersion": c.host.Metadata.ResourceVersion, "annotations": change,
	}})
	if err != nil {
		return err
	}
	err = c.api.Patch(ctx, patch, c.path()...)
	if kubeapi.IsStatus(err, http.StatusConflict) {
		if again, lost := c.readHost(ctx); lost == nil && again.Metadata.UID == c.host.Metadata.UID &&
			len(of(again)) == 0 {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("annotating the BareMetalHost: %w", err)
	}
	return nil
}

// awaitDetached waits until the baremetal-operator has let go of the host. The error is ErrUnreachable if that takes
// longer than the call has left: the next call goes on.
func (c call) awaitDetached(ctx context.Context, every time.Duration) error {
	end, limited := ctx.Deadline()
	for {
		h, err := c.readHost(ctx)
		if err != nil {
			return err
		}
		switch why := h.whyKeptOn(PowerOffDetach); {
		case why != "":
			return providers.Errorf(providers.ErrPermanent, "%s", why)
		case h.Metadata.UID != c.host.Metadata.UID || h.Spec.BMC != c.host.Spec.BMC:
			return providers.Errorf(providers.ErrUnreachable, "the BareMetalHost changed while it was detached")
		case h.isDetached():
			return nil
		case limited && time.Until(end) < every+time.Second:
			return providers.Errorf(providers.ErrUnreachable,
				"%s is not detached yet (operationalStatus %.40q): the power-off is not sent", h,
				h.Status.OperationalStatus)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}
