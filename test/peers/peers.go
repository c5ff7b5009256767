// Package peers runs other systems that recover the pods of dead nodes, each in its own configuration, beside a test
// control plane: medik8s' NodeHealthCheck with fence-agents-remediation or self-node-remediation, kube-fencing, and
// Kueue's failure recovery. Benchmarks and the referee give them the same outages as forcefence.
//
// It promises that a system that does not run does nothing: Stop ends its processes and removes the objects that start
// it. What it installed, its CRDs and rights, stays. No system here has webhooks. Its programs are the projects' own
// (test/interop builds them) and have the rights that their projects give them.
package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/kit"
)

// The systems that Start takes.
const (
	FARTaint    = "nhc-far"        // NodeHealthCheck, fence-agents-remediation in its mode OutOfServiceTaint
	FARDeletion = "nhc-far-delete" // the same in ResourceDeletion
	SNR         = "nhc-snr"        // NodeHealthCheck, self-node-remediation; its program is in Clones
	Kueue       = "kueue"          // Kueue's failure recovery, for all pods that are there when it starts

	KubeFencing      = "kube-fencing"       // kube-fencing in its mode flush; its program is in Clones
	KubeFencingTaint = "kube-fencing-taint" // the same in taint
)

// Clones is a variable of the environment. It names a folder with clones of projects that no module proxy need have,
// each with its program: self-node-remediation has the file snr, and kube-fencing the file kube-fencing.
// docs/reference/measurements.md says how they are built.
const Clones = "PEERS"

// Missing says which program a system needs of Clones that is not there, "" if none.
func Missing(name string) string {
	for _, program := range systems[name].programs {
		if _, err := program.folder(); err != nil {
			return err.Error()
		}
	}
	return ""
}

// folder returns the folder of the clone that has the program, "" if the program needs no clone.
func (g program) folder() (string, error) {
	if g.clone == "" {
		return "", nil
	}
	clones := os.Getenv(Clones)
	if clones == "" {
		return "", fmt.Errorf("%s names no folder with a clone of %s", Clones, g.clone)
	}
	dir, err := filepath.Abs(filepath.Join(clones, g.clone))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, g.name)); err != nil {
		return "", fmt.Errorf("%s: %w", Clones, err)
	}
	return dir, nil
}

// version returns the version of the program's project, with its v: the tag of its clone if it has one.
func (g program) version(ctx context.Context) (string, error) {
	switch dir, err := g.folder(); {
	case err != nil:
		return "", err
	case dir == "":
		return binaries.Version(ctx, g.name)
	default:
		return kit.Git(ctx, dir, nil, "describe", "--tags")
	}
}

// Options describe the cluster's machines and pods. All fields but Action are needed.
type Options struct {
	Dir       string            // of logs and kubeconfigs; it exists
	Namespace string            // of the pods to recover
	BMCs      map[string]string // by node: the URL of its BMC, with a path to its system if it has several

	Username, Password, CAFile string // of all BMCs

	// Action is what the fence agent does: off or reboot; "": off. A machine that lost its power stays off then.
	Action string

	// Patience is how long a node may be NotReady before NodeHealthCheck asks for it, or kube-fencing begins, in whole
	// seconds. 0: NodeHealthCheck takes 1 s, and kube-fencing its default, none.
	Patience time.Duration
}

// Peers are the systems on one cluster, of which one runs at a time. Its methods are called one after another.
type Peers struct {
	c         *cluster.Cluster
	o         Options
	installed map[string]*cluster.Part // by program
	running   *system
	parts     []*cluster.Part   // the running system's, in the order of their start
	agents    *cluster.Commands // of the running system's pods; nil: none
}

// New returns the systems of a cluster, none of which is installed. The caller stops the last one before the cluster.
func New(c *cluster.Cluster, o Options) *Peers {
	if o.Action == "" {
		o.Action = "off"
	}
	return &Peers{c: c, o: o, installed: map[string]*cluster.Part{}}
}

// Versions are those of a system's programs, such as "NHC v1.2.3, FAR v1.2.3".
func Versions(ctx context.Context, name string) (string, error) {
	var all []string
	for _, program := range systems[name].programs {
		version, err := program.version(ctx)
		if err != nil {
			return "", err
		}
		all = append(all, program.short+" "+version)
	}
	return strings.Join(all, ", "), nil
}

