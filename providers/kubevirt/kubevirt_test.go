package kubevirt_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/kubevirt"
	"github.com/forcefence/forcefence/providers/providertest"
)

// A guest is off only if a live kubelet reports the end of every container of every launcher pod. Each row shows the
// worlds of a question's looks, each edited from a guest that runs on h1.
func TestState(t *testing.T) {
	const on, off, changing, unknown = providers.PowerOn, providers.PowerOff, providers.PowerChanging,
		providers.PowerUnknown
	type looks [][]edit
	// at the first look, and at a second, when the kubelet has shown that it is alive
	ended := func(more ...edit) looks {
		edits := append([]edit{phase("Succeeded"), end}, more...)
		return looks{edits, append(slices.Clone(edits), beat)}
	}
	terminated := func(change func(*corev1.ContainerStateTerminated)) edit {
		return func(w *world) { change(w.pods[0].Status.ContainerStatuses[0].State.Terminated) }
	}
	node := func(change func(*corev1.Node)) edit { return func(w *world) { change(w.nodes["h1"]) } }
	notReady := node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	second := func(change func(*corev1.Pod)) edit {
		return func(w *world) {
			p := launcher("2", "h2")
			change(p)
			w.pods = append(w.pods, p)
			_ = unstructured.SetNestedField(w.vmi, "h2", "status", "activePods", "pod-2")
		}
	}
	endSecond := second(func(p *corev1.Pod) { endPod(p, corev1.PodFailed) })
	keep := func(*corev1.Pod) {}
	for _, tt := range []struct {
		name  string
		looks looks
		want  providers.PowerState
		raw   string
	}{
		{"runs", looks{{}}, on, "Running on h1"},
		{"runs, though KubeVirt calls it Failed: its virt-handler is dead", looks{{phase("Failed")}}, on,
			"Failed on h1"},
		{"paused: its container runs", looks{{set([]any{map[string]any{"type": "Paused", "status": "True"}}, "status",
			"conditions")}}, on, "Running on h1"},
		{"its host is silent", looks{{notReady}}, unknown, "Running, but its host h1 is not Ready"},
		{"its host is no Node any more", looks{{func(w *world) { delete(w.nodes, "h1") }}}, unknown,
			"Running, but its host h1 is not Ready"},

		{"ended, and the kubelet is alive", ended(), off, "launcher pods ended: Succeeded on h1"},
		{"killed", ended(phase("Failed"), func(w *world) { w.pods[0].Status.Phase = corev1.PodFailed }), off,
			"launcher pods ended: Failed on h1"},
		{"ended, and the Lease stays", looks{{end}}, unknown,
			"Running, its launcher pods ended, but h1 has not renewed its Lease yet"},
		{"ended, and the Lease goes back", looks{{end, beat}, {end}}, unknown,
			"Running, its launcher pods ended, but h1 has not renewed its Lease yet"},
		{"ended, and another's Lease", looks{{end}, {end, beat, func(w *world) {
			w.leases["h1"].Spec.HolderIdentity =
				new("h2")
		}}}, unknown, "Running, its launcher pods ended, but h1 has no Node with a boot id, or no Lease"},
		{"ended, and the host was started meanwhile", looks{{end}, {end, beat, node(func(n *corev1.Node) {
			n.Status.NodeInfo.BootID = "boot-2"
		})}}, unknown,
			"Running, its launcher pods ended, but h1 was started meanwhile"},
		{"ended, and the host is another Node meanwhile", looks{{end}, {end, beat, node(func(n *corev1.Node) {
			n.UID = "other"
		})}}, unknown, "Running, its launcher pods ended, but h1 was started meanwhile"},
		{"ended on a host without a boot id", ended(node(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "" })),
			unknown,
			"Succeeded, its launcher pods ended, but h1 has no Node with a boot id, or no Lease"},
		{"ended, and runs again", looks{{end}, {beat}}, on, "Running on h1"},

		{"its end is reported during the question", looks{{deleting}, {deleting, end}}, off,
			"launcher pods ended: Succeeded on h1"},
		{"likewise, and the host was started meanwhile", looks{{deleting}, {deleting, end, node(func(n *corev1.Node) {
			n.Status.NodeInfo.BootID = "boot-2"
		})}}, unknown,
			"Running, its launcher pods ended, but h1 was started meanwhile"},
		{"another client writes the phase of a pod that had ended", looks{{deleting, end, func(w *world) {
			w.pods[0].Status.Phase = corev1.PodRunning
		}}, {deleting, end}}, unknown, "Running, its launcher pods ended, but h1 has not renewed its Lease yet"},
		{"gone before its end was seen", looks{{deleting}, {vmiGone}}, unknown,
			"no instance; KubeVirt shows Stopped"},
		{"ended, and gone before the kubelet was seen alive", looks{{deleting, end}, {vmiGone}}, unknown,
			"no instance; KubeVirt shows Stopped"},
		{"being stopped", looks{{deleting}}, changing,
			"Running, being stopped: container guest-console-log has not ended"},
		{"being stopped on a silent host", looks{{deleting, notReady}}, unknown,
			"Running, but its host h1 is not Ready"},
		{"gone, and Stopped", looks{{vmiGone}}, unknown, "no instance; KubeVirt shows Stopped"},

		{"no launcher pod", ended(func(w *world) { w.pods = nil }), unknown,
			"Succeeded, but a launcher pod that it names is gone"},
		{"names no launcher pod", ended(set(map[string]any{}, "status", "activePods")), unknown,
			"Succeeded, but it names no launcher pod"},
		{"names one more, which is gone", ended(set("h2", "status", "activePods", "pod-2")), unknown,
			"Succeeded, but a launcher pod that it names is gone"},
		{"names one whose label was removed", ended(func(w *world) { w.pods[0].Labels = nil }), unknown,
			"Succeeded, but a launcher pod that it names is gone"},
		{"is on a host without a launcher pod", ended(set("h2", "status", "nodeName")), unknown,
			"Succeeded, but it is on h2, where no launcher pod is"},
		{"one more that it does not name yet, and that runs", ended(second(keep), set(map[string]any{"pod-1": "h1"},
			"status", "activePods")), on, "Succeeded on h2"},

		{"migrates: the target runs, too", looks{{second(keep)}}, on, "Running on h1"},
		{"migrated: the source ended", looks{{end, second(keep), set("h2", "status", "nodeName")}},
			on, "Running on h2"},
		{"migrates, and the source's host is silent", looks{{second(keep), notReady}}, on, "Running on h2"},
		{"migrated once, and ended: the earlier host need not be alive", ended(endSecond, notReady, set("h2", "status",
			"nodeName")), off, "launcher pods ended: Failed on h2, Succeeded on h1"},
		{"its migration names a pod that is gone", ended(set("virt-launcher-guest-1-0", "status", "migrationState",
			"sourcePod")), unknown, "Succeeded, but launcher pod virt-launcher-guest-1-0 of its migration is gone"},
		{"migrated to another cluster", ended(set("virt-launcher-guest-1-9", "status", "migrationState", "targetState",
			"pod")), unknown, "Succeeded, but launcher pod virt-launcher-guest-1-9 of its migration is gone"},
		{"waits for another cluster", ended(phase("WaitingForSync")), unknown, "WaitingForSync"},

		{"starts", looks{{phase("Scheduling"), func(w *world) { w.pods[0].Status.Phase = corev1.PodPending }}},
			changing,
			"Scheduling, starting on h1"},
		{"has no host yet", looks{{phase("Scheduling"), set("", "status", "nodeName"),
			func(w *world) { w.pods[0].Spec.NodeName = "" }}}, changing, "Scheduling, a launcher pod has no host yet"},
		{"a word of no phase", ended(phase("Frobnicating")), unknown, "Frobnicating"},
		{"another spelling", ended(phase("succeeded")), unknown, "succeeded"},
		{"no phase", ended(phase("")), unknown, "no phase"},

		{"a container runs", ended(func(w *world) {
			w.pods[0].Status.InitContainerStatuses[0].State = corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{},
			}
		}), unknown, "Succeeded, but container guest-console-log has not ended"},
		{"a container waits", ended(func(w *world) {
			w.pods[0].Status.ContainerStatuses[0].State = corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{},
			}
		}), unknown, "Succeeded, but container compute has not ended"},
		{"a container without a status", ended(func(w *world) { w.pods[0].Status.InitContainerStatuses = nil }),
			unknown,
			"Succeeded, but container guest-console-log has not ended"},
		{"an ephemeral container without a status", ended(func(w *world) {
			w.pods[0].Spec.EphemeralContainers = []corev1.EphemeralContainer{{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}}}
		}), unknown, "Succeeded, but container debugger has not ended"},
		{"no container of QEMU", ended(func(w *world) { w.pods[0].Status.ContainerStatuses[0].Name = "other" }),
			unknown,
			"Succeeded, but a launcher pod has no container compute"},
		{"lost by the kubelet", ended(terminated(func(s *corev1.ContainerStateTerminated) {
			s.Reason = "ContainerStatusUnknown"
		})), unknown, "Succeeded, but the host lost sight of container compute"},
		{"lost by containerd", ended(terminated(func(s *corev1.ContainerStateTerminated) {
			s.Reason = "Unknown"
		})), unknown, "Succeeded, but the host lost sight of container compute"},
		{"the exit code of a lost one",
			ended(terminated(func(s *corev1.ContainerStateTerminated) { s.ExitCode = 255 })),
			unknown, "Succeeded, but the host lost sight of container compute"},
		{"an end of no container", ended(terminated(func(s *corev1.ContainerStateTerminated) { s.ContainerID = "" })),
			unknown, "Succeeded, but the host lost sight of container compute"},
		{"may be started again", ended(func(w *world) { w.pods[0].Spec.RestartPolicy = corev1.RestartPolicyAlways }),
			unknown, "Succeeded, but a launcher pod has restartPolicy Always"},
		{"a pod that is Running all the same", ended(func(w *world) { w.pods[0].Status.Phase = corev1.PodRunning }),
			unknown, "Succeeded, but a launcher pod is Running"},
		{"a pod that is Failed by word alone, as garbage collection writes it", looks{{phase("Failed"), notReady,
			func(w *world) { w.pods[0].Status.Phase = corev1.PodFailed }}}, unknown,
			"Failed, but its host h1 is not Ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var worlds []*world
			for _, edits := range tt.looks {
				worlds = append(worlds, edited(edits...))
			}
			s, p := newScript(t, worlds...)
			a := providers.Ask(t.Context(), p, "test", target, providers.Now)
			if a.State != tt.want || a.Raw != tt.raw || a.Err != nil {
				t.Errorf("got %s (%q), %v; want %s (%q)", a.State, a.Raw, a.Err, tt.want, tt.raw)
			}
			if a.SystemUUID != aUUID {
				t.Errorf("got system UUID %q, want %q", a.SystemUUID, aUUID)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, uri := range s.asked {
				if strings.Contains(uri, "resourceVersion") || strings.Contains(uri, "limit") {
					t.Errorf("%s: a cache may answer, or the list may not be whole", uri)
				}
			}
		})
	}
}

