//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/forcefence/forcefence/test/nodes/wire"
)

const (
	restartPause = time.Second      // systemd's units of both say RestartSec of a few seconds
	stopTimeout  = 10 * time.Second // from SIGTERM to SIGKILL
	awaitTimeout = 30 * time.Second
	awaitPeriod  = 10 * time.Millisecond
)

// manager runs the node's services, and takes the exit status of every process that ends in the node: it is the parent
// of last resort. So os/exec, which wants to wait for its own children, is of no use here.
type manager struct {
	env []string
	log *os.File

	// guards the rest; held while a child is started, so that it cannot be reaped before it is known
	mu       sync.Mutex
	services []*service
}

type service struct {
	wire.Service
	pid    int           // 0: down
	ended  chan struct{} // closed when pid has ended
	wanted bool
	began  bool // was started on this boot
}

func newManager(b wire.Boot) (*manager, error) {
	log, err := os.OpenFile("/var/log/boot.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	m := &manager{env: b.Env, log: log}
	for _, s := range b.Services {
		m.services = append(m.services, &service{Service: s})
	}
	for _, kv := range b.Env { // exec.LookPath reads ours
		if name, value, ok := strings.Cut(kv, "="); ok {
			if err := os.Setenv(name, value); err != nil {
				return nil, err
			}
		}
	}
	m.say("boot %s", b.BootID)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			m.reap()
		}
	}()
	return m, nil
}

func (m *manager) say(format string, args ...any) {
	fmt.Fprintf(m.log, "%s %s\n", time.Now().Format(time.RFC3339Nano), fmt.Sprintf(format, args...))
}

func (m *manager) reap() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for { // one signal may stand for many children
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		m.ended(pid, status)
	}
}

func (m *manager) ended(pid int, status syscall.WaitStatus) { // with mu held
	for _, s := range m.services {
		if s.pid != pid {
			continue
		}
		m.say("%s (%d) ended: code %d signal %d", s.Name, pid, status.ExitStatus(), status.Signal())
		s.pid = 0
		close(s.ended)
		if s.wanted {
			time.AfterFunc(restartPause, func() { m.again(s) })
		}
	}
}

func (m *manager) again(s *service) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.wanted || s.pid != 0 {
		return
	}
	if err := m.spawn(s); err != nil {
		m.say("%s: %v", s.Name, err)
		time.AfterFunc(restartPause, func() { m.again(s) })
	}
}

// spawn is called with mu held.
func (m *manager) spawn(s *service) error {
	path, err := exec.LookPath(s.Argv[0])
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(path, s.Argv, &syscall.ProcAttr{
		Dir: "/", Env: m.env, Files: []uintptr{null.Fd(), log.Fd(), log.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", path, err)
	}
	s.pid, s.ended, s.began = pid, make(chan struct{}), true
	m.say("%s (%d) started", s.Name, pid)
	return nil
}

func (m *manager) do(req wire.Request) wire.Answer {
	pid, err := m.handle(req)
	if err != nil {
		return wire.Answer{Err: fmt.Sprintf("%s %s: %v", req.Do, req.Service, err)}
	}
	return wire.Answer{PID: pid}
}

func (m *manager) handle(req wire.Request) (pid int, err error) {
	if req.Do == wire.Up {
		for _, s := range m.services {
			if !s.Stopped {
				go func() {
					if _, err := m.first(s); err != nil {
						m.say("%s: %v", s.Name, err)
					}
				}()
			}
		}
		return 0, nil
	}
	s := m.find(req.Service)
	if s == nil {
		return 0, errors.New("no such service")
	}
	switch req.Do {
	case wire.Start:
		return m.first(s)
	case wire.Stop:
		return 0, m.stop(s)
	case wire.Kill:
		return 0, m.kill(s)
	case wire.PID:
		m.mu.Lock()
		defer m.mu.Unlock()
		return s.pid, nil
	}
	return 0, errors.New("unknown request")
}

func (m *manager) find(name string) *service {
	for _, s := range m.services { // the list itself never changes
		if s.Name == name {
			return s
		}
	}
	return nil
}

// first starts a service; on a boot's first start it waits for the socket that the service needs, which spares a
// kubelet its first failure. It does not do so later: a kubelet without a container runtime is a case that tests want.
func (m *manager) first(s *service) (int, error) {
	m.mu.Lock()
	s.wanted = true
	began := s.began
	m.mu.Unlock()
	if s.Awaits != "" && !began {
		for end := time.Now().Add(awaitTimeout); time.Now().Before(end); time.Sleep(awaitPeriod) {
			if conn, err := net.Dial("unix", s.Awaits); err == nil {
				conn.Close()
				break
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.wanted || s.pid != 0 {
		return s.pid, nil
	}
	err := m.spawn(s)
	return s.pid, err
}

func (m *manager) stop(s *service) error {
	m.mu.Lock()
	s.wanted = false
	pid, ended := s.pid, s.ended
	if pid != 0 { // with mu held it is not reaped, so the id is still this process's
		_ = syscall.Kill(pid, syscall.SIGTERM)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	m.mu.Unlock()
	if pid == 0 {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-time.After(stopTimeout):
	}
	if err := m.kill(s); err != nil {
		return err
	}
	<-ended
	return nil
}

func (m *manager) kill(s *service) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.pid == 0 {
		return nil
	}
	return syscall.Kill(s.pid, syscall.SIGKILL)
}