// Start installs a system if this is its first time, starts it, and returns once it is ready to recover a node. The
// first start builds its programs, which takes minutes, if they are not in the cache.
func (p *Peers) Start(ctx context.Context, name string) (err error) {
	s, ok := systems[name]
	switch {
	case !ok:
		return fmt.Errorf("system %q is none of %s", name,
			strings.Join(slices.Sorted(maps.Keys(systems)), ", "))
	case p.running != nil:
		return fmt.Errorf("start %s: %s runs", name, p.running.name)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start %s: %w", name, err), p.Stop(context.WithoutCancel(ctx)))
		}
	}()
	p.running = &s
	for _, program := range s.programs {
		clone, err := program.folder()
		if err != nil {
			return err
		}
		part := p.installed[program.name]
		if part == nil {
			part, err = program.start(ctx, p, clone)
			p.installed[program.name] = part
		} else {
			err = part.Start(ctx)
		}
		if part != nil {
			p.parts = append(p.parts, part)
		}
		if err != nil {
			return err
		}
	}
	if err := p.createObjects(ctx); err != nil {
		return err
	}
	return s.begin(ctx, p)
}

// createObjects creates the running system's objects, if it has any.
func (p *Peers) createObjects(ctx context.Context) error {
	if p.running.objects == nil {
		return nil
	}
	text, err := p.running.objects(p.o)
	if err != nil || text == "" {
		return err
	}
	if err := os.WriteFile(p.file(), []byte(text), 0o600); err != nil {
		return err
	}
	_, err = p.c.Kubectl(ctx, "create", "-f", p.file())
	return err
}

// file holds the running system's objects, if it has any and they were made.
func (p *Peers) file() string { return filepath.Join(p.o.Dir, p.running.name+".yaml") }

// Stop removes the running system's objects and requests while its programs can still end what they began, and stops
// the programs. It may be repeated. An error does not keep it from stopping them.
func (p *Peers) Stop(ctx context.Context) error {
	if p.running == nil {
		return nil
	}
	var errs []error
	remove := func(args ...string) {
		_, err := p.c.Kubectl(ctx, append([]string{"delete", "--ignore-not-found", "--timeout=60s"}, args...)...)
		errs = append(errs, err)
	}
	if _, err := os.Stat(p.file()); err == nil {
		for _, kind := range p.running.requests {
			remove("-A", "--all", kind)
		}
		remove("-f", p.file())
		errs = append(errs, os.Remove(p.file()))
	}
	for _, part := range slices.Backward(p.parts) {
		part.Stop()
		// The next start's readiness, and its proof, are read from a log of its own.
		errs = append(errs, os.Rename(part.LogFile(), fmt.Sprintf("%s.%d", part.LogFile(), part.Starts())))
	}
	if p.agents != nil {
		p.agents.Stop()
	}
	if p.running.end != nil {
		errs = append(errs, p.running.end(ctx, p))
	}
	p.running, p.parts, p.agents = nil, nil, nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping a peer: %w", err)
	}
	return nil
}

// Parts are the running system's processes, in the order of their start.
func (p *Peers) Parts() []*cluster.Part { return p.parts }

// Installed are the processes of a system that ran before, in the order of their start. They may be changed before they
// start again.
func (p *Peers) Installed(name string) (parts []*cluster.Part) {
	for _, program := range systems[name].programs {
		parts = append(parts, p.installed[program.name])
	}
	return parts
}

// OffSince is when the running system first knew since its start that a machine was off: its fence agent reported
// success. It is the zero time if it does not know, or never asks.
func (p *Peers) OffSince() (time.Time, error) {
	if p.agents != nil {
		return agentSucceeded([]byte(strings.Join(p.agents.Output(fencingName), ""))), nil
	}
	i := slices.IndexFunc(p.parts, func(part *cluster.Part) bool { return part.Name() == binaries.FenceAgents })
	if i < 0 {
		return time.Time{}, nil
	}
	text, err := os.ReadFile(p.parts[i].LogFile())
	if err != nil {
		return time.Time{}, err
	}
	return agentSucceeded(text), nil
}

// agentSucceeded finds the first success of an agent in the log of fence-agents-remediation, or in what kube-fencing's
// agents printed, which is JSON lines among those of others.
func agentSucceeded(log []byte) time.Time {
	for raw := range bytes.Lines(log) {
		var line struct {
			TS  time.Time `json:"ts"`
			Msg string    `json:"msg"`
		}
		if json.Unmarshal(raw, &line) == nil && line.Msg == "command completed" {
			return line.TS
		}
	}
	return time.Time{}
}

// needAgent returns an error that says what to install.
func needAgent() error {
	if _, err := exec.LookPath("/usr/sbin/" + fenceAgent); err != nil {
		return fmt.Errorf("fence agent /usr/sbin/%s is missing (Debian's package fence-agents has it): %w", fenceAgent,
			err)
	}
	return nil
}

// deviceOf returns what the fence agent needs to reach a machine.
func deviceOf(node, bmc string) (host, port, path string, err error) {
	u, err := url.Parse(bmc)
	if err != nil || u.Port() == "" {
		return "", "", "", fmt.Errorf("BMC of %s: %q is no URL with a port", node, bmc)
	}
	return u.Hostname(), u.Port(), strings.TrimSuffix(u.Path, "/"), nil
}