// What is no answer about that machine is an error of its class.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		world *world
		want  error
	}{
		{"neither instance nor VirtualMachine", edited(func(w *world) { w.vmi, w.vm = nil, nil }),
			providers.ErrNotFound},
		{"another instance", edited(set("guest-2", "metadata", "name")), providers.ErrPermanent},
		{"another namespace", edited(set("tenant-b", "metadata", "namespace")), providers.ErrPermanent},
		{"no UID", edited(set("", "metadata", "uid")), providers.ErrPermanent},
		{"another kind", edited(set("Pod", "kind")), providers.ErrPermanent},
		{"a part of the pods", edited(func(w *world) { w.list.Continue = "next" }), providers.ErrPermanent},
		{"a list of no moment", edited(func(w *world) { w.list.ResourceVersion = "" }), providers.ErrPermanent},
		{"another Node", edited(func(w *world) { w.nodes["h1"].Name = "h2" }), providers.ErrPermanent},
		{"another Lease", edited(func(w *world) { w.leases["h1"].Name = "h2" }), providers.ErrPermanent},
		{"a host with no possible name", edited(func(w *world) { w.pods[0].Spec.NodeName = "../pods" }, set("../pods",
			"status", "nodeName")), providers.ErrPermanent},
		{"launcher pods everywhere", edited(func(w *world) {
			for _, host := range []string{"h3", "h4", "h5", "h6", "h7"} {
				w.pods = append(w.pods, launcher(host, host))
				w.nodes[host], w.leases[host] = w.nodes["h1"].DeepCopy(), w.leases["h1"].DeepCopy()
				w.nodes[host].Name, w.leases[host].Name = host, host
			}
		}), providers.ErrPermanent},
		{"another machine", edited(set("00000000-0000-4000-8000-00000000cafe", "spec", "domain", "firmware", "uuid")),
			providers.ErrIdentity},
	} {
		_, p := newScript(t, tt.world)
		if a := providers.Ask(t.Context(), p, "test", target, providers.Now); a.State != providers.PowerUnknown ||
			!errors.Is(a.Err, tt.want) {
			t.Errorf("%s: got %s (%q), %v; want %v", tt.name, a.State, a.Raw, a.Err, tt.want)
		}
	}
}

