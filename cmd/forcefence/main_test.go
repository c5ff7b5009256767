package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/test/kit"
)

const testdata = "../internal/config/testdata"

// exec runs a command line and returns what a shell would see.
func exec(args ...string) (status int, stdout, stderr string) {
	var out, err strings.Builder
	status = run(args, configtest.Types(), &out, &err)
	return status, out.String(), err.String()
}

// TestCheckConfigBroken holds check-config's whole output against the .want files, which config's own test rewrites.
func TestCheckConfigBroken(t *testing.T) {
	t.Chdir(filepath.Join(testdata, "broken"))
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files (%v)", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".want")
			if err != nil {
				t.Fatal(err)
			}
			status, stdout, stderr := exec("check-config", file)
			head := fmt.Sprintf("Error: the configuration has %s:\n",
				decide.FormatCount(bytes.Count(want, []byte("\n")), "fault"))
			if bytes.Contains(want, []byte("no such file")) {
				want = append(want, "To check without files that exist only where the controller runs, add "+
					"--skip-files\n"...)
			}
			if diff := cmp.Diff(head+string(want), stderr); diff != "" || status != 1 || stdout != "" {
				t.Errorf("got status %d and output %q, want 1 and none; -want +got:\n%s", status, stdout, diff)
			}
		})
	}
}

func TestCheckConfig(t *testing.T) {
	t.Chdir(filepath.Join(testdata, "good"))
	for _, tc := range []struct {
		name           string
		args           []string
		status         int
		stdout, stderr string
	}{
		{name: "good", args: []string{"check-config", "full.yaml"}, stdout: "full.yaml: ok\n",
			stderr: "full.yaml:23: leaderElection.enabled: warning: without it every controller that runs acts: run " +
				"exactly one\n"},
		{name: "no such file", args: []string{"check-config", "none.yaml"}, status: 1,
			stderr: "Error: reading configuration: open none.yaml: no such file or directory\n"},
		{name: "no file", args: []string{"check-config"}, status: 2,
			stderr: "Error: wrong number of arguments (0). Usage: forcefence check-config FILE [flags]\n"},
		{name: "two files", args: []string{"check-config", "full.yaml", "minimal.yaml"}, status: 2,
			stderr: "Error: wrong number of arguments (2). Usage: forcefence check-config FILE [flags]\n"},
		{name: "no such flag", args: []string{"check-config", "--skip"}, status: 2,
			stderr: "Error: unknown flag: --skip. `forcefence check-config --help` lists the flags\n"},
		{name: "no such command", args: []string{"chek-config"}, status: 2,
			stderr: "Error: unknown command \"chek-config\" for \"forcefence\"\n\nDid you mean this?\n" +
				"\tcheck-config\n"},
		{name: "no such command of power", args: []string{"power", "cycle", "node-1"}, status: 2,
			stderr: "Error: unknown command \"cycle\" for \"forcefence power\"; forcefence power --help lists its " +
				"commands\n"},
		{name: "a command of drain, misspelled", args: []string{"drain", "stat", "node-1"}, status: 2,
			stderr: "Error: unknown command \"stat\" for \"forcefence drain\"\n\nDid you mean this?\n\tstatus\n"},
		{name: "help of no such command", args: []string{"help", "nope"}, status: 2,
			stderr: "Error: unknown command \"nope\" for \"forcefence\"; forcefence --help lists its commands\n"},
		{name: "help of no such command of drain", args: []string{"help", "drain", "stat"}, status: 2,
			stderr: "Error: unknown command \"stat\" for \"forcefence drain\"\n\nDid you mean this?\n\tstatus\n"},
		{name: "no recording", args: []string{"replay", "none"}, status: 1,
			stderr: "Error: opening recording: open none: no such file or directory\n"},
		{name: "no such shell", args: []string{"completion", "nope"}, status: 2,
			stderr: "Error: unknown command \"nope\" for \"forcefence completion\"; forcefence completion --help " +
				"lists its commands\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, stdout, stderr := exec(tc.args...)
			if status != tc.status || stdout != tc.stdout || stderr != tc.stderr {
				t.Errorf("got %d, %q, %q\nwant %d, %q, %q", status, stdout, stderr, tc.status, tc.stdout, tc.stderr)
			}
		})
	}
}

