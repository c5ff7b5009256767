package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/peers"
	"github.com/forcefence/forcefence/test/world"
)

const (
	peerLimit  = 3 * time.Minute // of a turn, until all run again
	peerRounds = 3               // at most, at each rate: NotReady comes a third of a tick earlier in each

	// of the controller-manager's pod garbage collector, which obeys the out-of-service taint
	podgcTick = 20 * time.Second
)

// rate is how many requests a second each controller of the controller-manager may send.
type rate struct {
	qps, burst int
	after      time.Duration // the stock taint-eviction controller works off its queue for that long
}

var (
	fastRate  = rate{1000, 1000, 5 * time.Second}
	stockRate = rate{20, 30, 20 * time.Second}
)

// contender is a system at one rate, and what came of its turns.
type contender struct {
	system
	rate     rate
	versions string
	outcomes []outcome
}

// contenders are the systems at each rate, those of one turn last, and only the named ones: nil means all. A name may
// begin with that of several systems.
func contenders(names []string) (rounds map[rate][]*contender, once []*contender, err error) {
	rounds = map[rate][]*contender{}
	for _, name := range names {
		if !slices.ContainsFunc(compared, func(s system) bool { return s.isNamed([]string{name}) }) {
			return nil, nil, fmt.Errorf("-systems: %q begins the name of no system", name)
		}
	}
	for _, s := range compared {
		switch {
		case names != nil && !s.isNamed(names):
		case s.once:
			once = append(once, &contender{system: s, rate: stockRate})
		default:
			for _, q := range []rate{fastRate, stockRate} {
				s.limit, s.after = peerLimit, q.after
				rounds[q] = append(rounds[q], &contender{system: s, rate: q})
			}
		}
	}
	return rounds, once, nil
}

func (s system) isNamed(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(s.name, name) })
}

// comparePeers times forcefence, the bare loop, the out-of-service taint and other projects' systems in turns on one
// cluster. A person begins loop and taint at the very moment of NotReady. The last turns, the only ones of their kind,
// are those of the slow systems, and of Kubernetes alone.
func comparePeers(ctx context.Context, r *runner) error {
	rounds, once, err := contenders(r.o.systems)
	if err != nil {
		return err
	}
	isMissing := func(c *contender) bool {
		missing := peers.Missing(c.peer)
		if missing != "" && c.rate == stockRate { // each system is there once
			r.say("%s has no turn: %s", c.name, missing)
		}
		return missing != ""
	}
	once = slices.DeleteFunc(once, isMissing)
	for q := range rounds {
		rounds[q] = slices.DeleteFunc(rounds[q], isMissing)
	}
	all := slices.Concat(rounds[fastRate], rounds[stockRate], once)
	for _, c := range all {
		if c.versions, err = peers.Versions(ctx, c.peer); err != nil {
			return err
		}
	}
	l, err := r.newLab(ctx, labOptions{nodes: 6})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, shop); err != nil {
		return err
	}
	if err := l.addPeers(); err != nil {
		return err
	}
	run, err := l.newRun(shop)
	if err != nil {
		return err
	}
	defer func() { r.results = resultsOf(run, all) }()
	played := 0
	for _, q := range []rate{fastRate, stockRate} {
		if len(rounds[q]) == 0 {
			continue
		}
		started, err := l.setRate(ctx, q)
		if err != nil {
			return err
		}
		for i, c := range turns(min(r.o.pairs, peerRounds), rounds[q]...) {
			untilTick := podgcTick * time.Duration(1+i/len(rounds[q])) / peerRounds
			if err := l.play(ctx, played, c, started.Add(-untilTick)); err != nil {
				return fmt.Errorf("turn %d: %w", played+1, err)
			}
			played++
		}
	}
	for _, c := range once {
		r.say("%s, for up to %s", c.name, c.limit)
		if err := l.play(ctx, played, c, time.Now()); err != nil {
			return fmt.Errorf("turn %d: %w", played+1, err)
		}
		played++
	}
	return nil
}

// addPeers prepares other projects' systems, which start with their turns.
func (l *lab) addPeers() error {
	racks, ok := l.Power.(*world.Redfish)
	if !ok {
		return fmt.Errorf("power %T has no BMCs", l.Power)
	}
	o := peers.Options{Dir: l.file("peers"), Namespace: namespace, BMCs: map[string]string{},
		Username: racks.Username(), Password: racks.Password(), CAFile: l.file("bmc-ca.pem")} // as forcefence has them
	for _, h := range l.Hosts {
		o.BMCs[h.Name()] = h.Machine.Address()
	}
	l.peers = peers.New(l.Cluster, o)
	l.stops = append(l.stops, func() {
		if err := l.peers.Stop(context.Background()); err != nil {
			l.r.say("%v", err)
		}
	})
	return os.MkdirAll(o.Dir, 0o755)
}

// setRate starts the controller-manager again with that rate, and returns from when on its ticks count. The first comes
// about a second later, but the sweep over a tick does not need it exactly.
func (l *lab) setRate(ctx context.Context, q rate) (time.Time, error) {
	kcm := l.ControllerManager()
	kcm.Stop()
	kcm.Change = func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, fmt.Sprintf("--kube-api-qps=%d", q.qps),
			fmt.Sprintf("--kube-api-burst=%d", q.burst))
	}
	started := time.Now()
	return started, kcm.Start(ctx)
}

// play plays a contender's turn, the next after so many. The node is NotReady a whole number of ticks after the given
// moment.
func (l *lab) play(ctx context.Context, played int, c *contender, moment time.Time) error {
	victim := l.names[played%len(l.names)]
	if err := l.gather(ctx, shop.pods(), victim); err != nil {
		return err
	}
	if c.peer != "" {
		if err := l.peers.Start(ctx, c.peer); err != nil {
			return err
		}
	}
	if !cluster.Sleep(ctx, settle) ||
		!cluster.Sleep(ctx, podgcTick-(nodeGrace+time.Since(moment))%podgcTick) {
		return context.Cause(ctx)
	}
	o, err := l.outage(ctx, victim, c.system)
	if err := errors.Join(err, l.peers.Stop(ctx)); err != nil {
		return err
	}
	c.outcomes = append(c.outcomes, o)
	l.r.say("%2d %-30s at %4d requests a second: %s; load %s", played+1, c.name, c.rate.qps, o.summary(), load1())
	return nil
}

// summary returns what came of a turn.
func (o outcome) summary() string {
	back, off := fmt.Sprintf("%d StatefulSet pods run in the end", o.running), "not sure that the machine was off"
	if o.isBack() {
		back = fmt.Sprintf("NotReady %.1f s after the power cut, all StatefulSet pods ran again %.1f s later",
			o.cutToBack-o.notReadyToBack, o.notReadyToBack)
	}
	if o.sure {
		off = fmt.Sprintf("a device said Off %.1f s after the power cut, before any pod ended", o.cutToOff)
	}
	return fmt.Sprintf("%s; %d running replacements ended; %s", back, o.deaths, off)
}

// resultsOf returns what came of the contenders' turns.
func resultsOf(run Run, all []*contender) PeerResults {
	r := PeerResults{Run: run}
	for _, c := range all {
		s := SystemResults{Name: c.name, Versions: c.versions, Rate: c.rate.qps}
		for _, o := range c.outcomes {
			s.Turns = append(s.Turns, o.recorded())
		}
		r.Systems = append(r.Systems, s)
	}
	return r
}
