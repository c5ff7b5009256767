package metal3_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/metal3"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	operator "github.com/forcefence/forcefence/test/metal3"
)

// roles are the README's objects for the account.
var roles = regexp.MustCompile("(?s)```yaml test=\\S+\n(apiVersion: v1\nkind: ServiceAccount.*?)```")

// TestRealAPIServer asks and changes BareMetalHosts of a real API server, by an account that has the README's rights
// alone. The baremetal-operator is played.
func TestRealAPIServer(t *testing.T) {
	c := cluster.ForTest(t, cluster.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dir := t.TempDir()
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(ctx, args...)
		if err != nil {
			t.Fatalf("kubectl %q: %v\n%s", args, err, out)
		}
		return out
	}
	apply := func(text string) {
		t.Helper()
		file := filepath.Join(dir, "object")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		kubectl("apply", "-f", file)
	}
	readme, err := os.ReadFile("README.md")
	must(t, err)
	rights := roles.FindSubmatch(readme)
	if rights == nil {
		t.Fatal("the README has no roles")
	}
	kubectl("create", "namespace", "metal3")
	kubectl("create", "namespace", "other")
	apply(string(rights[1]))
	apply(operator.CRD)
	kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/baremetalhosts.metal3.io")

	dc := datacenter.New(datacenter.Options{})
	t.Cleanup(func() { must(t, dc.Close()) })
	m := dc.AddMachine("m1")
	bmc := dc.AddBMC(m)
	ca := filepath.Join(dir, "ca.pem")
	must(t, dc.WriteCA(ca))
	for _, ns := range []string{"metal3", "other"} {
		apply(fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: m1-bmc, namespace: %s},
stringData: {username: %q, password: %q}}`, ns, dc.Username(), dc.Password()))
		apply(fmt.Sprintf(`{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {name: m1, namespace: %s},
spec: {online: true, bmc: {address: %q, credentialsName: m1-bmc},
consumerRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: Metal3Machine, name: w1, namespace: %s}}}`,
			ns, strings.Replace(bmc.URL(), "https", "redfish", 1), ns))
		kubectl("-n", ns, "patch", "bmh", "m1", "--subresource=status", "--type=merge", "-p",
			`{"status":{"operationalStatus":"OK","poweredOn":true,"provisioning":{"state":"provisioned"}}}`)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	must(t, err)
	hosts, err := dynamic.NewForConfig(admin)
	must(t, err)
	operating, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(operating, hosts, "metal3", map[string]operator.Machine{"m1": m}) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})

	file := filepath.Join(dir, "kubeconfig")
	must(t, c.WriteKubeconfig(file, "system:serviceaccount:metal3:forcefence"))
	p := metal3.New(metal3.Config{
		Kubeconfig: file, Namespaces: []string{"metal3", "other"}, PowerOff: metal3.PowerOffRequest, CAFile: ca,
	}, providers.Options{Name: "hosts", Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { must(t, p.Close(context.Background())) })
	of := providers.Target{Node: "n1", ID: "metal3://metal3/m1/w1", SystemUUID: m.SystemUUID(), Claimed: true}
	until := func(want providers.PowerState) {
		t.Helper()
		err := cluster.Until(ctx, func(ctx context.Context) (bool, error) {
			a := providers.Ask(ctx, p, "hosts", of, providers.Now)
			if a.State == want {
				return true, nil
			}
			return false, fmt.Errorf("got %s (%q), %v; want %s", a.State, a.Raw, a.Err, want)
		})
		must(t, err)
	}
	status := func() (s struct {
		PoweredOn         bool
		OperationalStatus string
	}) {
		must(t, json.Unmarshal([]byte(kubectl("-n", "metal3", "get", "bmh", "m1", "-o", "jsonpath={.status}")), &s))
		return s
	}
	act := func(what func(context.Context, providers.Target, func() error) error) {
		t.Helper()
		must(t, cluster.Until(ctx, func(ctx context.Context) (bool, error) { // the operator may write in between
			err := what(ctx, of, providertest.AllowSend)
			if err != nil && !errors.Is(err, providers.ErrUnreachable) {
				t.Fatal(err)
			}
			return err == nil, err
		}))
	}
	if a := providers.Ask(ctx, p, "hosts", of, providers.Now); a.State != providers.PowerOn {
		t.Fatalf("got %s, %v; want On", a.State, a.Err)
	}
	act(p.PowerOff)
	until(providers.PowerOff)
	if s := status(); !s.PoweredOn {
		t.Error("the played operator does not lie about poweredOn")
	}
	kubectl("-n", "metal3", "annotate", "bmh", "m1", "reboot.metal3.io/stranger=")
	act(p.PowerOn)
	if a := providers.Ask(ctx, p, "hosts", of, providers.Now); a.State != providers.PowerOff {
		t.Errorf("kept off by another: got %s, %v; want Off", a.State, a.Err)
	}
	kubectl("-n", "metal3", "annotate", "bmh", "m1", "reboot.metal3.io/stranger-")
	until(providers.PowerOn)

	detaching := metal3.New(metal3.Config{
		Kubeconfig: file, Namespaces: []string{"metal3"}, PowerOff: metal3.PowerOffDetach, CAFile: ca,
	}, providers.Options{Name: "hosts", Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { must(t, detaching.Close(context.Background())) })
	act(detaching.PowerOff)
	until(providers.PowerOff)
	if s := status(); s.OperationalStatus != "detached" {
		t.Errorf("operationalStatus: got %q, want detached", s.OperationalStatus)
	}
	act(detaching.PowerOn)
	until(providers.PowerOn)
	if got := kubectl("-n", "metal3", "get", "bmh", "m1", "-o", "jsonpath={.metadata.annotations}"); strings.Contains(
		got,
		"detached") {
		t.Errorf("annotations after PowerOn: got %s, want no detached", got)
	}

	kubectl("-n", "metal3", "patch", "bmh", "m1", "--type=merge", "-p", `{"spec":{"disablePowerOff":true}}`)
	if err := p.PowerOff(ctx, of, providertest.AllowSend); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("disablePowerOff: got %v, want %v", err, providers.ErrPermanent)
	}
	of.ID = "other/m1" // in a namespace without rights
	if a := providers.Ask(ctx, p, "hosts", of, providers.Now); !errors.Is(a.Err, providers.ErrDenied) {
		t.Errorf("without rights: got %s, %v; want %v", a.State, a.Err, providers.ErrDenied)
	}
}
