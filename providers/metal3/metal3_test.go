package metal3_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/metal3"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/ipmisim"
)

func TestCanonicalID(t *testing.T) {
	c := metal3.Config{Namespaces: []string{"metal3", "other"}}
	tests := []struct{ id, want, err string }{
		{"metal3/host-1", "metal3/host-1", ""},
		{"other/host.1", "other/host.1", ""},
		{"metal3://metal3/host-1/worker-1", "metal3/host-1/worker-1", ""},
		{"metal3://metal3/host-1", "metal3/host-1", ""},
		{"metal3://b71bd6d6-5d5a-4d59-8b29-8a7e2a5b6f1d", "", "older ones"},
		{"metal3://elsewhere/host-1/worker-1", "", "another namespace"},
		{"metal3/../secrets", "", "is not a BareMetalHost"},
		{"metal3/host-1/w/x", "", "is not a BareMetalHost"},
		{"metal3/Host", "", "is not a BareMetalHost"},
		{"metal3/host-1/..", "", "is not a BareMetalHost"},
		{"host-1", "", "is not a BareMetalHost"},
		{"", "", "is not a BareMetalHost"},
	}
	for _, tt := range tests {
		got, hosts, err := c.CanonicalID(tt.id)
		if got != tt.want || len(hosts) > 0 || (err == nil) != (tt.err == "") ||
			err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: got %q, %q, %v; want %q, %q", tt.id, got, hosts, err, tt.want, tt.err)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, edit := range map[string]func(*metal3.Config){
		"":              func(*metal3.Config) {},
		"namespaces":    func(c *metal3.Config) { c.Namespaces = nil },
		"namespaces[1]": func(c *metal3.Config) { c.Namespaces = []string{"metal3", "metal3"} },
		"namespaces[0]": func(c *metal3.Config) { c.Namespaces = []string{"../x"} },
		"powerOff":      func(c *metal3.Config) { c.PowerOff = "reboot" },
		"kubeconfig":    func(c *metal3.Config) { c.Kubeconfig = "kubeconfig" },
		"caFile":        func(c *metal3.Config) { c.CAFile = "/nowhere" },
	} {
		c := metal3.Type().NewConfig().(*metal3.Config)
		c.Namespaces = []string{"metal3"}
		edit(c)
		got := ""
		for _, p := range c.Validate() {
			got += p.Path
		}
		if got != want {
			t.Errorf("got problems of %q, want of %q", got, want)
		}
	}
}

