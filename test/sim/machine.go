package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// machine is one node's hardware, with the containers that run on it and the BMC that speaks of it.
type machine struct {
	w         *World
	name      string
	uuid      string
	device    bool            // a provider speaks for it, through its BMC
	second    bool            // another device speaks for it beside that, to which the operator's word leads
	told      bool            // that other device tells the machine's UUID
	split     bool            // it is the two outlets that feed the machine, each a device, of one level
	unfed     [2]bool         // which of them are off
	limits    [2]proof.Limits // of its levels
	mode      fence.Mode      // by the configuration
	requested bool            // a request for its node counts
	lowered   string          // the annotation that lowers it; "": none
	modes     []moded         // which one it had, oldest first
	deaf      [3]bool         // its BMC, its second device, its third: nobody is answered
	power     bool
	changing  bool      // a power-off was accepted; the machine still runs
	ordered   time.Time // when one was accepted last
	orderedIn string    // and the run in which
	switched  time.Time
	run       string    // another one after each start
	bootID    string    // what its kubelet and its hook read: run, or the host's where the machine is a container
	contained bool      // it is one: its device tells the run
	k         *kubelet  // nil while off or booting
	cut       bool      // no way to the API server
	hung      bool      // its kubelet does nothing; its containers run on
	leaseless bool      // the API server refuses the renewals of its Lease
	troubled  time.Time // when that last changed
	lies      bool      // one of its devices says Off whatever is true
	liar      int       // which: 0 is the BMC, 1 the second
	lied      bool      // and it has done so
	lodged    *lodging  // it is a guest, and the hosts that it may be on speak for it beside its BMC; nil: it is none
	stubborn  bool      // its device accepts a power-off, and nothing comes of it, or with metal3 minutes later
	metal3    bool      // its BMC is Metal3's: it carries out a power-off late
	order     *order    // the power-off that Metal3's operator has not carried out; nil: none
	forged    bool      // its kubelet's credential said that it is another machine, or none
	// why invariant 10 is not ours to hold here: a person vouched wrongly, or went round the admission policy
	excused string
	running []*container
	mounted []string
}

// away reports that nothing on the machine reaches the API server.
func (m *machine) away() bool { return m.cut || m.w.down }

// container is a pod that runs.
type container struct {
	name, uid string
	volumes   []string
	dying     bool
}

// proofKey finds what was true when a device said Off.
type proofKey struct {
	node string
	at   time.Time
}

func (w *World) machine(name string) *machine {
	for _, m := range w.machines {
		if m.name == name {
			return m
		}
	}
	return nil
}

// runningOf counts the machines on which a pod of that name runs.
func (w *World) runningOf(name string) int {
	n := 0
	for _, m := range w.machines {
		for _, c := range m.running {
			if c.name == name {
				n++
			}
		}
	}
	return n
}

// cutPower ends everything on the machine at once.
func (m *machine) cutPower(why string) {
	if !m.power {
		return
	}
	m.w.logf("%s: power OFF (%s)", m.name, why)
	m.w.count("power off")
	m.power, m.changing, m.hung, m.switched = false, false, false, m.w.now
	m.k, m.running, m.mounted, m.troubled = nil, nil, nil, m.w.now
	if m.lodged != nil {
		m.lodged.leave(m.w)
	}
	// a BMC dies with the power of its rack
	if m.device && m.second && !(m.lodged != nil && m.w.calm) && m.w.chance(0.3) {
		m.deaf = [3]bool{0: true}
		m.w.count("one device down")
	}
	for _, p := range m.w.procs {
		if m.w.limits.events && (m.device || m.second) && m.w.rng.usual(0.8) {
			p.deviceEvent(m.name)
		}
	}
}

// powerOn gives power; the kubelet starts once the machine has booted.
func (m *machine) powerOn(why string) {
	if m.power {
		return
	}
	if m.w.Scenario == Held && m.marked() {
		return
	}
	m.start(why)
}

// start is powerOn by an order of the machine's own device, which nobody holds up.
func (m *machine) start(why string) {
	if m.power {
		return
	}
	m.w.booted++
	m.deaf[0] = m.deaf[0] && m.w.calm // comes back with the power; in the calm it may stay down, beside the other
	m.unfed = [2]bool{}
	if m.lodged != nil {
		m.lodged.enter(m.w)
	}
	m.power, m.switched, m.run = true, m.w.now, fmt.Sprintf("boot-%d", m.w.booted)
	if !m.contained {
		m.bootID = m.run
	}
	m.cut = m.cut && (m.w.Scenario != Cut || m.w.chance(0.2)) // some boot without their network
	m.w.logf("%s: power ON (%s), %s", m.name, why, m.run)
	m.w.count("power on")
	run := m.run
	delay := m.w.between(300*time.Millisecond, 3*time.Second)
	if m.w.chance(0.4) {
		delay = m.w.between(3*time.Second, 25*time.Second)
	}
	m.w.after(delay, func() {
		if m.power && m.run == run {
			m.startKubelet()
		}
	})
}

// arrived is the Provider whose answer has already arrived.
type arrived struct {
	obs providers.Observation
	err error
}