// A wrong command line exits with 2, and says what is wrong, before the program looks for an API server.
func TestUsage(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, tc := range []struct {
		line string
		want string // part of the error
	}{
		{"pause n3", "--for and --reason are required"},
		{"version -o xx", `unknown output format "xx": use json or yaml`},
		{"discover --timeout -3s", "--timeout: -3s is no time to wait"},
		{"pause --for 2 --reason x", `--for: "2" is neither a duration`},
		{"pause --for 2h", "--reason is required"},
		{"pause --for 2h --reason " + strings.Repeat("x", 201), "--reason has 201 bytes: at most 200"},
		{"proof-guard --path-hash=0123", "--path-hash: use the SHA-256 of the webhook's path"},
		{"confirm-off n3", "--reason is required: how do you know that the machine is off?"},
		{"confirm-off n3 --reason " + strings.Repeat("x", taint.MaxReason+1), "bytes: at most"},
		{"drain policy --set always-allow --reset", "--reset and --set exclude each other: use one of them"},
		{"drain policy --for 2h --reset", "--for and --reset exclude each other"},
		{"drain policy --set foo --for 2h", `--set: "foo" is none of `},
		{"drain policy --set always-allow", "--for is required"},
		{"drain policy --for 2h", "--for needs --set POLICY"},
		{"cleanup --check --yes", "--check and --yes exclude each other"},
		{"discover --bmc-range foo", "--bmc-range: "},
		{"discover --redfish-port 99999", "--redfish-port: 99999 is no port: use 1 to 65535"},
		{"discover --ipmi-port 0", "--ipmi-port: 0 is no port: use 1 to 65535"},
		{"discover --output .", "--output: . exists: name another file, or remove it"},
		{"release n1 --taint-key ///", "no taint can have this key: it must look like example.net/name"},
		{"status node/n1 nodes/", `"nodes/" has no name`},
		{"power n1", `unknown command "n1" for "forcefence power"; forcefence power --help lists its commands`},
		{"power ofg", "Did you mean this?"},
		{"discover --username root", "--username and --password-file go together"},
		{"check --config x.yaml", "--config needs --before-install"},
		{"check --wait -5m", "--wait: -5m0s is negative"},
		{"power off n3 --wait -5m", "--wait: -5m0s is negative"},
		{"providers nosuch", `there is no provider type "nosuch"`},
		{"status -l a=b=c", "--selector: "},
		{"status -o foo", "json, name, wide, yaml"},
		{"status --request-timeout abc", "want a duration such as 10s or 2m"},
		{"run --log-level loud", `--log-level: "loud" is none of debug, info, warn, error`},
		{"run --log-format xml", `--log-format: "xml" is neither text nor json`},
		{"explain", "wrong number of arguments (0)"},
		{"check-config --skip-files --description f", "--description and --skip-files exclude each other"},
		{"check-confg --skip-files f", "Did you mean this?\n\tcheck-config"},
		{"drain-policy n1 --set always-allow --for 1h", `"drain-policy" is now ` + "`forcefence drain policy`"},
		{"drain-status n1 -o json", "`forcefence drain status --help` has its flags"},
		{"keys --new", "`forcefence proof keys`"},
		{"verify n1", "`forcefence proof verify`"},
		{"check-provider f.yaml", "`forcefence check-config --description`; `forcefence check-config --help`"},
		{"power state n1 -o json", `"power state" is now ` + "`forcefence drill`"},
		{"help power state", "`forcefence drill`"},
	} {
		status, stdout, stderr := exec(strings.Fields(tc.line)...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s:\ngot  %d, %q, %q\nwant 2, no output, %q", tc.line, status, stdout, stderr, tc.want)
		}
	}
}

// check-config reads standard input by the name -, and says so in messages.
func TestCheckConfigStandardInput(t *testing.T) {
	for text, want := range map[string]string{
		"mode: observe\n": "standard input: ok\n", "mode: x\n": "standard input:1: mode: must be ",
	} {
		root, out := newRoot(configtest.Types()), &strings.Builder{}
		root.SetArgs([]string{"check-config", "-"})
		root.SetIn(strings.NewReader(text))
		root.SetOut(out)
		if err := root.Execute(); !strings.Contains(out.String()+fmt.Sprint(err), want) {
			t.Errorf("%q: got %q, %v, want %q", text, out, err, want)
		}
	}
}

