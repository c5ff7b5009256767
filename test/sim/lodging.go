package sim

import (
	"context"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// lodging is where a machine runs that is a guest: on one of three hypervisors, each with a host of its own. It
// migrates between them.
type lodging struct {
	on   [3]bool // the hosts that have power; their devices say so, and their hypervisors answer
	has  [3]bool // the hypervisors that know the guest: it runs there, arrives, was shut off there, or has just left
	mute [3]bool // the hypervisors that do not answer, though their hosts have power
	at   int     // where it runs, or did last
	busy bool    // it migrates
}

// lodge makes some of the machines guests. It draws nothing: the other histories stay what they were.
func (w *World) lodge() {
	for i, m := range w.machines {
		if m.device && m.second && !m.split && w.Scenario != Lying && (w.Seed+uint64(i))%3 == 1 {
			m.lodged = &lodging{on: [3]bool{true, true, true}, has: [3]bool{true}}
		}
	}
}

// leave is the end of a guest's run: its host lost its power, or it was shut off there.
func (l *lodging) leave(w *World) {
	if l.on[l.at] && w.chance(0.6) {
		w.count("a host lost its power")
		l.on[l.at] = false
	}
}

// enter is where the guest starts again: where it was, or on another host.
func (l *lodging) enter(w *World) {
	if w.chance(0.5) {
		l.at = w.rng.IntN(3)
	}
	l.on[l.at], l.has[l.at], l.busy = true, true, false
}

// migrate begins to move the guest. The host that it leaves may die at any moment of that: before the guest runs
// elsewhere it dies with it, after that it lives.
func (w *World) migrate(m *machine) {
	l := m.lodged
	from, run := l.at, m.run
	to := (from + 1 + w.rng.IntN(2)) % 3
	if w.calm || !m.power || l.busy || !l.on[to] || w.chance(0.5) {
		return
	}
	l.busy, l.has[to] = true, true
	w.logf("%s: migrates from host %d to %d", m.name, from, to)
	arrives := w.between(10*time.Millisecond, time.Second)
	w.after(arrives, func() {
		if m.run == run && m.power && l.on[to] {
			l.at = to
			w.count("a guest migrated")
		}
		w.after(w.between(time.Millisecond, 500*time.Millisecond), func() {
			for i := range l.has { // what has left, or never arrived
				l.has[i] = l.has[i] && (i == l.at || i != from && i != to)
			}
			l.busy = false
		})
	})
	if w.chance(0.7) {
		w.after(w.between(0, 2*arrives), func() {
			if w.calm || !l.on[from] {
				return
			}
			if l.at == from {
				m.cutPower("its host died")
			} else if m.power {
				w.count("the host of before died")
			}
			l.on[from] = false
			w.after(w.between(5*time.Second, time.Minute), func() { l.on[from] = true })
		})
	}
}

// askHosts puts a question to the hosts of a guest, as taint/machine.Within does. Some of it is asked too early: that
// is the rule's to refuse.
func (w *World) askHosts(
	m *machine, to speaker, now func() providers.Instant, done func(a providers.Answer, truth, lie bool),
) {
	sent, l := now(), m.lodged
	hosts := make([]proof.Host, len(l.on))
	truth := false // the machine was off when somebody looked, from the hosts' devices on
	if l.mute = [3]bool{}; !w.calm && w.chance(0.4) {
		l.mute[l.at] = true
	}
	w.after(w.between(0, 200*time.Millisecond), func() { w.migrate(m) })
	exchange := func(takes time.Duration, read, then func()) {
		w.after(w.latency()+takes, func() { read(); w.after(w.latency(), then) })
	}
	all := func(of func(i int, then func()), then func()) {
		left := len(hosts)
		for i := range hosts {
			of(i, func() {
				if left--; left == 0 {
					then()
				}
			})
		}
	}
	look := func(i int, p *providers.PlaceAnswer, then func()) {
		got := providers.PlaceAnswer{}
		got.At = now()
		exchange(0, func() {
			if got.Absent, got.Raw = !l.has[i], "not there"; !l.on[i] || l.mute[i] {
				got.Absent, got.Err = false, providers.ErrUnreachable
			}
		}, func() {
			got.Got = now()
			*p = got
			then()
		})
	}
	early := w.chance(0.3)
	last := func() {
		obs, err := proof.VerdictOfHosts(hosts)
		if obs.State == providers.PowerOff {
			w.count("off with its host")
		}
		first := true
		done(providers.Ask(context.Background(), arrived{obs, err}, to.Machine.Provider, to.target,
			func() providers.Instant {
				if first {
					first = false
					return sent
				}
				return now()
			}), truth, false)
	}
	again := func(i int, then func()) {
		if hosts[i].Off.State == providers.PowerOff || early && !hosts[i].Second.Got.IsZero() {
			then()
			return
		}
		look(i, &hosts[i].Second, func() { truth = truth || !m.power; then() })
	}
	power := func(i int, then func()) {
		if hosts[i].First.HasAnswer() {
			if early {
				look(i, &hosts[i].Second, then)
				return
			}
			then()
			return
		}
		a := providers.Answer{Observation: providers.Observation{State: providers.PowerOff, At: now()}}
		exchange(w.between(0, 1500*time.Millisecond), func() { // a BMC is slow
			truth = truth || !m.power
			if l.on[i] {
				a.State = providers.PowerOn
			}
		}, func() {
			a.Got = now()
			hosts[i].Off = a
			then()
		})
	}
	all(func(i int, then func()) { look(i, &hosts[i].First, then) },
		func() { all(power, func() { all(again, last) }) })
}
