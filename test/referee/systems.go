package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/peers"
)

// system is what can be judged.
type system struct {
	name, title string // OF=name, and what tables call it
	ours        bool   // it is forcefence, or what -command names
	device      bool   // it asks devices
	// install makes what the system needs before any run, and returns its programs; nil: there is none.
	install func(ctx context.Context, w *world) ([]program, error)
	// begin starts the programs of a run once its pods are there, and end removes what they left after they ended; nil:
	// each slot starts its own before, and nothing is to remove.
	begin, end func(ctx context.Context, r *run) error
	// describe changes the pods of what moves; nil: they are as they are.
	describe func(*corev1.PodTemplateSpec)
}

// program is one process of a system.
type program struct {
	name     string
	identity *rest.Config                            // its rights
	prepare  func(s *slot, run string) *cluster.Part // the process of a run, which was not started
}

var (
	forcefence = system{name: "forcefence", title: "forcefence", ours: true, device: true, install: installForcefence}
	stock      = system{name: "stock", title: "Kubernetes alone"}
	byHand     = system{name: "oos-by-hand", title: "out-of-service taint, set by a loop", install: installHand}

	systems = []system{
		forcefence,
		peer(peers.FARTaint, "NHC with FAR, OutOfServiceTaint", true, nil),
		peer(peers.FARDeletion, "NHC with FAR, ResourceDeletion", true, nil),
		peer(peers.KubeFencing, "kube-fencing, flush", true, nil),
		peer(peers.KubeFencingTaint, "kube-fencing, taint", true, nil),
		peer(peers.Kueue, "Kueue's failure recovery", false, endedEarly),
		byHand,
		stock,
	}
)

func systemOf(name string) (system, error) {
	i := slices.IndexFunc(systems, func(s system) bool { return s.name == name })
	if i < 0 {
		var names []string
		for _, s := range systems {
			names = append(names, s.name)
		}
		return system{}, fmt.Errorf("system %q: want one of %s", name, strings.Join(names, ", "))
	}
	return systems[i], nil
}

// installForcefence applies its manifests, and runs the command twice.
func installForcefence(ctx context.Context, w *world) ([]program, error) {
	text, err := os.ReadFile(w.o.deploy)
	if err != nil {
		return nil, err
	}
	if err := w.apply(ctx, string(text)); err != nil {
		return nil, err
	}
	identity, err := w.identity(ctx, namespace, "forcefence")
	if err != nil {
		return nil, err
	}
	var all []program
	for _, name := range []string{"a", "b"} {
		all = append(all, program{name: name, identity: identity,
			prepare: func(s *slot, run string) *cluster.Part {
				args := strings.Fields(w.command)
				for i := range args {
					args[i] = w.words(s).Replace(args[i])
				}
				p := s.newPart(run, args[0], args[1:]...)
				p.Env = []string{"POD_NAMESPACE=" + namespace, "POD_NAME=forcefence-" + name, "POD_IP=" + s.podIP}
				return p
			}})
	}
	return all, nil
}

// apply applies manifests without what runs pods: the command's processes run outside of the cluster.
func (w *world) apply(ctx context.Context, text string) error {
	objects := slices.DeleteFunc(strings.Split(text, "\n---\n"), func(object string) bool {
		return strings.Contains(object, "\nkind: Deployment\n") || strings.Contains(object, "\nkind: DaemonSet\n")
	})
	file := w.path("installed.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(objects, "\n---\n")), 0o600); err != nil {
		return err
	}
	_, err := w.Kubectl(ctx, "apply", "--server-side", "-f", file)
	return err
}

// installHand has this very program play the person who trusts NotReady.
func installHand(ctx context.Context, w *world) ([]program, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []program{{name: "hand", identity: w.RESTConfigFor("person", "system:masters"),
		prepare: func(s *slot, run string) *cluster.Part { return s.newPart(run, self, "-hand", s.kubeconfig()) }}}, nil
}