// A BMC's Off counts only on a host on which Metal3 does not work, and status.poweredOn never does.
func TestState(t *testing.T) {
	const name = "BareMetalHost metal3/host-1"
	keep := func(*site) {}
	sets := func(value any, path ...string) func(*site) { return func(s *site) { s.edit(value, path...) } }
	tests := []struct {
		name  string
		on    bool
		edit  func(*site)
		state providers.PowerState
		raw   string
		err   error
	}{
		{"on", true, keep, providers.PowerOn, "On", nil},
		{"off, and poweredOn lies", false, sets(true, "status", "poweredOn"), providers.PowerOff, "Off", nil},
		{"on, and poweredOn lies", true, sets(false, "status", "poweredOn"), providers.PowerOn, "On", nil},
		{"externally provisioned", false, sets("externally provisioned", "status", "provisioning", "state"),
			providers.PowerOff, "Off", nil},
		{"servicing", false, sets("servicing", "status", "operationalStatus"), providers.PowerUnknown,
			"Off, but " + name + " is servicing", nil},
		{"delayed", false, sets("delayed", "status", "operationalStatus"), providers.PowerUnknown,
			"Off, but " + name + " is delayed", nil},
		{"servicing, on", true, sets("servicing", "status", "operationalStatus"), providers.PowerOn, "On", nil},
		{"deprovisioning", false, sets("deprovisioning", "status", "provisioning", "state"), providers.PowerUnknown,
			"Off, but " + name + ` is in provisioning state "deprovisioning"`, nil},
		{"no state", false, sets(nil, "status", "provisioning"), providers.PowerUnknown,
			"Off, but " + name + ` is in provisioning state ""`, nil},
		{"being deleted", false, sets("2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"), providers.PowerUnknown,
			"Off, but " + name + " is being deleted", nil},
		{"error", false, sets("error", "status", "operationalStatus"), providers.PowerOff, "Off", nil},
		{"of another Metal3Machine", false, sets("worker-2", "spec", "consumerRef", "name"), providers.PowerUnknown, "",
			providers.ErrIdentity},
		{"of a Metal3Machine elsewhere", false, sets("elsewhere", "spec", "consumerRef", "namespace"),
			providers.PowerUnknown, "", providers.ErrIdentity},
		{"of no Metal3Machine", false, sets(nil, "spec", "consumerRef"), providers.PowerUnknown, "",
			providers.ErrIdentity},
		{"another machine's BMC", false, func(s *site) {
			s.bmc.SetFault(datacenter.Fault{SystemUUID: "11111111-2222-4333-8444-555555555555"})
		}, providers.PowerUnknown, "Off", providers.ErrIdentity},
		{"unsupported driver", false, sets("irmc://10.0.0.7", "spec", "bmc", "address"), providers.PowerUnknown, "",
			providers.ErrPermanent},
		{"a path elsewhere", false, sets("redfish://10.0.0.7/redfish/v1/Chassis/1", "spec", "bmc", "address"),
			providers.PowerUnknown, "", providers.ErrPermanent},
		{"http", false, sets("redfish+http://10.0.0.7", "spec", "bmc", "address"), providers.PowerUnknown, "",
			providers.ErrPermanent},
		{"a Secret elsewhere", false, sets("../../other/secrets/s", "spec", "bmc", "credentialsName"),
			providers.PowerUnknown, "", providers.ErrDenied},
		{"no Secret", false, func(s *site) { s.secret = nil }, providers.PowerUnknown, "", providers.ErrDenied},
		{"no password", false, func(s *site) { s.secret["password"] = []byte("\n") }, providers.PowerUnknown, "",
			providers.ErrDenied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, datacenter.Options{})
			s.runs = false
			if !tt.on {
				s.m.CutPower()
			}
			tt.edit(s)
			a := ask(t, s.open(t, nil), s.target())
			if a.State != tt.state || tt.err == nil && a.Raw != tt.raw || !errors.Is(a.Err, tt.err) {
				t.Errorf("got %s (%q), %v; want %s (%q), %v", a.State, a.Raw, a.Err, tt.state, tt.raw, tt.err)
			}
			if s.writes() > 0 {
				t.Errorf("a question wrote %v", s.written)
			}
		})
	}
}

// An ID from a list has no Metal3Machine, and the operator answers for it.
func TestListedHost(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	s.edit("worker-2", "spec", "consumerRef", "name")
	of := s.target()
	of.ID = "metal3/host-1"
	if a := ask(t, s.open(t, nil), of); a.State != providers.PowerOn {
		t.Errorf("got %s, %v; want On", a.State, a.Err)
	}
}

// A changed Secret and a changed address count with the next question, and a refused password is not sent again before.
func TestChanges(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	p := s.open(t, nil)
	if a := ask(t, p, s.target()); a.State != providers.PowerOn {
		t.Fatalf("got %s, %v; want On", a.State, a.Err)
	}
	s.dc.SetPassword("rotated")
	s.bmc.ExpireSessions()
	for range 3 {
		if a := ask(t, p, s.target()); !errors.Is(a.Err, providers.ErrDenied) {
			t.Errorf("a wrong password: got %v, want %v", a.Err, providers.ErrDenied)
		}
	}
	sent := 0
	for _, r := range s.bmc.Requests() {
		if r.Password {
			sent++
		}
	}
	if sent > 3 { // the first, and the old one as a session and as basic
		t.Errorf("passwords sent: got %d, want at most 3", sent)
	}
	s.mu.Lock()
	s.secret["password"] = []byte("rotated")
	s.mu.Unlock()
	if a := ask(t, p, s.target()); a.State != providers.PowerOn {
		t.Errorf("a new password: got %s, %v; want On", a.State, a.Err)
	}
	other := s.dc.AddMachine("m2")
	s.edit(strings.Replace(s.dc.AddBMC(other).URL(), "https", "redfish", 1), "spec", "bmc", "address")
	if a := ask(t, p, s.target()); !errors.Is(a.Err, providers.ErrIdentity) {
		t.Errorf("another machine's address: got %s, %v; want %v", a.State, a.Err, providers.ErrIdentity)
	}
}