func (r arrived) State(context.Context, providers.Target) (providers.Observation, error) {
	return r.obs, r.err
}
func (arrived) PowerOff(context.Context, providers.Target, func() error) error { return nil }
func (arrived) PowerOn(context.Context, providers.Target, func() error) error  { return nil }

// ask puts a question to each of the machine's devices, all at once, by the clocks of who asks. It is done once all
// have answered, or once the answers decide and the other devices have had their time.
func (w *World) ask(m *machine, to []speaker, now func() providers.Instant, done func([]providers.Answer)) {
	sent := now()
	out := make([]providers.Answer, len(to))
	truth := make([]bool, len(to))
	lie := make([]bool, len(to))
	devices := make([]proof.Device, len(to))
	for i, s := range to {
		devices[i] = s.Device
	}
	over := false
	finish := func() {
		missing := slices.ContainsFunc(out, func(a providers.Answer) bool { return a.Got.IsZero() })
		if over || missing && (w.now.Sub(sent.Wall) < providers.Patience || !proof.IsDecided(devices, out)) {
			return
		}
		over = true
		on, outlets := false, 0
		for i, a := range out {
			on = on || a.State == providers.PowerOn && !to[i].Feeds
			// each tells of its own outlet: together they tell of the machine
			if a.State == providers.PowerOff && to[i].Feeds {
				outlets++
			}
		}
		for i, a := range out {
			if to[i].Feeds && outlets < 2 {
				truth[i] = false
			} else if to[i].Feeds { // by the time that the later one answered
				for j := range to {
					truth[i] = truth[i] || to[j].Feeds && truth[j]
				}
			}
			if a.Got.IsZero() {
				w.count("one device does not answer in time")
				out[i] = providers.Answer{Observation: providers.Observation{At: sent}, Got: now(),
					Err: providers.ErrUnreachable}
			}
			if a.State == providers.PowerOff { // a lie is believed where nobody says otherwise
				w.truth[proofKey{m.name, a.At.Wall}] = truth[i] || lie[i] && !on
			}
			if lie[i] && on {
				w.count("a lie is gainsaid")
			}
		}
		done(out)
	}
	for i, s := range to {
		w.askOne(m, s, now, func(a providers.Answer, t, l bool) {
			// it came after its time: who asked has the others' answers, though a stopped process may not have read
			// them yet
			if over {
				return
			}
			out[i], truth[i], lie[i] = a, t, l
			finish()
		})
	}
	if len(to) > 1 {
		w.after(providers.Patience, finish)
	}
}

// askOne puts the question to one device. The truth is read when the device gets to it, and the answer may be long on
// its way.
func (w *World) askOne(
	m *machine, to speaker, now func() providers.Instant, done func(a providers.Answer, truth, lie bool),
) {
	if to.hosts {
		w.askHosts(m, to, now, done)
		return
	}
	sent := now()
	asked := to.of
	there := w.latency()
	stamp := sent.Add(time.Duration(w.rng.Float64() * float64(there)))
	w.after(there, func() {
		w.receiveOrder("ask", asked, to.which, to.target)
		obs, err := asked.answer(stamp, m, to)
		lie := asked == m && m.lies && m.liar == to.which && err == nil
		// of the node's machine
		spoken := asked == m || obs.SystemUUID == m.uuid
		truth := spoken && !m.power || asked == m && err == nil && obs.At.Wall.Before(m.switched) // off then, on since
		back := max(w.latency(), w.limits.device-there)
		if err != nil && w.chance(0.5) {
			back = 5 * time.Second // it ran into the deadline
		}
		w.after(back, func() {
			first := true
			a := providers.Ask(context.Background(), arrived{obs, err}, to.Machine.Provider, to.target,
				func() providers.Instant {
					if first {
						first = false
						return sent
					}
					return now()
				})
			done(a, truth && (m.uuid == obs.SystemUUID || to.which >= 1 && obs.SystemUUID == ""), lie)
		})
	})
}

