package install

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// TestAPI does everything on a real API server with a kubelet's own rights, under the Node authorizer and
// NodeRestriction.
func TestAPI(t *testing.T) {
	c := cluster.ForTest(t, cluster.Options{})
	admin := c.Client().CoreV1()
	for _, name := range []string{"n1", "n2"} {
		_, err := c.AddNode(t.Context(), cluster.NodeOptions{Name: name})
		kit.Must(t, err)
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubelet.conf")
	kit.Must(t, c.WriteKubeconfig(kubeconfig, "system:node:n1", "system:nodes"))
	config := nri.Config{NodeName: "n1", Kubeconfig: kubeconfig, TaintKey: taint.DefaultKey, Path: nri.DefaultPath}

	t.Run("kubeconfig", func(t *testing.T) { testConnect(t, c, config) })
	t.Run("exec credential", func(t *testing.T) { testExecCredential(t, c, config) })

	client, node, err := connectAsKubelet(t.Context(), config, "v9.8.7")
	kit.Must(t, err)
	if node.Name != "n1" {
		t.Fatalf("got Node %q", node.Name)
	}

	t.Run("pods", func(t *testing.T) {
		ns, err := c.CreateNamespace(t.Context(), "install")
		kit.Must(t, err)
		for name, node := range map[string]string{"mine": "n1", "theirs": "n2"} {
			_, err := admin.Pods(ns).Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}, metav1.CreateOptions{})
			kit.Must(t, err)
		}
		pods, err := listPods(t.Context(), client, "n1")
		kit.Must(t, err)
		if len(pods) != 1 || pods[0].Name != "mine" {
			t.Errorf("got %d pods", len(pods))
		}
		if _, err := listPods(t.Context(), client, "n2"); !apierrors.IsForbidden(err) {
			t.Errorf("another node's pods: got %v, want that it is forbidden", err)
		}
	})

	t.Run("report", func(t *testing.T) {
		boot, err := Host{}.bootID()
		kit.Must(t, err)
		closed := Protection{Level: FailClosed, Reason: "It holds."}
		for _, step := range []struct {
			p      Protection
			status corev1.ConditionStatus
			reason string
			kind   string // of the Event; "" for none
		}{
			{closed, corev1.ConditionTrue, "FailClosed", corev1.EventTypeNormal},
			{closed, corev1.ConditionTrue, "FailClosed", ""},
			{Protection{FailOpen, "It may not hold.", "Do this."}, corev1.ConditionTrue, "FailOpen",
				corev1.EventTypeWarning},
			{Protection{NotAtBoot, "Not at a boot.", "Do this."}, corev1.ConditionTrue, "NotAtBoot",
				corev1.EventTypeWarning},
			{Protection{Level: None, Reason: "Nothing does."}, corev1.ConditionFalse, "None", corev1.EventTypeWarning},
		} {
			before, events := guard(t, admin.Nodes().Get), len(guardEvents(t, c))
			kit.Must(t, ReportProtection(t.Context(), client, "n1", step.p))
			after := guard(t, admin.Nodes().Get)
			if after == nil || after.Status != step.status || after.Reason != step.reason ||
				after.Message != step.p.Sentence()+" Seen on boot "+boot+"." {
				t.Errorf("%+v: got %+v", step.p, after)
			}
			all := guardEvents(t, c)
			if step.kind == "" {
				if len(all) != events || *after != *before {
					t.Errorf("%+v: a second report changed something", step.p)
				}
				continue
			}
			if len(all) != events+1 {
				t.Errorf("%+v: got %d Events, want one more than %d", step.p, len(all), events)
				continue
			}
			if e := find(all, "ForcefenceGuard"+step.reason); e.Type != step.kind || e.Message != after.Message ||
				e.InvolvedObject.UID != "n1" {
				t.Errorf("%+v: got Event %+v", step.p, e)
			}
			if before != nil && before.Status == after.Status &&
				!before.LastTransitionTime.Equal(&after.LastTransitionTime) {
				t.Errorf("%+v: the time of transition changed without the status", step.p)
			}
		}
		others := len(conditions(t, admin.Nodes().Get))
		for range 2 {
			kit.Must(t, removeReport(t.Context(), client, "n1"))
			if g := guard(t, admin.Nodes().Get); g != nil {
				t.Errorf("still there: %+v", g)
			}
		}
		if left := len(conditions(t, admin.Nodes().Get)); left != others-1 || left == 0 {
			t.Errorf("%d conditions are left of %d", left, others)
		}
		if err := ReportProtection(t.Context(), client, "n2", closed); !apierrors.IsForbidden(err) {
			t.Errorf("another's Node: got %v, want that it is forbidden", err)
		}
	})

	// Another client writes the Node between the read and the patch.
	t.Run("conflict", func(t *testing.T) {
		times := 0
		kit.Must(t, patchStatus(t.Context(), client, "n1", func(n *corev1.Node) any {
			if times++; times == 1 {
				n.ResourceVersion = "1"
			}
			return conditionOf(Protection{Level: FailOpen, Reason: "x"}, "boot", metav1.Now())
		}))
		if times < 2 || guard(t, admin.Nodes().Get) == nil { // more if others really wrote
			t.Errorf("tried %d times", times)
		}
	})

	t.Run("uninstall", func(t *testing.T) {
		l := newLab(t)
		l.opts.connect = nil
		l.opts.Config.Kubeconfig = kubeconfig
		l.opts.Site.Command = strings.Join(l.daemon, " ") // the Node has a simulated kubelet
		l.write("proc/sys/kernel/random/boot_id", node.Status.NodeInfo.BootID+"\n")
		l.mustInstall()
		kit.Must(t, ReportProtection(t.Context(), client, "n1", Protection{Level: FailOpen, Reason: "x"}))
		l.opts.Config.NodeName = "wrong" // the installed configuration wins
		l.uninstall()
		if g := guard(t, admin.Nodes().Get); g != nil {
			t.Errorf("still there: %+v", g)
		}
	})
}