// A power action goes to the machine that was identified, and a conflict is looked into.
func TestActs(t *testing.T) {
	strategy := func(word string) edit {
		return func(w *world) { _ = unstructured.SetNestedField(w.vm, word, "spec", "runStrategy") }
	}
	oldStrategy := func(running bool) edit {
		return func(w *world) {
			unstructured.RemoveNestedField(w.vm, "spec", "runStrategy")
			_ = unstructured.SetNestedField(w.vm, running, "spec", "running")
		}
	}
	other := set("00000000-0000-4000-8000-00000000cafe", "spec", "domain", "firmware", "uuid")
	for _, tt := range []struct {
		name   string
		off    bool // PowerOff; else PowerOn
		status int
		worlds []*world // before the request, and after
		sent   bool
		want   error
	}{
		{"off", true, 0, []*world{edited()}, true, nil},
		{"off, and its instance is gone", true, 0, []*world{edited(vmiGone)}, true, nil},
		{"off already", true, 409, []*world{edited(), edited(vmiGone)}, true, nil},
		{"off by itself", true, 409, []*world{edited(phase("Failed"))}, true, nil},
		{"on its way", true, 409, []*world{edited(deleting)}, true, nil},
		{"stopped before, and not begun", true, 409, []*world{edited(strategy("Halted"))}, true, nil},
		{"likewise, of an older KubeVirt", true, 409, []*world{edited(oldStrategy(false))}, true, nil},
		{"changed by another client", true, 409, []*world{edited()}, true, providers.ErrUnreachable},
		{"refused", true, 403, []*world{edited()}, true, providers.ErrDenied},
		{"a word of success that is none", true, 200, []*world{edited()}, true, providers.ErrPermanent},
		{"KubeVirt's API is down", true, 503, []*world{edited()}, true, providers.ErrUnreachable},
		{"another machine", true, 0, []*world{edited(other)}, false, providers.ErrIdentity},
		{"no machine", true, 0, []*world{edited(vmiGone, func(w *world) { w.vm = nil })}, false, providers.ErrNotFound},

		{"on", false, 0, []*world{edited(vmiGone)}, true, nil},
		{"on already", false, 409, []*world{edited()}, true, nil},
		{"KubeVirt is about to start it", false, 409, []*world{edited(vmiGone)}, true, nil},
		{"likewise, of an older KubeVirt", false, 409, []*world{edited(vmiGone, oldStrategy(true))}, true, nil},
		{"cannot be started", false, 409, []*world{edited(phase("Failed"), strategy("RerunOnFailure"))}, true,
			providers.ErrUnreachable},
		{"is still being stopped", false, 409, []*world{edited(deleting, strategy("Halted"))}, true,
			providers.ErrUnreachable},
	} {
		s, p := newScript(t, tt.worlds...)
		s.status = tt.status
		call, path := p.PowerOn, "start {}"
		if tt.off {
			call, path = p.PowerOff, `stop {"gracePeriod":0}`
		}
		var sent []string
		if tt.sent {
			sent = []string{"/apis/subresources.kubevirt.io/v1/namespaces/tenant-a/virtualmachines/guest-1/" + path}
		}
		err := call(t.Context(), target, providertest.AllowSend)
		if !errors.Is(err, tt.want) || !slices.Equal(s.sent, sent) {
			t.Errorf("%s: got %v, and sent %q; want %v, and %q", tt.name, err, s.sent, tt.want, sent)
		}
	}
}