// A certificate is checked, unless the host and the configuration agree that it is not.
func TestCertificates(t *testing.T) {
	tests := []struct {
		name           string
		allowed, asked bool
		want           providers.PowerState
	}{
		{"neither", false, false, providers.PowerUnknown},
		{"only the host", false, true, providers.PowerUnknown},
		{"only the configuration", true, false, providers.PowerUnknown},
		{"both", true, true, providers.PowerOn},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, datacenter.Options{})
			s.edit(tt.asked, "spec", "bmc", "disableCertificateVerification")
			p := s.open(t, func(c *metal3.Config) { c.CAFile, c.AllowUnverified = "", tt.allowed })
			a := ask(t, p, s.target())
			if a.State != tt.want || tt.want == providers.PowerUnknown && !errors.Is(a.Err, providers.ErrUntrusted) {
				t.Errorf("got %s, %v; want %s", a.State, a.Err, tt.want)
			}
			if hint := a.Err != nil &&
				strings.Contains(providers.ErrorText(a.Err), "allowUnverified"); hint != (tt.asked &&
				!tt.allowed) {
				t.Errorf("got %v, and it names allowUnverified: %t", a.Err, hint)
			}
		})
	}
}

// A host that asks for its BMC's certificate to be checked again is believed at once: no earlier connection counts.
func TestCertificateIsCheckedAgain(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	s.edit(true, "spec", "bmc", "disableCertificateVerification")
	p := s.open(t, func(c *metal3.Config) { c.CAFile, c.AllowUnverified = "", true })
	if a := ask(t, p, s.target()); a.State != providers.PowerOn {
		t.Fatalf("not checked: got %s, %v; want On", a.State, a.Err)
	}
	s.edit(false, "spec", "bmc", "disableCertificateVerification")
	if a := ask(t, p, s.target()); !errors.Is(a.Err, providers.ErrUntrusted) {
		t.Errorf("checked again: got %s, %v; want %v", a.State, a.Err, providers.ErrUntrusted)
	}
}

// An answer about another host than the one that was asked for counts for nothing.
func TestAnswerAboutAnotherHost(t *testing.T) {
	for field, value := range map[string]any{"name": "host-2", "namespace": "other", "uid": ""} {
		s := newSite(t, datacenter.Options{})
		s.edit(value, "metadata", field)
		p := s.open(t, nil)
		if a := ask(t, p, s.target()); a.State != providers.PowerUnknown || !errors.Is(a.Err, providers.ErrPermanent) {
			t.Errorf("%s: got %s, %v; want %v", field, a.State, a.Err, providers.ErrPermanent)
		}
		if err := p.PowerOff(t.Context(), s.target(), providertest.AllowSend); err == nil || s.writes()+s.resets() > 0 {
			t.Errorf("%s: PowerOff: got %v, %d writes, %d resets; want none", field, err, s.writes(), s.resets())
		}
	}
}