// answer is what a device of the machine says now, to somebody who asks about a machine.
func (m *machine) answer(stamp providers.Instant, about *machine, to speaker) (providers.Observation, error) {
	w, which := m.w, to.which
	obs := providers.Observation{State: providers.PowerOn, SystemUUID: m.uuid, At: stamp}
	if m.contained {
		obs.Run = m.run
	}
	// it cannot tell which machine it speaks of, and speaks of none but its own
	if which >= 1 && (!m.told || to.Feeds) {
		obs.SystemUUID = ""
	}
	switch {
	case m.deaf[which] && !(m.split && w.calm): // outlets that are on say nothing of a machine whose BMC is silent
		return providers.Observation{}, fmt.Errorf("asking: %w", providers.ErrUnreachable)
	case m.lies && m.liar == which:
		m.lied = true
		obs.State, obs.Raw = providers.PowerOff, "Off"
		return obs, nil
	case to.Feeds:
		// outlets alone do not tell of a machine that is off: a person pulls its plugs in the end
		if m.unfed[which-1] || w.calm && !m.power {
			obs.State = providers.PowerOff
		}
	case m.changing:
		obs.State, obs.Raw = providers.PowerChanging, "PoweringOff"
	case !m.power:
		obs.State = providers.PowerOff
	}
	if w.calm {
		return obs, nil
	}
	switch w.rng.oneOf(w.limits.bmcTrouble, 6) {
	case 0:
		return providers.Observation{}, fmt.Errorf("asking: %w", providers.ErrUnreachable)
	case 1:
		return providers.Observation{}, fmt.Errorf("asking: %w", providers.ErrNotFound)
	case 2:
		obs.State, obs.Raw = providers.PowerUnknown, "Paused?"
	case 3: // another machine's device answers, and that machine may well be off
		if to.target.SystemUUID != m.uuid || which >= 1 && (!m.told || to.Feeds) {
			// who it speaks of is compared with what the node tells: a kubelet that lies of itself has itself alone to
			// lose
			return obs, nil
		}
		other := w.machines[w.rng.IntN(len(w.machines))]
		obs.SystemUUID = other.uuid
		obs.State = providers.PowerOff
		if other.power && (other == about || w.chance(0.5)) {
			obs.State = providers.PowerOn
		}
		if other == m {
			obs.SystemUUID = "5f0e8a2c-0000-4000-8000-0123456789ab"
		}
	case 4: // a cache speaks: what was true before the last switch, and honest about when
		obs.At = stamp.Add(m.switched.Sub(stamp.Wall) - time.Millisecond)
		obs.State = providers.PowerOn
		if m.power {
			obs.State = providers.PowerOff
		}
	case 5: // a word that is no state of the contract
		obs.State = providers.PowerState(17)
	}
	return obs, nil
}

// takeOrder is a device receiving a power action: one that is down, or that speaks for another machine, refuses it.
func (m *machine) takeOrder(verb string, t providers.Target, which int) error {
	w := m.w
	w.receiveOrder(verb, m, which, t)
	if m.deaf[which] && !(m.split && w.calm) {
		return fmt.Errorf("powering %s: %w", verb, providers.ErrUnreachable)
	}
	told := providers.Observation{SystemUUID: m.uuid}
	if which >= 1 && (!m.told || m.split) {
		told.SystemUUID = ""
	}
	if which >= 1 && verb == "off" {
		w.count("PowerOff through the second")
	}
	if err := t.VerifyIdentity(told); err != nil {
		return fmt.Errorf("powering %s: %w", verb, err)
	}
	if t.Node != m.name {
		w.fail("14", "the machine of %s is powered %s for %s", m.name, verb, t.Node)
	}
	return nil
}

// orderOff is a device taking a hard off: obeyed, obeyed later, or accepted and forgotten.
func (m *machine) orderOff(t providers.Target, which int) error {
	w := m.w
	if err := m.takeOrder("off", t, which); err != nil {
		return err
	}
	if !w.calm && w.chance(0.15) {
		return fmt.Errorf("powering off: %w", providers.ErrUnreachable)
	}
	if !w.calm && w.chance(0.05) {
		return fmt.Errorf("powering off: %w", providers.ErrDenied)
	}
	outlet := m.split && which >= 1
	m.ordered, m.orderedIn = w.now, m.run
	if m.metal3 && which == 0 {
		m.orderLate(false)
		return nil
	}
	if m.stubborn {
		return nil
	}
	if ignored := !w.calm && w.chance(0.15); ignored || !m.power && !outlet {
		return nil
	}
	run := m.run
	if outlet {
		w.after(w.between(10*time.Millisecond, 3*time.Second), func() {
			if m.run != run {
				return
			}
			m.unfed[which-1] = true
			w.count("one outlet off")
			if m.unfed == [2]bool{true, true} {
				w.count("both outlets off")
				m.cutPower("its outlets")
				m.deaf[0] = true
			}
		})
		return nil
	}
	m.changing = w.chance(0.5)
	d := w.between(10*time.Millisecond, 2*time.Second)
	if !w.calm && w.chance(0.1) {
		d = w.between(5*time.Second, 20*time.Second)
	}
	w.after(d, func() {
		if m.run == run {
			m.cutPower("ordered")
		}
	})
	return nil
}

// orderOn is a device taking a power-on: obeyed, obeyed later, or accepted and forgotten. An answer that is lost may be
// of either kind.
func (m *machine) orderOn(t providers.Target, which int) error {
	w := m.w
	if err := m.takeOrder("on", t, which); err != nil {
		return err
	}
	run, outlet := m.run, m.split && which >= 1
	m.order = nil
	if w.calm || !w.chance(0.15) {
		w.after(w.between(10*time.Millisecond, 5*time.Second), func() {
			if m.run != run {
				if outlet {
					m.unfed[which-1] = false
				}
				return
			}
			unfed := m.unfed
			if outlet {
				unfed[which-1] = false
			}
			m.start("ordered")
			m.unfed = unfed
		})
	}
	if !w.calm && w.chance(0.15) {
		w.count("answer to a power-on lost")
		return fmt.Errorf("powering on: %w", providers.ErrUnreachable)
	}
	return nil
}