// Errors that any command may have say what to do.
func TestAdvice(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	denied := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer denied.Close()
	nameless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,`+
			`"message":"forbidden: User \"system:anonymous\" cannot get path \"/api\""}`, http.StatusForbidden)
	}))
	defer nameless.Close()
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html>Log in</html>")
	}))
	defer portal.Close()
	starting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer starting.Close()
	untrusted := httptest.NewTLSServer(nil)
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer untrusted.Close()
	t.Setenv("KUBECONFIG", "/dev/null")
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // the test itself may run in a pod
	for args, want := range map[string]string{
		"status": "Error: no API server is configured: set --kubeconfig or $KUBECONFIG, or write " +
			"~/.kube/config\n",
		"status --kubeconfig /none/k": "Error: the kubeconfig /none/k does not exist: set --kubeconfig or " +
			"$KUBECONFIG to one that does\n",
		"status --kubeconfig " + kubeconfigOf(t, gone.URL): "connection refused. `kubectl cluster-info` shows " +
			"whether the API server answers\n",
		"status --kubeconfig " + kubeconfigOf(t, denied.URL): ". Log in to the cluster again\n",
		"check --kubeconfig " + kubeconfigOf(t, gone.URL): "connection refused. `kubectl cluster-info` shows whether " +
			"the API server answers\n",
		"status --kubeconfig " + kubeconfigOf(t, portal.URL): "does `server` in your kubeconfig lead to a proxy or a " +
			"login? `kubectl config view` shows it\n",
		"status --kubeconfig " + kubeconfigOf(t, starting.URL): "The API server, or a proxy before it, is not ready: " +
			"try again\n",
		"status --server " + gone.URL: "Error: listing nodes: Get \"" + gone.URL + "/api\": dial tcp " +
			strings.TrimPrefix(gone.URL, "http://") + ": connect: connection refused. `kubectl cluster-info` shows " +
			"whether the API server answers\n",
		"check --kubeconfig " + kubeconfigOf(t, nameless.URL): "you are not logged in (system:anonymous), or it " +
			"forbids that. " + whoAmI + "\n",
		"status --kubeconfig " + kubeconfigOf(t, untrusted.URL): "or that is for another name: `kubectl config view` " +
			"shows both\n",
		"status --kubeconfig " + kubeconfigOf(t, "https://none..invalid"): "The name is that of `server` in your " +
			"kubeconfig: `kubectl config view` shows it\n",
	} {
		status, stdout, stderr := exec(strings.Fields(args)...)
		if status != 1 || stdout != "" || !strings.HasPrefix(stderr, "Error: ") || !strings.HasSuffix(stderr, want) ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: got %d, %q, %q, want one line that ends with %q", args, status, stdout, stderr, want)
		}
	}
}

// Commands take names as kubectl takes them.
func TestTrimKinds(t *testing.T) {
	got := strings.Join(trimKinds([]string{"n1", "node/n2", "nodes/n3", "fcg/n4.f-1", "fencing.forcefence.io/n5.f-2",
		"provider/redfish", "other/n6"}), " ")
	if want := "n1 n2 n3 n4.f-1 n5.f-2 redfish other/n6"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The main help lists at most 18 commands, and names the others in its last line.
func TestMainHelp(t *testing.T) {
	status, help, stderr := exec("--help")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z][a-z-]+) +[A-Z]`).FindAllStringSubmatch(help, -1) {
		listed[m[1]] = true
	}
	if status != 0 || stderr != "" || len(listed) > 18 || len(listed) < 10 {
		t.Errorf("got %d, %q and %d commands, want at most 18:\n%s", status, stderr, len(listed), help)
	}
	_, rest, _ := strings.Cut(help, "Not listed: ")
	for _, c := range newRoot(configtest.Types()).Commands() {
		named := slices.Contains(regexp.MustCompile(`[\w-]+`).FindAllString(rest, -1), c.Name())
		if named == listed[c.Name()] {
			t.Errorf("%s: listed: %t; named as not listed: %t", c.Name(), listed[c.Name()], named)
		}
	}
	if _, below, _ := exec("drain", "--help"); strings.Contains(below, "Not listed") {
		t.Errorf("a command's own help names others:\n%s", below)
	}
}