// By request the baremetal-operator powers the host off and keeps it off, and PowerOn takes back nothing but ours.
func TestRequest(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	const stranger = "reboot.metal3.io/metal3-remediation-1"
	p := s.open(t, nil)
	must(t, p.PowerOff(t.Context(), s.target(), providertest.AllowSend))
	if got := s.annotations(); !maps.Equal(got, map[string]string{reboot: `{"mode":"hard"}`, offLife: life}) {
		t.Errorf("annotations: got %v", got)
	}
	if a := ask(t, p, s.target()); a.State != providers.PowerOff || s.resets() > 0 {
		t.Errorf("got %s, %v, and %d resets by the BMC; want Off, by Metal3", a.State, a.Err, s.resets())
	}
	must(t, p.PowerOff(t.Context(), s.target(), providertest.AllowSend)) // once more
	if n := s.writes(); n != 1 {
		t.Errorf("writes: got %d, want 1", n)
	}
	s.edit("", "metadata", "annotations", stranger)
	s.edit("metal3.io/capm3", "metadata", "annotations", paused)
	must(t, p.PowerOn(t.Context(), s.target(), providertest.AllowSend))
	if got := s.annotations(); !maps.Equal(got, map[string]string{stranger: "", paused: "metal3.io/capm3"}) {
		t.Errorf("annotations after PowerOn: got %v, want those of others", got)
	}
	s.edit(nil, "metadata", "annotations", paused)
	err := p.PowerOn(t.Context(), s.target(), providertest.AllowSend)
	if !errors.Is(err, providers.ErrPermanent) || !strings.Contains(err.Error(), stranger) {
		t.Errorf("PowerOn of a host that another keeps off: got %v, want its annotation's name", err)
	}
	s.edit(nil, "metadata", "annotations", stranger)
	if a := ask(t, p, s.target()); a.State != providers.PowerOn || a.Raw != "On" {
		t.Errorf("got %s (%q), %v; want On", a.State, a.Raw, a.Err)
	}
	s.edit(false, "spec", "online")
	if err := p.PowerOn(t.Context(), s.target(), providertest.AllowSend); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("PowerOn with online: false: got %v, want %v", err, providers.ErrPermanent)
	}
}

// Detached, the host is powered off and on by its BMC, and the baremetal-operator takes it back at the end.
func TestDetach(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	p := s.open(t, func(c *metal3.Config) { c.PowerOff = metal3.PowerOffDetach })
	must(t, p.PowerOff(t.Context(), s.target(), providertest.AllowSend))
	ours := map[string]string{detached: `{"deleteAction":"delay"}`, detachedLife: life}
	if got := s.annotations(); !maps.Equal(got, ours) || s.resets() != 1 {
		t.Errorf("got annotations %v, %d resets; want %v, 1", got, s.resets(), ours)
	}
	if a := ask(t, p, s.target()); a.State != providers.PowerOff {
		t.Errorf("got %s, %v; want Off", a.State, a.Err)
	}
	must(t, p.PowerOn(t.Context(), s.target(), providertest.AllowSend))
	if got := s.annotations(); len(got) > 0 || s.resets() != 2 {
		t.Errorf("got annotations %v, %d resets; want none, 2", got, s.resets())
	}
	if a := ask(t, p, s.target()); a.State != providers.PowerOn {
		t.Errorf("got %s, %v; want On", a.State, a.Err)
	}

	for key, value := range ours { // another client detached it since, in its own words
		s.edit(value, "metadata", "annotations", key)
	}
	const theirs = `{"deleteAction":"delete"}`
	s.edit(theirs, "metadata", "annotations", detached)
	must(t, p.PowerOn(t.Context(), s.target(), providertest.AllowSend))
	if got := s.annotations(); !maps.Equal(got, map[string]string{detached: theirs}) {
		t.Errorf("got annotations %v, want the other client's", got)
	}
	s.edit(nil, "metadata", "annotations", detached)

	s.edit(ours[detached], "metadata", "annotations", detached) // by another, in the same words
	must(t, p.PowerOff(t.Context(), s.target(), providertest.AllowSend))
	must(t, p.PowerOn(t.Context(), s.target(), providertest.AllowSend))
	if got := s.annotations(); !maps.Equal(got, map[string]string{detached: ours[detached]}) || s.resets() != 4 {
		t.Errorf("got annotations %v, %d resets; want the other's, 4", got, s.resets())
	}
}

// While the baremetal-operator does not let go of the host, no power-off is sent.
func TestNotDetached(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	s.runs = false
	p := s.open(t, func(c *metal3.Config) { c.PowerOff = metal3.PowerOffDetach })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err := p.PowerOff(ctx, s.target(), providertest.AllowSend)
	if !errors.Is(err, providers.ErrUnreachable) || !strings.Contains(err.Error(), "not detached yet") ||
		s.resets() > 0 {
		t.Errorf("got %v, %d resets; want %v, none", err, s.resets(), providers.ErrUnreachable)
	}
}

