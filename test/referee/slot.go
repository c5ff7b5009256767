package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/forcefence/forcefence/test/cluster"
)

// defaultConfig is forcefence's. The words in braces are what a command line may hold, too.
const defaultConfig = "mode: fence\n" + commonConfig

const commonConfig = `powerOffAfter: 20s
listen: {metrics: ""}
leaderElection: {leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}
providers:
- name: racks
  ratePerSecond: 100
  concurrency: 4
  redfish:
    address: "{device}"
    username: "{device-user}"
    passwordFile: "{device-password-file}"
    caFile: "{device-ca}"
    auth: basic
nodes:
- {name: all, selector: "", provider: racks, machine: {from: name}}
`

// slot is a place in which one of the judged programs runs. Each process in it is a life, with a name of its own.
// One that ends is started again a second later, as a Deployment's container is at first.
type slot struct {
	program
	w     *world
	proxy *proxy
	podIP string
	part  atomic.Pointer[cluster.Part] // of the run
	run   atomic.Pointer[string]
}

func (s *slot) process() *cluster.Part { return s.part.Load() }

// life names the process that runs, or ran last: judged-a.r7.3.
func (s *slot) life() string {
	return fmt.Sprintf("judged-%s.%s.%d", s.name, *s.run.Load(), s.process().Starts())
}

// newPart describes a process that counts as started at once.
func (s *slot) newPart(run, bin string, args ...string) *cluster.Part {
	return cluster.NewPart("judged-"+s.name+"."+run, bin, args, s.w.path("judged-"+s.name+".log"),
		func(context.Context) error { return nil }, nil)
}

// start starts the first process of a run.
func (s *slot) start(ctx context.Context, run string) error {
	p := s.prepare(s, run)
	s.run.Store(&run)
	s.part.Store(p)
	return p.Start(ctx)
}

// stop ends the process, and no other follows.
func (s *slot) stop() {
	if p := s.process(); p != nil {
		p.Kill()
	}
}

// words fills in what a command line or a configuration names.
func (w *world) words(s *slot) *strings.Replacer {
	return strings.NewReplacer("{config}", w.path("config.yaml"), "{kubeconfig}", s.kubeconfig(),
		"{device}", w.bmc().URL(), "{device-user}", w.power.Username(),
		"{device-password-file}", w.path("bmc-password"), "{device-ca}",
		w.path("bmc-ca.pem"))
}

func (s *slot) kubeconfig() string { return s.w.path(s.name + ".kubeconfig") }