// identity returns a ServiceAccount's rights.
func (w *world) identity(ctx context.Context, namespace, account string) (*rest.Config, error) {
	seconds := int64(24 * 3600)
	t, err := w.Client().CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	c := rest.AnonymousClientConfig(w.RESTConfig())
	c.BearerToken = t.Status.Token
	return c, nil
}

// patience is how long a peer lets a node be silent before it acts: as long as forcefence in defaultConfig, before it
// powers a machine off.
const patience = 20 * time.Second

// peer is a system of package peers.
func peer(name, title string, device bool, describe func(*corev1.PodTemplateSpec)) system {
	return system{name: name, title: title, device: device, describe: describe, end: endPeer,
		install: func(ctx context.Context, w *world) ([]program, error) {
			w.peers = peers.New(w.Cluster, peers.Options{
				Dir: w.dir, Namespace: metav1.NamespaceDefault, BMCs: w.systems,
				Username: w.power.Username(), Password: w.power.Password(), CAFile: w.path("bmc-ca.pem"),
				Patience: patience})
			if err := w.peers.Start(ctx, name); err != nil {
				return nil, err
			}
			var all []program
			for _, part := range w.peers.Parts() {
				identity, err := clientcmd.BuildConfigFromFlags("", w.path(part.Name()+".kubeconfig"))
				if err != nil {
					return nil, err
				}
				all = append(all, program{name: part.Name(), identity: identity})
			}
			return all, w.peers.Stop(ctx)
		},
		begin: func(ctx context.Context, r *run) error { return beginPeer(ctx, r, name) },
	}
}

func beginPeer(ctx context.Context, r *run, name string) error {
	w := r.w
	w.systems[r.victim] = w.bmc().URL() + "/redfish/v1/Systems/" + r.victim
	for i, part := range w.peers.Installed(name) {
		s := w.slots[i]
		s.run.Store(&r.name)
		s.part.Store(part)
		part.Change = func(cmd *exec.Cmd) {
			for i, arg := range cmd.Args {
				if strings.HasPrefix(arg, "--kubeconfig=") {
					cmd.Args[i] = "--kubeconfig=" + s.kubeconfig()
				}
			}
		}
	}
	return w.peers.Start(ctx, name)
}

// endPeer removes what the programs left, which are dead: a request that was not ended is held by its finalizer.
func endPeer(ctx context.Context, r *run) error {
	delete(r.w.systems, r.victim)
	const kind = "fenceagentsremediations.fence-agents-remediation.medik8s.io"
	held, err := r.w.Kubectl(ctx, "get", "-A", "--ignore-not-found", kind, "-o",
		`jsonpath={range .items[*]}{.metadata.namespace}{" "}{.metadata.name}{"\n"}{end}`)
	if err != nil && !strings.Contains(err.Error(), "have a resource type") { // it is not installed
		return err
	}
	for line := range strings.Lines(held) {
		namespace, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := r.w.Kubectl(ctx, "-n", namespace, "patch", kind, name, "--type=merge", "-p",
			`{"metadata":{"finalizers":null}}`); err != nil {
			return err
		}
	}
	return r.w.peers.Stop(ctx)
}

// endedEarly lets Kueue end a system's pods: it gives them its annotation and, as it waits for their deletion, a short
// stay on a node that is unreachable.
func endedEarly(t *corev1.PodTemplateSpec) {
	seconds := int64(5)
	t.Annotations = map[string]string{"kueue.x-k8s.io/safe-to-forcefully-delete": "true"}
	t.Spec.Tolerations = append(t.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeUnreachable,
		Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
}

// workload returns the StatefulSet with the system's changes to its pods.
func (s system) workload(load cluster.Workload) *appsv1.StatefulSet {
	set := load.StatefulSet()
	if s.describe != nil {
		s.describe(&set.Spec.Template)
	}
	return set
}
