package sim

import (
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// drawLimits are those of a machine's two levels.
func (w *World) drawLimits() (out [2]proof.Limits) {
	for i := range out {
		out[i] = proof.Limits{
			Delay: []time.Duration{0, 0, 0, 3 * time.Second}[w.rng.IntN(4)], Attempts: w.rng.IntN(4),
			Timeout: []time.Duration{0, 6 * time.Second, 20 * time.Second}[w.rng.IntN(3)],
		}
	}
	return out
}

// sends are the power-offs that a process sent in one fence, by the checker's own count.
type sends struct {
	fence string
	life  int
	level int // whose turn it is
	began time.Time
	by    map[string]try  // in this turn, by device
	never map[string]bool // devices that refused for good
}

// try is what came of the power-offs through one device in one turn of its level.
type try struct {
	sent int
	at   time.Time // the last
	err  error
}

// level holds that a power-off goes to the level whose turn it is: the first whose devices all answer begins, and
// another has its turn only once that one had its own.
func (c *checker) level(p *Process, l taint.Look, to []speaker, said []providers.PowerState, device int) {
	w, d := c.w, to[device]
	state := func(i int) providers.PowerState {
		if i < len(said) {
			return said[i]
		}
		return providers.PowerUnknown
	}
	if d.NoPower != "" {
		w.fail("14", "%s is powered off through %s: %s", l.Name, d.Name, d.NoPower)
	}
	key := [2]string{p.name, l.Name}
	s := c.sends[key]
	if s == nil || s.fence != l.Record.ID || s.life != p.life {
		for _, o := range to[:device] { // the earlier levels
			begins := o.Level != d.Level && !w.machine(l.Name).lied // an Off that is not believed is none
			for i, x := range to {
				if x.Level == o.Level && (state(i) == providers.PowerUnknown || x.NoPower != "") {
					begins = false
				}
			}
			if begins {
				w.fail("levels", "%s is powered off through %s, and %s answers", l.Name, d.Name, o.Name)
			}
		}
		s = &sends{fence: l.Record.ID, life: p.life, level: d.Level, began: w.now, by: map[string]try{},
			never: map[string]bool{}}
		c.sends[key] = s
	}
	if s.level != d.Level || s.by[d.Name].sent >= max(d.Limits.Attempts, 1) { // another turn
		if s.never[d.Name] {
			w.fail("13", "%s is powered off through %s again, which refused for good", l.Name, d.Name)
		}
		if !s.over(w.now, to, state) {
			w.fail("levels", "%s is powered off through %s, and it is the turn of level %d: %+v", l.Name, d.Name,
				s.level, s.by)
		}
		if s.level != d.Level {
			w.count("level gave way")
		}
		s.level, s.began, s.by = d.Level, w.now, map[string]try{}
	}
	t := s.by[d.Name]
	s.by[d.Name] = try{t.sent + 1, w.now, nil}
}

// over reports that the level had its turn.
func (s *sends) over(now time.Time, to []speaker, state func(int) providers.PowerState) bool {
	here := false
	for i, d := range to {
		if d.Level != s.level {
			continue
		}
		here = true
		t := s.by[d.Name]
		if end := d.Limits.Timeout; end > 0 && now.Sub(s.began) >= end {
			return true
		}
		if state(i) != providers.PowerOff &&
			(s.never[d.Name] ||
				t.sent >= max(d.Limits.Attempts, 1) && (t.err != nil || now.Sub(t.at) >= 10*time.Second)) {
			return true
		}
	}
	return !here
}

// taken is how a device took a power-off.
func (c *checker) taken(p *Process, node string, d speaker, err error) {
	s := c.sends[[2]string{p.name, node}]
	if s == nil || s.life != p.life || err == nil {
		return
	}
	if t, ok := s.by[d.Name]; ok {
		t.err = err
		s.by[d.Name] = t
	}
	if providers.ErrorClass(err) != "unreachable" {
		s.never[d.Name] = true
	}
}

// parts holds that of some level all devices said Off when a node is marked, and that none which tells of the machine
// gainsays them.
func (c *checker) parts(node string, to []speaker, said []providers.PowerState) {
	whole := false
	for i, d := range to {
		all := true
		for j, o := range to {
			all = all && (o.Level != d.Level || j < len(said) && said[j] == providers.PowerOff)
		}
		whole = whole || all
		if i < len(said) && !d.Feeds && (said[i] == providers.PowerOn || said[i] == providers.PowerChanging) {
			c.w.fail("4", "%s is marked, and %s says %s", node, d.Name, said[i])
		}
	}
	if !whole {
		c.w.fail("4", "%s is marked, and of no level all devices said Off: %v", node, said)
	}
}
