package ipmi

import (
	"context"
	"fmt"
	"net"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/types"
)

// ASF's presence messages (DSP0136, 3.2.4).
const (
	asfIANA     = 4542
	asfPing     = 0x80
	asfPong     = 0x40
	asfEntities = 8    // where a pong's data has the supported entities
	asfIPMI     = 0x80 // of these: IPMI
)

// Ping asks an address, host or host:port, whether a BMC there speaks IPMI. It sends no credential, and nothing proves
// who answered. Without an answer it returns an error. It blocks until ctx ends, or for a second and a half.
func Ping(ctx context.Context, address string) error {
	u, err := parseID(address)
	if err != nil {
		return fmt.Errorf("the address %w", err)
	}
	host := u.Host
	if u.Port() == "" {
		host += ":" + defaultPort
	}
	conn, err := new(net.Dialer).DialContext(ctx, "udp", host)
	if err != nil {
		return err
	}
	defer conn.Close()
	tag := crypto.RandomBytes(1)[0] & 0x7f // 255 asks for no answer
	ping := (&types.ASF{IANA: asfIANA, MessageType: asfPing, MessageTag: tag}).Pack()
	s := &session{conn: conn}
	return s.exchangePackets(ctx, defaultTiming.login, defaultTiming.open, func() ([]byte, error) {
		return append(types.NewRmcpHeaderASF().Pack(), ping...), nil
	}, func(b []byte) (bool, error) { return isPong(b, tag), nil })
}

// isPong reports whether a datagram is a presence pong with this tag, from a device that speaks IPMI.
func isPong(b []byte, tag byte) bool {
	var header types.RmcpHeader
	var m types.Rmcp
	if header.Unpack(b) != nil || header.MessageClass != types.MessageClassASF || m.Unpack(b) != nil || m.ASF == nil {
		return false
	}
	a := m.ASF
	return a.MessageType == asfPong && a.MessageTag == tag && len(a.Data) > asfEntities &&
		a.Data[asfEntities]&asfIPMI != 0
}