// Each former command names one that exists.
func TestRenamedCommands(t *testing.T) {
	root := newRoot(configtest.Types())
	for was, now := range renamedCommands {
		cmd, rest, err := root.Find(strings.Fields(now))
		if err != nil || !cmd.Runnable() || len(rest) > 1 || len(rest) == 1 && cmd.Flags().Lookup(rest[0][2:]) == nil {
			t.Errorf("%s: %q is no command: %v, %q", was, now, err, rest)
		}
		if cmd, rest, err := root.Find(strings.Fields(was)); err == nil && len(rest) == 0 {
			t.Errorf("%s is still a command, %s", was, cmd.CommandPath())
		}
	}
}

// A command that only holds others prints them.
func TestCommandsOfPower(t *testing.T) {
	status, stdout, stderr := exec("power")
	if status != 0 || stderr != "" || !strings.Contains(stdout, "\n  off ") ||
		!strings.Contains(stdout, "Usage:\n  forcefence power\n") {
		t.Errorf("got %d, %q, %q, want its commands", status, stdout, stderr)
	}
}

// A bundle without an API server would hold nothing: no file is written.
func TestBundleWithoutAPIServer(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	status, stdout, stderr := exec("support-bundle", file, "--kubeconfig", kubeconfigOf(t, gone.URL))
	if _, err := os.Stat(file); status != 1 || stdout != "" ||
		!strings.Contains(stderr, "asking the API server for its version: ") || !os.IsNotExist(err) {
		t.Errorf("got %d, %q, %q, and the file: %v; want status 1 and no file", status, stdout, stderr, err)
	}
}

// kubeconfigOf writes a kubeconfig for a server.
func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(kit.SocketDir(t), "kubeconfig") // callers split a command at spaces
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: "+
		"c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {token: t}}]\n", server)
	kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// A file is checked where it is written, too: what its settings name may exist only where it is used.
func TestCheckConfigSkipFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	empty, file := filepath.Join(dir, "empty"), "c.yaml"
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(settings string, args ...string) (int, string) {
		text := "providers:\n- {name: a, redfish: {username: u, " + settings +
			"}}\n- {name: b, libvirt: {uri: 'qemu+tls://hv/system', certFile: /none/c, keyFile: /none/k, caFile: " +
			"/none/ca}}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, stderr strings.Builder
		status := run(append(args, file), all.Types(), &out, &stderr)
		return status, stderr.String()
	}
	if status, told := check("passwordFile: /none/password, caFile: /none/ca.pem", "check-config"); status != 1 ||
		strings.Count(told, "no such file") != 4 {
		t.Errorf("without the flag: got status %d and %s", status, told)
	}
	if status, told := check("passwordFile: /none/password, caFile: /none/ca.pem", "check-config",
		"--skip-files"); status != 0 {
		t.Errorf("with the flag: got status %d and %s", status, told)
	}
	for _, settings := range []string{
		"passwordFile: " + empty, "caFile: /none/ca.pem", "passwordFile: /none/password, caFile: " + empty,
		"passwordFile: /none/password, auth: x"} {
		if status, told := check(settings, "check-config", "--skip-files"); status != 1 {
			t.Errorf("%s: got status %d and %s, want a fault", settings, status, told)
		}
	}
}

// The table of the machines' own files is about this host, so --skip-files leaves it out.
func TestCheckConfigListsFiles(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	text := "providers: [{name: a, ipmi: {username: u, passwordFile: '" + folder + "/own/{name}'}}]\n" +
		"nodes: [{name: n, provider: a, machine: {from: list, list: [{node: n1, id: 10.0.0.1}]}}]\n"
	own := folder + "/own/n1"
	kit.Must(t, os.Mkdir("own", 0o700))
	kit.Must(t, os.WriteFile("c.yaml", []byte(text), 0o600))
	for _, tc := range []struct{ name, flag, want string }{
		{"here", "--skip-files=false",
			fmt.Sprintf("NODE   PROVIDER   %-*s   SECRET\nn1     a          %s   missing\nc.yaml: ok\n", len(own),
				"FILE", own)},
		{"elsewhere", "--skip-files", "c.yaml: ok\n"},
	} {
		var out, stderr strings.Builder
		if status := run([]string{"check-config", "c.yaml", tc.flag}, all.Types(), &out, &stderr); status != 0 ||
			out.String() != tc.want {
			t.Errorf("%s: got status %d and %q, want %q; %s", tc.name, status, out.String(), tc.want, stderr.String())
		}
	}
}

