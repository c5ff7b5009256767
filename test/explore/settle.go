package explore

import "fmt"

// settleSteps is how many transitions may follow the last fault before every mark is gone. What takes longest is a
// fence that is made again and again with growing waits in between.
const settleSteps = 1500

// settles is invariant 11's second half: from here no fault happens any more, every transition that is enabled is made
// in its turn, one controller leads, and time goes on. It reports what is not at rest in the end; "" if all is. What it
// went through is good, too.
func (x *explorer) settles(s state, k *key) string {
	var keys []uint64
	var acts []act
	o := &x.Options
	for range settleSteps {
		h := k.of(&s, o)
		if x.isGood(h) || s.unrest(o) == "" {
			x.addGood(append(keys, h))
			return ""
		}
		keys = append(keys, h)
		a, ok := s.fair(o, &acts)
		if !ok {
			return "nothing goes on, and " + s.unrest(o)
		}
		if v := s.apply(o, a); v != nil {
			return v.Error()
		}
	}
	return fmt.Sprintf("%d steps after the last fault %s", settleSteps, s.unrest(o))
}

// fair is the next transition without faults: what others do comes first, then the controller, and time goes on when
// that waits.
func (s *state) fair(o *Options, acts *[]act) (act, bool) {
	s.left = Faults{}
	if s.ctl[0] != nil && s.ctl[1] != nil { // the one that led before finds that it does not any more
		s.orphan(s.ctl[0])
		s.ctl[0] = nil
	}
	if s.m[bad].cut {
		return act{heal, bad}, true
	}
	if s.node.paused {
		return act{unpause, bad}, true
	}
	a, ok := s.quiet(o, acts)
	// Kubernetes detaches after six minutes (F4)
	if (!ok || a.verb == timer) && s.att[bad] && s.node.unknown && !s.inNeed() {
		return act{detach, bad}, true
	}
	if beats := s.m[bad].up; beats && (!ok || a.verb == timer) {
		s.node.lease = s.draw()
		return a, ok
	}
	return a, ok
}

// quiet is the next transition that is no fault, and ends none.
func (s *state) quiet(o *Options, acts *[]act) (act, bool) {
	*acts = s.turns(o, s.enabled(o, (*acts)[:0]))
	for _, a := range *acts {
		if a.verb > unpause && a.verb != lease && a.verb != oldList && a.verb != begins {
			return a, true
		}
	}
	return act{begins, 0}, s.ctl[0] == nil && s.ctl[1] == nil
}

// unrest says what has not come to its end, "" if nothing.
func (s *state) unrest(o *Options) string {
	switch {
	case s.node.mark != 0:
		return "the mark is still there (" + string(s.node.rec.Phase) + ")"
	case s.node.rec.IsOpen():
		return "the record is open (" + string(s.node.rec.Phase) + ")"
	}
	for i := range o.Pods {
		if s.m[bad].run[i].stage != running && s.m[good].run[i].stage != running {
			return names[i] + " runs nowhere"
		}
	}
	return ""
}

func (x *explorer) isGood(h uint64) bool {
	s := &x.good[h%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.seen[h]
	return ok
}

func (x *explorer) addGood(hs []uint64) {
	for _, h := range hs {
		s := &x.good[h%shards]
		s.mu.Lock()
		s.seen[h] = struct{}{}
		s.mu.Unlock()
	}
}
