package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/forcefence/forcefence/test/cluster"
)

// defaultConfig is forcefence's. The words in braces are what a command line may hold, too.
const defaultConfig = `mode: fence
powerOffAfter: 20s
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
- {name: all, selector: "", provider: racks, machine: {from: template, template: '{{ .Name }}'}}
`

// slot is one of the two places in which the judged binary runs. Each process in it is a life, with a name of its own.
// One that ends is started again a second later, as a Deployment's container is at first.
type slot struct {
	w     *world
	name  string
	proxy *proxy
	podIP string
	part  atomic.Pointer[cluster.Part] // of the run, by its name: judged-a.r7
}

func (s *slot) process() *cluster.Part { return s.part.Load() }

// life names the process that runs, or ran last: judged-a.r7.3.
func (s *slot) life() string { return fmt.Sprintf("%s.%d", s.process().Name(), s.process().Starts()) }

// start starts the first process of a run.
func (s *slot) start(ctx context.Context, run string) error {
	args := strings.Fields(s.w.command)
	for i := range args {
		args[i] = s.w.words(s).Replace(args[i])
	}
	p := cluster.NewPart("judged-"+s.name+"."+run, args[0], args[1:], s.w.path("judged-"+s.name+".log"),
		func(context.Context) error { return nil }, nil)
	p.Env = []string{"POD_NAMESPACE=" + namespace, "POD_NAME=forcefence-" + s.name, "POD_IP=" + s.podIP}
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
