package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/discover"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/test/kit"
)

// discoverIn runs `forcefence discover` in a cluster of these objects. It returns both outputs apart.
func discoverIn(t *testing.T, metal3 bool, objects []client.Object, args ...string) (stdout, stderr string, _ error) {
	t.Helper()
	scheme := runtime.NewScheme()
	kit.Must(t, clientgoscheme.AddToScheme(scheme))
	if metal3 {
		scheme.AddKnownTypeWithName(discover.HostKind, &unstructured.Unstructured{})
		list := discover.HostKind
		list.Kind += "List"
		scheme.AddKnownTypeWithName(list, &unstructured.UnstructuredList{})
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).Build()
	cmd := newDiscover(&sessionFlags{types: all.Types(), client: api})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out, report strings.Builder
	cmd.SetArgs(args)
	cmd.SetOut(newScreen(&out))
	cmd.SetErr(newScreen(&report))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), report.String(), err
}

// What discover finds of a rack is a configuration that check-config takes and drill can use, and has no password.
func TestDiscover(t *testing.T) {
	s := newSite(t)
	dir := filepath.Dir(s.file)
	port := s.bmc["n1"].URL()[strings.LastIndex(s.bmc["n1"].URL(), ":")+1:]
	objects := []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n4"}}}
	for _, name := range []string{"n1", "n2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.NodeInfo.SystemUUID = s.m[name].SystemUUID()
		objects = append(objects, n)
	}
	objects[2].(*corev1.Node).Spec.ProviderID = "metal3://metal3/h2/m2"
	host := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"bmc": map[string]any{"address": "ipmi://10.0.0.2", "credentialsName": "h2-bmc"}}}}
	host.SetGroupVersionKind(discover.HostKind)
	host.SetNamespace("metal3")
	host.SetName("h2")
	objects = append(objects, host)

	file := filepath.Join(dir, "discovered.yaml")
	args := []string{"--bmc-range", "127.0.0.1", "--redfish-port", port, "--ipmi-port", port,
		"--username", s.dc.Username(), "--password-file", filepath.Join(dir, "password"),
		"--ca-file", filepath.Join(dir, "ca.pem")}
	stdout, stderr, err := discoverIn(t, true, objects, append(args, "--output", file)...)
	if err != nil || stdout != "" {
		t.Fatalf("got %v and output %q:\n%s", err, stdout, stderr)
	}
	for _, want := range []string{"Nodes with a device: 2 of 3. Addresses that answered: 1 of 1.",
		"n1 " + s.bmc["n1"].URL() + " system UUID", "n2 ipmi://10.0.0.2 BareMetalHost metal3/h2 (providerID)",
		`node n4 its system UUID "" identifies no machine`, "Wrote " + file} {
		if !strings.Contains(strings.Join(strings.Fields(stderr), " "), want) {
			t.Errorf("got no %q in:\n%s", want, stderr)
		}
	}
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	var out strings.Builder
	if status := run([]string{"check-config", "--skip-files", file}, all.Types(), &out, &out); status != 0 {
		t.Errorf("check-config: got status %d, %s of\n%s", status, out.String(), text)
	}
	cfg, err := config.Load(file, all.Types(), config.SkipFiles())
	kit.Must(t, err)
	for name, want := range map[string]string{"n1": s.bmc["n1"].URL(), "n2": "ipmi://10.0.0.2"} {
		m, err := cfg.FindMachine(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil || m.Target.ID != want {
			t.Errorf("%s: got %q, %v, want %q", name, m.Target.ID, err, want)
		}
	}
	if strings.Contains(string(text)+stderr, s.dc.Password()) {
		t.Errorf("got the password in:\n%s\n%s", text, stderr)
	}
	if n := s.posts("n1"); n > 0 {
		t.Errorf("got %d power actions, want none", n)
	}
	if _, _, err := discoverIn(t, true, objects, append(args, "--output", file)...); err == nil ||
		!strings.Contains(err.Error(), file+" exists") {
		t.Errorf("where the file exists: got %v", err)
	}
	stdout, _, err = discoverIn(t, true, objects, args...)
	if err != nil || stdout != string(text) {
		t.Errorf("to standard output: got %v and\n%s\nwant\n%s", err, stdout, text)
	}
	if _, stderr, err := discoverIn(t, false, objects[:1]); err == nil ||
		!strings.Contains(err.Error(), "no node's device") || strings.Contains(stderr, "BareMetalHosts") {
		t.Errorf("without Metal3: got %v, %s", err, stderr)
	}
}

// A hostile BMC sees no credential, and a terminal and the file see none of its texts as they are.
func TestDiscoverHostileBMC(t *testing.T) {
	s := newSite(t)
	dir := filepath.Dir(s.file)
	var credentials []string
	hostile := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Method != http.MethodGet {
			credentials = append(credentials, fmt.Sprint(r.Method, r.URL, r.Header))
		}
		_, _ = fmt.Fprint(w, `{"RedfishVersion": "1.0", "Vendor": "\u001b[2J\nmode: fence\n- x", `+
			`"Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}}, `+
			`"Systems": {"@odata.id": "/redfish/v1/Systems"}}`)
	}))
	hostile.Config.ErrorLog = log.New(io.Discard, "", 0)
	hostile.StartTLS()
	defer hostile.Close()
	port := hostile.URL[strings.LastIndex(hostile.URL, ":")+1:]
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Spec.ProviderID = "\x1b[2J://x"
	n.Status.NodeInfo.SystemUUID = s.m["n1"].SystemUUID()
	stdout, stderr, err := discoverIn(t, false, []client.Object{n}, "--bmc-range", "127.0.0.1", "--redfish-port", port,
		"--ipmi-port", port, "--username", s.dc.Username(), "--password-file", filepath.Join(dir, "password"),
		"--ca-file", filepath.Join(dir, "ca.pem"))
	if err == nil || stdout != "" || len(credentials) > 0 || strings.Contains(stderr, "\x1b") ||
		!strings.Contains(stderr, "--trust-host 127.0.0.1") {
		t.Errorf("got %v, output %q, credentials %q and\n%s", err, stdout, credentials, stderr)
	}
}

func TestDiscoverFlags(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	kit.Must(t, os.WriteFile(password, []byte("secret"), 0o600))
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--bmc-range", "10.0.0.0/8"}, "--bmc-range: 10.0.0.0/8: at most 1024"},
		{[]string{"--bmc-range", "10.0.0.0/30", "--trust-host", "10.0.0.9"}, `--trust-host: "10.0.0.9" is no address`},
		{[]string{"--bmc-range", "10.0.0.0/30", "--trust-host", "bmc1"}, `--trust-host: "bmc1" is no address`},
		{[]string{"--username", "root"}, "go together"},
		{[]string{"--password-file", password}, "go together"},
		{[]string{"--username", "root", "--password-file", "/none"}, "no such file"},
		{[]string{"--username", "root", "--password-file", password, "--ca-file", "/none"}, "no such file"},
		{[]string{"extra"}, "unknown command"},
	} {
		if _, _, err := discoverIn(t, false, nil, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want %q", tc.args, err, tc.want)
		}
	}
}
