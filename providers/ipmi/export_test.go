package ipmi

import (
	"context"
	"net"
	"time"
)

// SetIdle changes after how long a BMC that is not asked has its session back.
func SetIdle(p *Provider, idle time.Duration) { p.pool.Idle = idle }

// SetDial changes how BMCs are reached.
func SetDial(p *Provider, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	p.dial = dial
}

// SetUnhurried has nothing sent again and no session given up, however slow this machine.
func SetUnhurried(p *Provider) {
	const long = time.Minute
	p.warm, p.timing = long, sendTiming{long, long, long, long}
}

// SetForget changes how long it is remembered of an idle BMC which suite it has.
func SetForget(p *Provider, forget time.Duration) { p.forget = forget }

// SetWarm changes how long an old session may be silent.
func SetWarm(p *Provider, warm time.Duration) { p.warm = warm }

// BMCs returns how many BMCs the provider remembers.
func BMCs(p *Provider) int {
	return p.pool.Len()
}