// One BMC written in two ways is one machine.
func TestCheckConfigOneMachineTwice(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = "providers: [{name: a, redfish: {username: u, passwordEnv: P}}]\n" +
		"nodes:\n- name: n\n  provider: a\n  machine:\n    from: list\n    list:\n    - {node: n1, id: " +
		"'https://x'}\n    - {node: n2, id: 'https://X:443/'}\n"
	if err := os.WriteFile("c.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, stderr strings.Builder
	const want = "Error: the configuration has 1 fault:\n" +
		"c.yaml:9: nodes[0].machine.list[1].id: another node already has this machine, on line 8\n"
	if status := run([]string{"check-config", "c.yaml"}, all.Types(), &out, &stderr); status != 1 ||
		stderr.String() != want {
		t.Errorf("got status %d and %q, want %q", status, stderr.String(), want)
	}
}

// TestExample checks the examples, with the provider types that exist.
func TestExample(t *testing.T) {
	types := all.Types()
	if _, ok := types.FindType("redfish"); !ok {
		types = configtest.Types()
	}
	files, bad := filepath.Glob("../../deploy/examples/config-*.yaml")
	if bad != nil || len(files) != 4 {
		t.Fatalf("got %q, %v, want four examples", files, bad)
	}
	for _, file := range append(files, "../../config.example.yaml") {
		var out, err strings.Builder
		status := run([]string{"check-config", "--skip-files", file}, types, &out, &err)
		if status != 0 || err.Len() > 0 {
			t.Errorf("%s: got status %d, want 0 and no warning:\n%s", file, status, err.String())
		}
	}
}

// check-config --description names file, line and key of each fault, and says what it checked.
func TestCheckDescription(t *testing.T) {
	good := filepath.Join("..", "internal", "providercheck", "testdata", "outlets.yaml")
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	system := filepath.Join("..", "..", "providers", "rest", "readings", "storageos.yaml")
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	broken := strings.Replace(string(text), "got.body.state ==", "got.body.stat ==", 1)
	if err := os.WriteFile(bad, []byte(strings.Replace(broken, "id:", "ids:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		file        string
		status      int
		out, errors string // what they have
	}{
		{good, 0, good + ": ok\n", ""},
		{system, 0, "none that must not permits a policy to act\n" + system + ": ok\n", ""},
		{bad, 1, "", bad + ":5: ids: unknown key"},
		{"none.yaml", 1, "", "reading description: open none.yaml"},
	} {
		var out, errors bytes.Buffer
		status := run([]string{"check-config", "--description", tc.file}, all.Types(), &out, &errors)
		if status != tc.status || !strings.Contains(out.String(), tc.out) ||
			!strings.Contains(errors.String(), tc.errors) {
			t.Errorf("%s: got status %d\n%s%s", tc.file, status, out.String(), errors.String())
		}
	}
}

// The end of a command ends the requests that it has under way, also those of the libraries.
func TestRequestsEnd(t *testing.T) {
	asked := make(chan struct{}, 9)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done() // it accepts the request, and never answers
	}))
	defer server.Close()
	defer server.CloseClientConnections() // or Close would wait for them
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\n" +
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"status"}, {"check"}, {"release", "n1"}, {"explain", "n1", "--no-devices"}} {
		ctx, cancel := context.WithCancel(t.Context())
		root := newRoot(all.Types())
		root.SetArgs(append(args, "--kubeconfig", file))
		ended := make(chan error)
		go func() { ended <- root.ExecuteContext(ctx) }()
		<-asked
		cancel()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s: got no error", args)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: still runs 20 s after its end", args)
		}
		for len(asked) > 0 {
			<-asked
		}
	}
}
