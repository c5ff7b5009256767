package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

// restartAfter is how long a process that ended stays down, as a Deployment's container does at first.
const restartAfter = time.Second

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
type slot struct {
	w     *world
	name  string
	proxy *proxy
	log   string
	podIP string

	mu     sync.Mutex // guards the rest
	lives  int
	cmd    *exec.Cmd
	gone   chan struct{} // closed once cmd is reaped
	wanted bool
	ends   int // lives that ended by themselves
}

// life names the process that runs, or ran last: a.3.
func (s *slot) life() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("judged-%s.%d", s.name, s.lives)
}

// start starts a process, if none runs, and another a moment after it ends, until stop.
func (s *slot) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = true
	return s.spawn()
}

func (s *slot) spawn() error { // with mu held
	if s.gone != nil {
		select {
		case <-s.gone:
		default:
			return nil
		}
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.lives++
	args := strings.Fields(s.w.command)
	for i := range args {
		args[i] = s.w.words(s).Replace(args[i])
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "POD_NAMESPACE=forcefence-system", "POD_NAME=forcefence-"+s.name, "POD_IP="+s.podIP)
	if _, err := fmt.Fprintf(log, "referee: life %s.%d\n", s.name, s.lives); err != nil {
		return err
	}
	if err := kit.StartChild(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", args[0], err)
	}
	gone := make(chan struct{})
	s.cmd, s.gone = cmd, gone
	go func() {
		_ = cmd.Wait()
		close(gone)
		pause(s.w.ctx, restartAfter)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.wanted && s.gone == gone {
			s.ends++
			if err := s.spawn(); err != nil {
				s.w.log("starting again: %v", err)
			}
		}
	}()
	return nil
}

// kill ends the process at once and returns when it is gone. Another follows.
func (s *slot) kill() {
	s.mu.Lock()
	cmd, gone := s.cmd, s.gone
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-gone
}

// signal sends one to the process that runs.
func (s *slot) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(sig)
	}
}

// stop ends the process, and no other follows.
func (s *slot) stop() {
	s.mu.Lock()
	s.wanted = false
	s.mu.Unlock()
	s.signal(syscall.SIGCONT)
	s.kill()
}

// words fills in what a command line or a configuration names.
func (w *world) words(s *slot) *strings.Replacer {
	return strings.NewReplacer("{config}", filepath.Join(w.dir, "config.yaml"), "{kubeconfig}", s.kubeconfig(),
		"{device}", w.bmc.url, "{device-user}", deviceUser,
		"{device-password-file}", filepath.Join(w.dir, "device-password"), "{device-ca}",
		filepath.Join(w.dir, "ca.crt"))
}

func (s *slot) kubeconfig() string { return filepath.Join(s.w.dir, s.name+".kubeconfig") }