// While PowerOff waits for the detachment the host becomes another one, gets another BMC, or must be kept on. Then
// neither BMC gets a power-off.
func TestChangedWhileDetached(t *testing.T) {
	for name, tt := range map[string]struct {
		value any
		path  []string
		err   error
	}{
		"another BMC": {"", []string{"spec", "bmc", "address"}, providers.ErrUnreachable},
		"another Secret": {"host-2-bmc", []string{"spec", "bmc", "credentialsName"},
			providers.ErrUnreachable},
		"another host of the name": {"uid-2", []string{"metadata", "uid"}, providers.ErrUnreachable},
		"kept on":                  {true, []string{"spec", "disablePowerOff"}, providers.ErrPermanent},
		"paused":                   {"", []string{"metadata", "annotations", paused}, providers.ErrPermanent},
		"attached again":           {nil, []string{"metadata", "annotations", detached}, providers.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, datacenter.Options{})
			other := s.dc.AddBMC(s.dc.AddMachine("m2"))
			if name == "another BMC" {
				tt.value = strings.Replace(other.URL(), "https", "redfish", 1)
			}
			still := func() error { // the next read is the first of the wait
				s.mu.Lock()
				defer s.mu.Unlock()
				s.onRead = func(h map[string]any) {
					set(h, "detached", "status", "operationalStatus")
					set(h, tt.value, tt.path...)
				}
				return nil
			}
			s.runs = false
			p := s.open(t, func(c *metal3.Config) { c.PowerOff = metal3.PowerOffDetach })
			limit := time.Minute
			if name == "attached again" { // the wait goes on
				limit = 3 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := p.PowerOff(ctx, s.target(), still)
			if !errors.Is(err, tt.err) || s.writes() != 1 || s.resets() > 0 {
				t.Errorf("got %v, %d writes, %d resets; want %v, the detachment, none", err, s.writes(), s.resets(),
					tt.err)
			}
			if n := other.Count(http.MethodPost, "/redfish/v1/Systems/m2/Actions/ComputerSystem.Reset"); n > 0 {
				t.Errorf("the other BMC got %d resets", n)
			}
		})
	}
}

// Hosts that must not be powered off, in both ways: nothing is written, and nothing is sent.
func TestKeptOn(t *testing.T) {
	tests := []struct {
		name  string
		value any
		path  []string
		want  string
		err   error
	}{
		{"disablePowerOff", true, []string{"spec", "disablePowerOff"}, "disablePowerOff", providers.ErrPermanent},
		{"paused", "", []string{"metadata", "annotations", paused}, "is paused", providers.ErrPermanent},
		{"paused by CAPM3", "metal3.io/capm3", []string{"metadata", "annotations", paused}, "is paused",
			providers.ErrPermanent},
		{"servicing", "servicing", []string{"status", "operationalStatus"}, "is servicing", providers.ErrPermanent},
		{"delayed", "delayed", []string{"status", "operationalStatus"}, "is delayed", providers.ErrPermanent},
		{"provisioning", "provisioning", []string{"status", "provisioning", "state"}, `"provisioning"`,
			providers.ErrPermanent},
		{"available", "available", []string{"status", "provisioning", "state"}, `"available"`, providers.ErrPermanent},
		{"another kind's by now", "HostClaim", []string{"spec", "consumerRef", "kind"}, "HostClaim",
			providers.ErrIdentity},
		{"another's by now", "worker-2", []string{"spec", "consumerRef", "name"}, "worker-2", providers.ErrIdentity},
	}
	for _, tt := range tests {
		for _, by := range []metal3.PowerOff{metal3.PowerOffRequest, metal3.PowerOffDetach} {
			t.Run(tt.name+", "+string(by), func(t *testing.T) {
				s := newSite(t, datacenter.Options{})
				s.edit(tt.value, tt.path...)
				p := s.open(t, func(c *metal3.Config) { c.PowerOff = by })
				err := p.PowerOff(t.Context(), s.target(), providertest.AllowSend)
				if !errors.Is(err, tt.err) || !strings.Contains(fmt.Sprint(err), tt.want) {
					t.Errorf("got %v, want %v with %q", err, tt.err, tt.want)
				}
				if n := s.writes(); n > 0 || s.resets() > 0 || !s.m.Running() {
					t.Errorf("got %d writes, %d resets; want none", n, s.resets())
				}
			})
		}
	}
}