// A guest is absent from a host only if its instance is there and names another.
func TestFindGuest(t *testing.T) {
	silent := func(w *world) { w.nodes["h1"].Status.Conditions[0].Status = corev1.ConditionUnknown }
	claimed := func(of providers.Target, uuid string) providers.Target { of.SystemUUID = uuid; return of }
	for _, tt := range []struct {
		name   string
		world  *world
		on     string
		of     providers.Target
		absent bool
		want   error
	}{
		{"there", edited(), "h1", target, false, nil},
		{"elsewhere", edited(), "h2", target, true, nil},
		{"elsewhere, on a silent host", edited(silent), "h2", target, true, nil},
		{"elsewhere, and KubeVirt gave it up", edited(silent, deleting, phase("Failed")), "h2", target, true, nil},
		{"there, says a silent host's object", edited(silent), "h1", target, false, providers.ErrUnreachable},
		{"migrates there", edited(func(w *world) { w.pods = append(w.pods, launcher("2", "h2")) }),
			"h2", target, false, nil},
		{"about to be placed", edited(func(w *world) { w.pods = append(w.pods, launcher("2", "")) }),
			"h2", target, false,
			providers.ErrUnreachable},
		{"also on a host that is not configured", edited(func(w *world) {
			w.pods = append(w.pods, launcher("2", "h9"))
		}), "h2", target, false, providers.ErrUnreachable},
		{"no instance", edited(vmiGone), "h2", target, false, providers.ErrNotFound},
		{"its pods are gone", edited(func(w *world) { w.pods = nil }), "h2", target, false, providers.ErrUnreachable},
		{"its pods ended", edited(end), "h2", target, false, providers.ErrUnreachable},
		{"a strange phase", edited(phase("WaitingForSync")), "h2", target, false, providers.ErrUnreachable},
		{"a node without a UUID", edited(), "h2", claimed(target, ""), false, providers.ErrIdentity},
		{"another machine", edited(), "h2", claimed(target, "00000000-0000-4000-8000-00000000cafe"), false,
			providers.ErrIdentity},
		{"an instance without a UUID", edited(set("", "spec", "domain", "firmware", "uuid")), "h2", target, false,
			providers.ErrIdentity},
		{"a host that is not configured", edited(), "h9", target, false, providers.ErrPermanent},
	} {
		_, p := newScript(t, tt.world)
		a := providers.AskPlace(t.Context(), p, tt.on, tt.of, providers.Now)
		if a.Absent != tt.absent || !errors.Is(a.Err, tt.want) {
			t.Errorf("%s: got absent %t (%q), %v; want %t, %v", tt.name, a.Absent, a.Raw, a.Err, tt.absent, tt.want)
		}
	}
}

