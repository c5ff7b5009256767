package ipmi_test

import (
	"context"
	"encoding/hex"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/hal"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/transport"
	"github.com/bougou/go-ipmi/pkg/transport/udp"
	"github.com/bougou/go-ipmi/pkg/types"
)

const machineUUID = "00112233-4455-6677-8899-aabbccddeeff"

// soft is a BMC of go-ipmi's server package: unlike ipmi_sim it has cipher suite 17, and states that no machine here
// can have.
type soft struct {
	mock.Chassis
	bmc     *bmc.BMC
	address string

	mu       sync.Mutex // guards what follows
	on       bool
	ignore   bool                           // accepts commands and does nothing
	codes    map[uint8]types.CompletionCode // what commands are answered with, in place of what they do
	acpi     []byte                         // of Get ACPI Power State; nil: it does not have the command
	guid     []byte                         // of Get System GUID; nil: it does not have the command
	commands []types.Command                // that it was sent
}

func (s *soft) edit(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *soft) count(c types.Command) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, had := range s.commands {
		if had.ID == c.ID && had.NetFn == c.NetFn {
			n++
		}
	}
	return n
}

// requests reports for each command whether it acts.
func (s *soft) requests() (acts []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		acts = append(acts, c.ID == types.CommandChassisControl.ID && c.NetFn == types.CommandChassisControl.NetFn)
	}
	return acts
}

// PowerState and SetPower are the machine's.
func (s *soft) PowerState(context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on, nil
}

func (s *soft) SetPower(_ context.Context, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ignore {
		s.on = on
	}
	return nil
}

type hardware struct {
	hal.HAL
	chassis hal.ChassisHAL
}

func (h hardware) Chassis() hal.ChassisHAL { return h.chassis }

// newSoft starts a BMC whose machine is on, with the account fence and this password.
func newSoft(t testing.TB, password string, suites ...types.CipherSuiteID) *soft {
	t.Helper()
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	s := newSoftOn(t, udp.Wrap(front), password, suites...)
	s.address = front.LocalAddr().String()
	// Once it answers all of its goroutines are there: the suite looks for what a call leaves behind.
	conn, err := net.Dial("udp", s.address)
	must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x80, 0, 0, 0}) // ASF's ping
	must(t, err)
	_, err = conn.Read(make([]byte, 64))
	must(t, err)
	return s
}

// newSoftOn is newSoft at another transport.
func newSoftOn(t testing.TB, front transport.PacketConn, password string, suites ...types.CipherSuiteID) *soft {
	t.Helper()
	s := &soft{on: true, codes: map[uint8]types.CompletionCode{}, guid: unhex(t, machineUUID)}
	s.bmc = bmc.New(bmc.DeviceInfo{IPMIVersion: 0x20}, [16]byte{}, hardware{mock.New(), s})
	must(t, s.bmc.Users.Upsert(2, func(u *bmc.User) error {
		u.Name, u.Enabled = "fence", true
		u.SetPassword([]byte(password))
		u.Password20 = true
		u.ChannelAccess = map[uint8]bmc.UserChannelAccess{1: {MaxPrivilege: bmc.PrivilegeLevelOperator, Enabled: true}}
		return nil
	}))
	registry := handlers.NewRegistry()
	registry.Use(s.middleware)
	handlers.RegisterAllHandlers(registry)
	for _, c := range []types.Command{types.CommandGetACPIPowerState, types.CommandGetSystemGUID} {
		registry.RegisterFunc(c,
			func(context.Context, *handlers.HandlerContext, []byte) ([]byte, types.CompletionCode, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				answer := s.acpi
				if c.ID == types.CommandGetSystemGUID.ID {
					answer = s.guid
				}
				if answer == nil {
					return nil, types.CodeInvalidCommand, nil
				}
				return answer, types.CodeOK, nil
			})
	}
	options := []server.ServerOption{server.WithHandlerRegistry(registry)}
	if len(suites) > 0 {
		options = append(options, server.WithCipherSuites(suites))
	}
	srv := server.NewServer(s.bmc, front, options...)
	var wait sync.WaitGroup
	wait.Go(func() { _ = srv.Serve(context.Background()) })
	t.Cleanup(func() {
		_ = srv.Close()
		wait.Wait()
	})
	return s
}

// middleware notes each command, and refuses some.
func (s *soft) middleware(next handlers.Handler) handlers.Handler {
	return handlers.HandlerFunc(
		func(ctx context.Context, h *handlers.HandlerContext, request []byte) ([]byte, types.CompletionCode, error) {
			s.mu.Lock()
			s.commands = append(s.commands, h.Command)
			refused := s.codes[h.Command.ID]
			s.mu.Unlock()
			if refused != types.CodeOK {
				return nil, refused, nil
			}
			return next.Handle(ctx, h, request)
		})
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	must(t, err)
	return b
}