// What is written is about the host that was read, and about the machine that its BMC reported.
func TestWrites(t *testing.T) {
	t.Run("the host changed", func(t *testing.T) {
		s := newSite(t, datacenter.Options{})
		s.onRead = func(h map[string]any) { set(h, true, "spec", "disablePowerOff") }
		err := s.open(t, nil).PowerOff(t.Context(), s.target(), providertest.AllowSend)
		if !errors.Is(err, providers.ErrUnreachable) || s.writes() > 0 {
			t.Errorf("got %v, %d writes; want %v, none", err, s.writes(), providers.ErrUnreachable)
		}
	})
	t.Run("another host has the annotation", func(t *testing.T) {
		s := newSite(t, datacenter.Options{})
		s.runs = false
		s.onRead = func(h map[string]any) {
			set(h, "uid-2", "metadata", "uid")
			set(h, `{"mode":"hard"}`, "metadata", "annotations", reboot)
		}
		err := s.open(t, nil).PowerOff(t.Context(), s.target(), providertest.AllowSend)
		if !errors.Is(err, providers.ErrUnreachable) || s.writes() > 0 {
			t.Errorf("got %v, %d writes; want %v, none", err, s.writes(), providers.ErrUnreachable)
		}
	})
	t.Run("another machine", func(t *testing.T) {
		s := newSite(t, datacenter.Options{})
		s.bmc.SetFault(datacenter.Fault{SystemUUID: "11111111-2222-4333-8444-555555555555"})
		err := s.open(t, nil).PowerOff(t.Context(), s.target(), providertest.AllowSend)
		if !errors.Is(err, providers.ErrIdentity) || s.writes() > 0 {
			t.Errorf("got %v, %d writes; want %v, none", err, s.writes(), providers.ErrIdentity)
		}
	})
	t.Run("a machine without a UUID, which its kubelet named", func(t *testing.T) {
		s := newSite(t, datacenter.Options{})
		s.bmc.SetFault(datacenter.Fault{NoUUID: true})
		err := s.open(t, nil).PowerOff(t.Context(), s.target(), providertest.AllowSend)
		if !errors.Is(err, providers.ErrIdentity) || s.writes() > 0 {
			t.Errorf("got %v, %d writes; want %v, none", err, s.writes(), providers.ErrIdentity)
		}
	})
	t.Run("not any more", func(t *testing.T) {
		s := newSite(t, datacenter.Options{})
		no := func() error { return errors.New("the node is back") }
		p := s.open(t, nil)
		if err := p.PowerOff(t.Context(), s.target(), no); !errors.Is(err, providers.ErrNotSent) || s.writes() > 0 {
			t.Errorf("got %v, %d writes; want %v, none", err, s.writes(), providers.ErrNotSent)
		}
	})
	t.Run("powerOff none", func(t *testing.T) {
		s := newSite(t, datacenter.Options{})
		p := s.open(t, func(c *metal3.Config) { c.PowerOff = metal3.PowerOffNone })
		for _, act := range []func(context.Context, providers.Target, func() error) error{p.PowerOff, p.PowerOn} {
			if err := act(t.Context(), s.target(), providertest.AllowSend); !errors.Is(err, providers.ErrPermanent) ||
				s.writes() > 0 || s.resets() > 0 {
				t.Errorf("got %v, %d writes; want %v, none", err, s.writes(), providers.ErrPermanent)
			}
		}
	})
}

