package config_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
)

var update = flag.Bool("update", false, "rewrite the .want files")

// TestBroken compares the messages about broken files with their .want files.
func TestBroken(t *testing.T) {
	t.Chdir(filepath.Join("testdata", "broken"))
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("got %d files, want at least 10 (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			cfg, err := config.Load(file, configtest.Types())
			if err == nil || cfg != nil {
				t.Fatalf("got %v and error %v, want an error only", cfg, err)
			}
			got := err.Error() + "\n"
			checkErrors(t, err)
			if strings.Contains(got, "hunter2") {
				t.Errorf("a secret is shown:\n%s", got)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".want"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// checkErrors demands what holds for the error of every broken file.
func checkErrors(t *testing.T, err error) {
	t.Helper()
	var errs config.Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("got %T %v, want Errors", err, err)
	}
	for i, e := range errs {
		if e.Line < 1 || e.Problem == "" || strings.ContainsAny(e.Error(), "\n\r") {
			t.Errorf("got %#v, want a line from 1, a problem, and one line of text", e)
		}
		if i > 0 && e.Line < errs[i-1].Line {
			t.Errorf("got line %d after line %d, want them sorted", e.Line, errs[i-1].Line)
		}
	}
}

func TestFull(t *testing.T) {
	got, err := config.Load(filepath.Join("testdata", "good", "full.yaml"), configtest.Types())
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		Mode:              "fence",
		TaintKey:          "example.net/fenced",
		PowerOffAfter:     90 * time.Second,
		PowerOffTimeout:   2 * time.Minute,
		AfterFence:        config.PowerOn,
		MaxPowerOnsPerDay: 10,
		FencedAgainWithin: 24 * time.Hour,
		DetachTimeout:     90 * time.Minute,
		OnDetachTimeout:   "alert",
		ManualMarks:       config.Trust,
		EvictFirst:        "app in (csi-controller, rook)",
		ExcludeSelector:   "example.net/never-fence",
		ExcludeCordoned:   true,
		MaintenanceLeases: "operators",
		Remediation: config.Remediation{
			Namespaces: []string{"requests", "capi"}, OnGiveUp: config.ReplaceMachine,
			Kubeconfig: "/etc/capi/kubeconfig",
		},
		ReleaseLeases: []config.LeaseRule{
			{Namespace: "databases", Names: []string{"*.cnpg.io", "mariadb"}},
			{Namespace: "kube-system", Names: []string{"kube-scheduler"}},
		},
		Karpenter: config.RespectClaims,
		StormGuard: config.StormGuard{
			MaxPowerOffs: fleet.Amount{Number: 3}, MinHealthy: fleet.Amount{Percent: 40}, ControlPlane: config.Quorum,
			KubeVirtHosts: config.KubeVirtPowerOff,
			Domains: []config.FailureDomain{{Label: "rack", MinHealthy: &fleet.Amount{Number: 2}},
				{Label: "a.node-restriction.kubernetes.io/row"}},
		},
		Listen: config.Listen{Metrics: ""},
		LeaderElection: config.LeaderElection{
			LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 4 * time.Second,
		},
		Recording: config.Recording{File: "/var/lib/forcefence/recording"},
		Providers: []config.Provider{
			{Name: "racks", Timeout: 2500 * time.Millisecond, RatePerSecond: 0.5, Concurrency: 1,
				Poll: 10 * time.Second, Type: "redfish", Config: &configtest.Redfish{
					Address: "https://bmc.example.net", Username: "forcefence", PasswordEnv: "BMC_PASSWORD",
					Auth: "basic", Poll: 250 * time.Millisecond,
					Retries: 16, Weight: 3, Tags: []string{"a", "b"},
					Headers: map[string]string{"X-Rack.Name": "One", "Accept": "*/*"},
					Nested:  configtest.Nested{Deep: true, Items: []configtest.Nested{{}}},
					TLS:     configtest.TLS{InsecureSkipVerify: true},
					Gateway: address("https://gw.example.net:8443/x"),
					Mirrors: []configtest.URL{address("https://a.example.net"), address("https://b.example.net")},
					Outlets: map[string]configtest.Outlet{"left": {'A', '1'}, "right": {'B', '2'}},
				}},
			{Name: "cloud", Timeout: 5 * time.Second, RatePerSecond: 10, Concurrency: 2, Type: "plain",
				Config: &configtest.Plain{}},
		},
		Nodes: []config.NodeRule{
			{Name: "workers", Selector: "node-role.kubernetes.io/worker", Provider: "racks", Mode: "observe",
				Machine: config.Source{
					From: config.FromTemplate,
					Template: `https://{name}.` +
						`{label:example.net/rack}.example.net`,
				}},
			{Name: "clouds", Selector: "example.net/cloud=yes", Provider: "cloud",
				Machine: config.Source{From: config.FromProviderID, Part: config.Last}},
			{Name: "raw", Selector: "example.net/cloud=raw", Provider: "cloud",
				Machine: config.Source{From: config.FromProviderID, Part: config.All}},
			{Name: "uuid", Selector: "uuid", Provider: "cloud", Machine: config.Source{From: config.FromSystemUUID}},
			{Name: "noted", Selector: "noted", Provider: "cloud",
				Machine: config.Source{From: config.FromAnnotation, Annotation: "Example.net/machine"}},
			{Name: "old-ones", Provider: "racks", Machine: config.Source{From: config.FromList, List: []config.Listed{
				{Node: "old-1", ID: "https://10.0.0.1"}, {Node: "old-2", ID: "https://10.0.0.2"},
			}}},
		},
		Policies: []config.Policy{
			{Name: "longhorn-idle", Preset: "longhorn", NodeDownPodDeletionPolicy: "do-nothing",
				VolumeAttachmentRecoveryPolicy: "never"},
			{Name: "longhorn-default", Preset: "longhorn", WithoutProof: policy.AcceptDuplicates},
			{Name: "longhorn", Preset: "longhorn",
				NodeDownPodDeletionPolicy: "delete-both-statefulset-and-deployment-pod",
				WithoutProof:              policy.AcceptDuplicates},
			{Name: "noobaa", Preset: "noobaa", WithoutProof: policy.AcceptDuplicates},
			{Name: "own", When: policy.NotReady, Nodes: "rack=a", Namespaces: []string{"db"}, Pods: "app=db",
				Owners:  []string{"StatefulSet"},
				Drivers: []string{"csi.example.net"}, Volumes: "all", Terminating: true,
				VolumeAttachmentRecoveryPolicy: "immediate", WithoutProof: policy.StorageFences},
		},
	}
	ignore := cmpopts.IgnoreUnexported(config.Policy{}, config.Config{}, config.NodeRule{}, config.Source{})
	if diff := cmp.Diff(want, got, ignore); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func address(text string) (u configtest.URL) {
	if err := u.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return u
}

func TestDefaults(t *testing.T) {
	got := parse(t, "mode: observe\nlisten:\nproviders:\n- name: a\n  redfish: {username: root, passwordEnv: BMC, "+
		"nested: {}}\n")
	want := config.Default()
	want.Providers = []config.Provider{{
		Name: "a", Timeout: 5 * time.Second, RatePerSecond: 10, Concurrency: 2, Type: "redfish",
		Config: &configtest.Redfish{Username: "root", PasswordEnv: "BMC", Auth: "auto", Poll: time.Second,
			Tags: []string{"default"}},
	}}
	ignore := cmpopts.IgnoreUnexported(config.Policy{}, config.Config{}, config.NodeRule{}, config.Source{})
	if diff := cmp.Diff(want, got, ignore); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if sel := got.Settings("").EvictFirst; !sel.Empty() && sel.String() != "" || sel.Matches(nil) {
		t.Errorf("got %q for no evictFirst, want a selector that matches nothing", sel)
	}
}

func TestEnvironment(t *testing.T) {
	const text = "mode: observe\nlisten:\n  metrics: 127.0.0.1:1\npowerOffAfter: 30s\n"
	for _, tc := range []struct {
		name, text string
		env        map[string]string
		want       func(*config.Config)
		err        string
	}{
		{name: "none", text: text, want: func(*config.Config) {}},
		{
			name: "over the file", text: text,
			env: map[string]string{
				"FORCEFENCE_MANUAL_MARKS": "trust", "FORCEFENCE_POWER_OFF_AFTER": "2m",
				"FORCEFENCE_LISTEN_METRICS": "127.0.0.1:9",
			},
			want: func(c *config.Config) {
				c.ManualMarks, c.PowerOffAfter, c.Listen.Metrics = config.Trust, 2*time.Minute, "127.0.0.1:9"
			},
		},
		{
			name: "not in the file", text: text,
			env: map[string]string{"FORCEFENCE_LEADER_ELECTION_ENABLED": "false",
				"FORCEFENCE_MAINTENANCE_LEASES": "123"},
			want: func(c *config.Config) { c.LeaderElection.Enabled, c.MaintenanceLeases = false, "123" },
		},
		{
			name: "empty is not set, a Service's are not ours", text: text,
			env: map[string]string{
				"FORCEFENCE_MODE": "", "FORCEFENCE_MODEL": "", "FORCEFENCE_PORT": "tcp://10.0.0.1:8080",
				"FORCEFENCE_SERVICE_HOST":              "10.0.0.1",
				"FORCEFENCE_SERVICE_PORT_HTTP_METRICS": "8080", "FORCEFENCE_PORT_8080_TCP": "tcp://10.0.0.1:8080",
				"FORCEFENCE_PORT_8080_TCP_ADDR":   "10.0.0.1",
				"FORCEFENCE_METRICS_SERVICE_HOST": "10.0.0.1", "FORCEFENCE_METRICS_PORT_53_UDP_PROTO": "udp",
			},
			want: func(*config.Config) {},
		},
		{
			name: "a variable that is none", text: text,
			env: map[string]string{"FORCEFENCE_MOED": "fence", "FORCEFENCE_POWEROFFAFTER": "2m",
				"FORCEFENCE_SERVICE_HOSTS": "hunter2"},
			err: "environment variable FORCEFENCE_MOED: names no key: did you mean \"FORCEFENCE_MODE\"?\n" +
				"environment variable FORCEFENCE_POWEROFFAFTER: names no key: did you mean " +
				"\"FORCEFENCE_POWER_OFF_AFTER\"?\n" +
				"environment variable FORCEFENCE_SERVICE_HOSTS: names no key. Only keys with a single value have a " +
				"variable: write lists and all that is in them into the file",
		},
		{
			name: "those of lists", text: text,
			env: map[string]string{"FORCEFENCE_MODES": "[]", "FORCEFENCE_STORM_GUARD_DOMAINS": "[]"},
			err: "environment variable FORCEFENCE_MODES: modes is a list: write it into the file\n" +
				"environment variable FORCEFENCE_STORM_GUARD_DOMAINS: stormGuard.domains is a list: write it into " +
				"the file",
		},
		{
			name: "one of an earlier version", text: text,
			env: map[string]string{"FORCEFENCE_LISTEN_HEALTH": "127.0.0.1:9", "FORCEFENCE_RECORDS_KEEP": "7"},
			err: "environment variable FORCEFENCE_LISTEN_HEALTH: was removed: health is always served on " +
				"port 8081\n" +
				"environment variable FORCEFENCE_RECORDS_KEEP: was removed: " +
				"the newest 100 finished Fencings are kept, each for at most 90 days",
		},
		{
			name: "wrong", text: text,
			env: map[string]string{
				"FORCEFENCE_MODE": "fenc", "FORCEFENCE_POWER_OFF_AFTER": "60",
				"FORCEFENCE_LEADER_ELECTION_ENABLED": "yes",
			},
			err: "environment variable FORCEFENCE_LEADER_ELECTION_ENABLED: leaderElection.enabled: want true or " +
				"false, have text: write true\n" +
				"environment variable FORCEFENCE_MODE: mode: must be observe, onRequest, fence, shadow or disabled: " +
				"did " +
				"you mean " +
				"\"fence\"?\n" +
				"environment variable FORCEFENCE_POWER_OFF_AFTER: powerOffAfter: a duration needs a unit: \"60s\"?",
		},
		{
			name: "what the environment sets is not given in the file", text: text,
			env:  map[string]string{"FORCEFENCE_MAX_POWER_ONS_PER_DAY": "2"},
			want: func(c *config.Config) { c.MaxPowerOnsPerDay = 2 },
		},
		{
			name: "over a faulty value of the file", text: text + "taintKey: 3\nlistens: {}\n",
			env: map[string]string{
				"FORCEFENCE_TAINT_KEY": "\xff", "FORCEFENCE_LISTEN_METRICS": "hunter2",
				"FORCEFENCE_DETACH_TIMEOUT": "+0",
			},
			err: "environment variable FORCEFENCE_DETACH_TIMEOUT: detachTimeout: not a duration: write it as " +
				"\"30s\", \"5m\" or \"1h30m\"\n" +
				"environment variable FORCEFENCE_LISTEN_METRICS: listen.metrics: must be host:port, or \"\" for no " +
				"server\n" +
				"environment variable FORCEFENCE_TAINT_KEY: taintKey: is not UTF-8\n" +
				"f:5: taintKey: want text, have a whole number: put it in quotes\n" +
				"f:6: listens: unknown key: did you mean \"listen\"?",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			got, err := config.Parse("f", []byte(tc.text), configtest.Types())
			if tc.err != "" || err != nil {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("got error\n%v\nwant\n%s", err, tc.err)
				}
				return
			}
			want := parse(t, "mode: observe\nlisten:\n  metrics: 127.0.0.1:1\npowerOffAfter: 30s\n")
			want.PowerOffAfter, want.Listen.Metrics = 30*time.Second, "127.0.0.1:1"
			want.ManualMarks, want.LeaderElection = config.Refuse, config.Default().LeaderElection
			tc.want(want)
			ignore := cmpopts.IgnoreUnexported(config.Policy{}, config.Config{}, config.NodeRule{}, config.Source{})
			if diff := cmp.Diff(want, got, ignore); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A variable that the file itself names is no fault.
func TestEnvironmentNamedByFile(t *testing.T) {
	t.Setenv("FORCEFENCE_BMC_PASSWORD", "hunter2")
	parse(t, "providers: [{name: a, redfish: {username: root, passwordEnv: FORCEFENCE_BMC_PASSWORD}}]\n")
	if _, err := config.Parse("f", []byte("providers: [{name: a, redfish: {username: root, passwordEnv: "+
		"BMC_PASSWORD}}]\n"), configtest.Types()); err == nil ||
		!strings.Contains(err.Error(), "FORCEFENCE_BMC_PASSWORD: names no key") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("no setting names it: got %v", err)
	}
}

func TestEnvName(t *testing.T) {
	for path, want := range map[string]string{
		"mode":                         "FORCEFENCE_MODE",
		"powerOffAfter":                "FORCEFENCE_POWER_OFF_AFTER",
		"leaderElection.leaseDuration": "FORCEFENCE_LEADER_ELECTION_LEASE_DURATION",
	} {
		if got := config.EnvName(path); got != want {
			t.Errorf("EnvName(%q): got %s, want %s", path, got, want)
		}
	}
}

func TestLoadNoFile(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"), nil)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

func TestDigest(t *testing.T) {
	a, b, c := parse(t, "mode: observe\n"), parse(t, "mode: observe\n"), parse(t, "mode: observe \n")
	if a.Digest() != b.Digest() || a.Digest() == c.Digest() || a.Digest() == "" {
		t.Errorf("got %q, %q and %q, want the first two the same", a.Digest(), b.Digest(), c.Digest())
	}
}

// FuzzParse demands of any file that it is either a Config or Errors with lines, never a panic, and that no secret is
// shown.
func FuzzParse(f *testing.F) {
	for _, dir := range []string{"broken", "good"} {
		files, err := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
		if err != nil || len(files) == 0 {
			f.Fatalf("no files in %s (%v)", dir, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := config.Parse("f", data, configtest.Types())
		if (cfg == nil) == (err == nil) {
			t.Fatalf("got %v and %v, want one of them", cfg, err)
		}
		if err != nil {
			checkErrors(t, err)
			return
		}
		for _, p := range cfg.Providers {
			if p.Type == "" || p.Config == nil {
				t.Errorf("got provider %+v, want a type and settings", p)
			}
		}
	})
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("f", []byte(text), configtest.Types())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestRules: a preset's values hold where the item says nothing, do-nothing and never are no rules, of a ReplicaSet's
// pods there is a rule of its own, and NooBaa's pods are those beside the controller.
func TestRules(t *testing.T) {
	cfg, err := config.Load(filepath.Join("testdata", "good", "full.yaml"), configtest.Types())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range cfg.Settings("home").Policies {
		nodes, pods := "any", "any"
		if p.Nodes != nil {
			nodes = p.Nodes.String()
		}
		if p.Pods != nil {
			pods = p.Pods.String()
		}
		does := "deletes"
		if p.Keep && p.Detach && p.Replaced {
			does = "releases for a replacement"
		} else if p.Keep && p.Detach {
			does = "releases"
		}
		got = append(got,
			fmt.Sprintf("%s: %s, nodes %s, in %v, pods %s, of %v, with %v, all %t, terminating %t, %s", p, p.When,
				nodes, p.Namespaces, pods, p.Owners, p.Drivers, p.AllVolumes,
				p.Terminating, does))
	}
	want := []string{
		"policy longhorn-default, without proof: accept-duplicates: NotReady, nodes any, in [], pods any, of " +
			"[ReplicaSet], with [driver.longhorn.io], all false, terminating true, releases",
		"policy longhorn, without proof: accept-duplicates: NotReady, nodes any, in [], pods any, of [StatefulSet " +
			"Deployment], with [driver.longhorn.io], all false, terminating true, deletes",
		"policy longhorn, without proof: accept-duplicates: NotReady, nodes any, in [], pods any, of [ReplicaSet], " +
			"with [driver.longhorn.io], all false, terminating true, releases",
		"policy noobaa, without proof: accept-duplicates: BecameNotReady, nodes any, in [home], pods " +
			"app=noobaa,!cnpg.io/cluster,!cnpg.noobaa.io/cluster,!noobaa-db, of [], with [], all false, " +
			"terminating false, deletes",
		"policy own, without proof: storage-fences: NotReady, nodes rack=a, in [db], pods app=db, of [StatefulSet], " +
			"with [csi.example.net], all true, terminating true, deletes",
		"policy own, without proof: storage-fences: NotReady, nodes rack=a, in [db], pods app=db, of [ReplicaSet], " +
			"with [csi.example.net], all true, terminating false, releases for a replacement",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What the storm guard keeps to: a domain without a floor of its own has half, and only a label that no kubelet can
// write is followed when it changes.
func TestStormGuard(t *testing.T) {
	got, err := config.Load(filepath.Join("testdata", "good", "full.yaml"), configtest.Types())
	if err != nil {
		t.Fatal(err)
	}
	want := &fleet.Limits{
		MaxPowerOffs: fleet.Amount{Number: 3}, MinHealthy: fleet.Amount{Percent: 40}, CoolDown: time.Minute,
		Domains: []fleet.Domain{
			{Label: "rack", MinHealthy: fleet.Amount{Number: 2}},
			{Label: "a.node-restriction.kubernetes.io/row", MinHealthy: fleet.Amount{Percent: 50}, Fixed: true},
		},
	}
	if diff := cmp.Diff(want, got.Settings("").Limits); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	byDefault := fleet.DefaultLimits()
	if diff := cmp.Diff(&byDefault, config.Default().Settings("").Limits); diff != "" {
		t.Errorf("by default (-want +got):\n%s", diff)
	}
	if config.Default().StormGuard.ControlPlane != config.Never {
		t.Error("control-plane nodes are powered off by default")
	}
}