// The files of an account are read for each call, so they may be rotated.
func TestRotation(t *testing.T) {
	s, p := newScript(t, newWorld())
	ask := func() { _ = providers.Ask(t.Context(), p, "test", target, providers.Now) }
	ask()
	must(t, os.WriteFile(filepath.Join(kubevirt.Dir(p), "token"), []byte("token-2"), 0o600))
	ask()
	ask()
	if want := []string{"token-1", "token-2"}; !slices.Equal(s.tokens, want) {
		t.Errorf("got tokens %q, want %q", s.tokens, want)
	}
}

func TestCanonicalID(t *testing.T) {
	c := &kubevirt.Config{Namespace: "tenant-a"}
	for id, want := range map[string]string{
		"guest-1": "tenant-a/guest-1", "tenant-a/guest-1": "tenant-a/guest-1", "kubevirt://guest-1": "tenant-a/guest-1",
		"guest-1.example":  "tenant-a/guest-1.example",
		"tenant-b/guest-1": "", "kubevirt://tenant-a/guest-1": "", "tenant-a/": "", "": "", "/": "", "..": "",
		"a/b/c": "", "Guest": "", "guest-1/stop": "", "guest?x": "", "guest%2f": "", "harvester://5d307ca9": "",
		strings.Repeat("a.", 127) + "a": "",
	} {
		got, hosts, err := c.CanonicalID(id)
		if got != want || hosts != nil || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, %v; want %q", id, got, hosts, err, want)
		}
	}
}