// A machine that is on again after its power-off: the evidence names the host and who may have powered it on.
func TestRestored(t *testing.T) {
	const name = ", and BareMetalHost metal3/host-1 is online "
	tests := []struct {
		name string
		by   metal3.PowerOff
		edit func(*site)
		want string
	}{
		{"the annotation was removed", metal3.PowerOffRequest,
			func(s *site) { s.edit(nil, "metadata", "annotations", reboot) },
			"On" + name + "without " + reboot + ": the baremetal-operator may have powered it on"},
		{"paused", metal3.PowerOffRequest, func(s *site) { s.edit("", "metadata", "annotations", paused) },
			"On" + name + "and paused: Ironic may have powered it on"},
		{"attached again", metal3.PowerOffDetach,
			func(s *site) { s.edit(nil, "metadata", "annotations", detached) },
			"On" + name + "without " + reboot + ": the baremetal-operator may have powered it on"},
		{"a person, by hand", metal3.PowerOffDetach, func(s *site) { s.m.PowerOn() }, "On"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, datacenter.Options{})
			p := s.open(t, func(c *metal3.Config) { c.PowerOff = tt.by })
			must(t, p.PowerOff(t.Context(), s.target(), providertest.AllowSend))
			if a := ask(t, p, s.target()); a.State != providers.PowerOff {
				t.Fatalf("got %s, %v; want Off", a.State, a.Err)
			}
			tt.edit(s)
			if a := ask(t, p, s.target()); a.State != providers.PowerOn || a.Raw != tt.want {
				t.Errorf("got %s (%q), %v; want On (%q)", a.State, a.Raw, a.Err, tt.want)
			}
		})
	}
}

// A power-off that Metal3 stores is taken back: all that is ours, nothing of other clients or of another Node.
func TestWithdraw(t *testing.T) {
	const other = `{"nodeUID":"u2","bootID":"b1","fence":"f1"}`
	keep := func(*site) {}
	tests := []struct {
		name      string
		by        metal3.PowerOff
		edit      func(*site)
		withdrawn bool
	}{
		{"request", metal3.PowerOffRequest, keep, true},
		{"detach", metal3.PowerOffDetach, keep, true},
		{"of an earlier boot and fence", metal3.PowerOffRequest, func(s *site) {
			s.edit(`{"nodeUID":"u1","bootID":"b0","fence":"f0"}`, "metadata", "annotations", offLife)
		}, true},
		{"of no life", metal3.PowerOffRequest, func(s *site) { s.edit(nil, "metadata", "annotations", offLife) }, true},
		{"of an odd life", metal3.PowerOffRequest, func(s *site) { s.edit("{", "metadata", "annotations", offLife) },
			true},
		{"of another Node", metal3.PowerOffRequest, func(s *site) {
			s.edit(other, "metadata", "annotations", offLife)
		}, false},
		{"of another Node, detached", metal3.PowerOffDetach, func(s *site) {
			s.edit(other, "metadata", "annotations", detachedLife)
		}, false},
		{"the BMC is silent", metal3.PowerOffRequest, func(s *site) { s.bmc.SetFault(datacenter.Fault{Drop: true}) },
			true},
		{"the host serves another machine by now", metal3.PowerOffRequest, func(s *site) {
			s.edit("worker-2", "spec", "consumerRef", "name")
		}, true},
		{"Metal3 works on the host", metal3.PowerOffRequest, func(s *site) {
			s.edit("servicing", "status", "operationalStatus")
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, datacenter.Options{})
			p := s.open(t, func(c *metal3.Config) { c.PowerOff = tt.by })
			must(t, p.PowerOff(t.Context(), s.target(), providertest.AllowSend))
			const stranger = "reboot.metal3.io/stranger"
			s.edit("", "metadata", "annotations", stranger)
			tt.edit(s)
			before := s.annotations()
			for range 2 {
				must(t, p.Withdraw(t.Context(), s.target()))
			}
			s.bmc.SetFault(datacenter.Fault{})
			if tt.withdrawn {
				before = map[string]string{stranger: ""}
			}
			if got := s.annotations(); !maps.Equal(got, before) {
				t.Errorf("annotations: got %v, want %v", got, before)
			}
		})
	}
}

// An order that cannot be taken back is an error, unless its host is gone.
func TestWithdrawFails(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	p := s.open(t, nil)
	must(t, p.PowerOff(t.Context(), s.target(), providertest.AllowSend))
	gone, elsewhere := s.target(), s.target()
	gone.ID, elsewhere.ID = "metal3/host-2", "elsewhere/host-1"
	must(t, p.Withdraw(t.Context(), gone))
	if err := p.Withdraw(t.Context(), elsewhere); !errors.Is(err, providers.ErrNotFound) {
		t.Errorf("a namespace that is not configured: got %v, want %v", err, providers.ErrNotFound)
	}
	s.onRead = func(h map[string]any) { set(h, true, "spec", "disablePowerOff") } // the write comes too late
	if err := p.Withdraw(t.Context(), s.target()); err == nil {
		t.Error("the host changed meanwhile: got no error")
	}
	s.mu.Lock()
	s.onRead = nil
	s.mu.Unlock()
	s.api.Close()
	if err := p.Withdraw(t.Context(), s.target()); !errors.Is(err, providers.ErrUnreachable) {
		t.Errorf("no API server: got %v, want %v", err, providers.ErrUnreachable)
	}
	if _, kept := s.annotations()[reboot]; !kept {
		t.Error("an order that could not be taken back is gone")
	}
}