type getNodeFunc func(context.Context, string, metav1.GetOptions) (*corev1.Node, error)

func conditions(t *testing.T, get getNodeFunc) []corev1.NodeCondition {
	t.Helper()
	n, err := get(t.Context(), "n1", metav1.GetOptions{})
	kit.Must(t, err)
	return n.Status.Conditions
}

func guard(t *testing.T, get getNodeFunc) *corev1.NodeCondition {
	t.Helper()
	for _, c := range conditions(t, get) {
		if c.Type == taint.ProtectionCondition {
			return &c
		}
	}
	return nil
}

// guardEvents returns the Events about the Node's protection.
func guardEvents(t *testing.T, c *cluster.Cluster) []corev1.Event {
	t.Helper()
	list, err := c.Client().CoreV1().Events(metav1.NamespaceDefault).
		List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=n1"})
	kit.Must(t, err)
	return slices.DeleteFunc(list.Items,
		func(e corev1.Event) bool { return !strings.HasPrefix(e.Reason, string(taint.ProtectionCondition)) })
}

// find returns the Event with a reason, or an empty one.
func find(all []corev1.Event, reason string) corev1.Event {
	for _, e := range all {
		if e.Reason == reason {
			return e
		}
	}
	return corev1.Event{}
}

func testConnect(t *testing.T, c *cluster.Cluster, good nri.Config) {
	empty := filepath.Join(t.TempDir(), "empty")
	kit.Must(t, os.WriteFile(empty, nil, 0o600))
	expired := filepath.Join(t.TempDir(), "token")
	cfg, err := clientcmd.LoadFromFile(good.Kubeconfig)
	kit.Must(t, err)
	for name := range cfg.AuthInfos {
		cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "of-yesterday"}
	}
	kit.Must(t, clientcmd.WriteToFile(*cfg, expired))
	for _, tc := range []struct {
		name   string
		change func(*nri.Config)
		want   string
	}{
		{"no file", func(c *nri.Config) { c.Kubeconfig = "/nowhere" },
			"/nowhere: no such file or directory: set --kubeconfig to another file"},
		{"empty", func(c *nri.Config) { c.Kubeconfig = empty }, "set --kubeconfig to another file"},
		{"refused credential", func(c *nri.Config) { c.Kubeconfig = expired },
			"the API server rejects the credential in"},
		{"no such Node", func(c *nri.Config) { c.NodeName = "n9" }, "no Node n9 exists that"},
		{"another's Node", func(c *nri.Config) { c.NodeName = "n2" }, "no Node n2 exists that"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := good
			tc.change(&config)
			if _, _, err := connectAsKubelet(t.Context(), config, "v9.8.7"); err == nil ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			// And the hook is not enabled.
			l := newLab(t)
			l.opts.connect = nil
			l.opts.Config.Kubeconfig, l.opts.Config.NodeName = config.Kubeconfig, config.NodeName
			if _, err := l.install(); err == nil || len(keys(l.tree(false))) != 2 {
				t.Errorf("got %v, and %q", err, keys(l.tree(false)))
			}
		})
	}
	// A deleted Node, read by a user who may read it.
	config := good
	config.Kubeconfig, config.NodeName = c.Kubeconfig(), "n9"
	if _, _, err := connectAsKubelet(t.Context(), config, "v9.8.7"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
}

// testExecCredential gets the credential from a program that is found by PATH alone, as on EKS: NRI gives a plugin no
// environment.
func testExecCredential(t *testing.T, c *cluster.Cluster, good nri.Config) {
	dir := t.TempDir()
	rc := c.RESTConfigFor("system:node:n1", "system:nodes")
	credential, err := json.Marshal(map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
		"status": map[string]string{"clientCertificateData": string(rc.CertData), "clientKeyData": string(rc.KeyData)},
	})
	kit.Must(t, err)
	kit.Must(t, os.WriteFile(filepath.Join(dir, "answer.json"), credential, 0o600))
	kit.Must(t, os.WriteFile(filepath.Join(dir, "get-credential"), fmt.Appendf(nil,
		"#!/bin/sh\n[ -z \"$LEAKED\" ] || { echo LEAKED is set >&2; exit 1; }\ncat %s\n",
		kit.QuoteShell(filepath.Join(dir, "answer.json"))), 0o755))

	cfg, err := clientcmd.LoadFromFile(good.Kubeconfig)
	kit.Must(t, err)
	for name := range cfg.AuthInfos {
		cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "get-credential",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
	}
	config := good
	config.Kubeconfig = filepath.Join(dir, "kubeconfig")
	kit.Must(t, clientcmd.WriteToFile(*cfg, config.Kubeconfig))

	t.Setenv("PATH", os.Getenv("PATH")+":"+dir) // ours finds it, the plugin's would not
	t.Setenv("LEAKED", "yes")                   // the plugin will not have it
	if _, _, err := connectAsKubelet(t.Context(), config, "v9.8.7"); err == nil ||
		!strings.Contains(err.Error(), "get-credential") {
		t.Errorf("without the program in PATH: got %v", err)
	}
	config.Path += ":" + dir
	if _, _, err := connectAsKubelet(t.Context(), config, "v9.8.7"); err != nil {
		t.Errorf("with it: %v", err)
	}
	if os.Getenv("LEAKED") != "yes" || !strings.HasSuffix(os.Getenv("PATH"), dir) {
		t.Error("our own environment was not restored")
	}
}