func TestValidate(t *testing.T) {
	const users, tokens = `users: [{name: fence, user: {tokenFile: token}}]`, "s3cret"
	dir := t.TempDir()
	write := func(name string, replace ...string) string {
		good, err := os.ReadFile(writeKubeconfig(t, dir, "https://192.0.2.1:6443", nil, tokens))
		must(t, err)
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, []byte(strings.NewReplacer(replace...).Replace(string(good))), 0o600))
		return file
	}
	for _, tt := range []struct {
		name   string
		config kubevirt.Config
		want   []string // path and the beginning of the text
	}{
		{"good", kubevirt.Config{Kubeconfig: write("good"), Namespace: "a", Hosts: []string{"h1", "h2"}}, nil},
		{"empty", kubevirt.Config{}, []string{"kubeconfig missing", "namespace missing"}},
		{"relative", kubevirt.Config{Kubeconfig: "kubeconfig", Namespace: "a"},
			[]string{"kubeconfig is not an absolute"}},
		{"no file", kubevirt.Config{Kubeconfig: dir + "/none", Namespace: "a"},
			[]string{"kubeconfig reading the account"}},
		{"no token", kubevirt.Config{Kubeconfig: write("no-token", "tokenFile: token", "tokenFile: none"),
			Namespace: "a"}, []string{"kubeconfig reading the account"}},
		{"no YAML", kubevirt.Config{Kubeconfig: write("no-yaml", "apiVersion", "s3cret: [\n"), Namespace: "a"},
			[]string{"kubeconfig is no usable kubeconfig"}},
		{"empty file", kubevirt.Config{Kubeconfig: write("empty", "current-context: host", ""), Namespace: "a"},
			[]string{"kubeconfig is no usable kubeconfig"}},
		{"a program", kubevirt.Config{Kubeconfig: write("exec", users, "users: [{name: fence, user: {exec: {command: "+
			"/bin/true, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}}]"), Namespace: "a"},
			[]string{"kubeconfig gets its credentials from a program"}},
		{"no TLS", kubevirt.Config{Kubeconfig: write("http", "https://", "http://"), Namespace: "a"},
			[]string{"kubeconfig has a server that is not https"}},
		{"no namespace", kubevirt.Config{Kubeconfig: write("good"), Namespace: "a/b"},
			[]string{"namespace no namespace"}},
		{"no hosts", kubevirt.Config{Kubeconfig: write("good"), Namespace: "a", Hosts: []string{"h1", "H", "h1"}},
			[]string{"hosts[1] is not the name", "hosts[2] names a host twice"}},
	} {
		var got []string
		for _, p := range tt.config.Validate() {
			got = append(got, p.Path+" "+p.Text)
			if strings.Contains(p.Text, tokens) {
				t.Errorf("%s: the problem shows the token: %s", tt.name, p.Text)
			}
		}
		if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	insecure := kubevirt.Config{Kubeconfig: write("insecure", "certificate-authority: ca.pem",
		"insecure-skip-tls-verify: true")}
	if got := insecure.Cautions(); len(got) != 1 || got[0].Path != "kubeconfig" {
		t.Errorf("insecure-skip-tls-verify: got %v, want one caution", got)
	}
	if got := (&kubevirt.Config{Kubeconfig: write("good")}).Cautions(); len(got) != 0 {
		t.Errorf("a good kubeconfig: got %v, want no caution", got)
	}
}

// An account of the pod that forcefence runs in is another cluster's: an empty kubeconfig is never replaced by it.
func TestNoFallback(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.9")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\n"), 0o600))
	p := kubevirt.New(kubevirt.Config{Kubeconfig: file, Namespace: "tenant-a"}, providers.Options{Name: "guests"})
	if _, err := p.State(t.Context(), target); !errors.Is(err, providers.ErrDenied) {
		t.Errorf("got %v, want %v", err, providers.ErrDenied)
	}
}