// An order that no fence takes back goes once its node has been Ready for a while, or lives another life.
func TestLeftOver(t *testing.T) {
	tests := []struct {
		name      string
		by        metal3.PowerOff
		ready     string // the node's condition
		uid, boot string
		after     time.Duration
		want      bool
	}{
		{"Ready", metal3.PowerOffRequest, "True", "u1", "b1", 6 * time.Minute, true},
		{"Ready, detached", metal3.PowerOffDetach, "True", "u1", "b1", 6 * time.Minute, true},
		{"Ready for a moment", metal3.PowerOffRequest, "True", "u1", "b1", time.Minute, false},
		{"not Ready", metal3.PowerOffRequest, "Unknown", "u1", "b1", 6 * time.Minute, false},
		{"may not write", metal3.PowerOffNone, "True", "u1", "b1", 6 * time.Minute, false},
		{"another boot", metal3.PowerOffRequest, "False", "u1", "b2", 0, true},
		{"another Node", metal3.PowerOffRequest, "Unknown", "u2", "b1", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, datacenter.Options{})
			s.runs = false
			s.edit(`{"mode":"hard"}`, "metadata", "annotations", reboot)
			s.edit(life, "metadata", "annotations", offLife)
			s.edit(life, "metadata", "annotations", detachedLife)
			s.edit(`{"deleteAction":"delay"}`, "metadata", "annotations", detached)
			s.edit("", "metadata", "annotations", paused)
			c := s.cfg
			c.PowerOff = tt.by
			now := time.Now()
			p := metal3.New(c, providers.Options{Name: "hosts", Log: slog.New(slog.DiscardHandler),
				Now: func() time.Time { return now },
				Node: func(context.Context, string) (providers.Node, error) {
					return providers.Node{UID: tt.uid, BootID: tt.boot, Ready: tt.ready}, nil
				}})
			t.Cleanup(func() { must(t, p.Close(context.Background())) })
			for range 2 {
				if _, err := p.State(t.Context(), s.target()); err != nil {
					t.Fatal(err)
				}
				now = now.Add(tt.after)
			}
			got := s.annotations()
			if _, left := got[reboot]; left == tt.want || len(got) != map[bool]int{true: 1, false: 5}[tt.want] {
				t.Errorf("annotations: got %v, want ours withdrawn: %t", got, tt.want)
			}
		})
	}
}

// A host whose address has no scheme is asked by IPMI, by a BMC simulator that is not ours.
func TestIPMI(t *testing.T) {
	sim := ipmisim.New(t, ipmisim.Options{})
	s := newSite(t, datacenter.Options{})
	password, err := os.ReadFile(sim.PasswordFile())
	must(t, err)
	s.secret = map[string][]byte{"username": []byte(ipmisim.Operator), "password": password}
	of := s.target()
	of.SystemUUID = sim.UUID()
	p := s.open(t, func(c *metal3.Config) { c.PowerOff = metal3.PowerOffDetach })
	for _, address := range []string{sim.Address(), "ipmi://" + sim.Address()} {
		s.edit(address, "spec", "bmc", "address")
		must(t, sim.SetPower(t.Context(), true))
		if a := ask(t, p, of); a.State != providers.PowerOn || a.Err != nil {
			t.Errorf("%s: got %s, %v; want On", address, a.State, a.Err)
		}
		must(t, p.PowerOff(t.Context(), of, providertest.AllowSend))
		if a := ask(t, p, of); a.State != providers.PowerOff || sim.Running() {
			t.Errorf("%s: got %s, %v; want Off", address, a.State, a.Err)
		}
	}
}
