package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
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
	outcomes []outcome
}

// peers times forcefence, the bare loop and the out-of-service taint in turns on one cluster. A person begins the
// latter two at the very moment of NotReady. The last turn, the only one of its kind, has none of them.
func peers(ctx context.Context, r *runner) error {
	l, err := r.newLab(ctx, labOptions{nodes: 6})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, shop); err != nil {
		return err
	}
	var all []*contender
	defer func() { r.text = compareSystems(all) }()
	played := 0
	for _, q := range []rate{fastRate, stockRate} {
		started, err := l.setRate(ctx, q)
		if err != nil {
			return err
		}
		var group []*contender
		for _, s := range []system{forcefence, bareLoop, outOfService} {
			s.limit, s.after = peerLimit, q.after
			group = append(group, &contender{system: s, rate: q})
		}
		all = append(all, group...)
		for i, c := range turns(min(r.o.pairs, peerRounds), group...) {
			untilTick := podgcTick * time.Duration(1+i/len(group)) / peerRounds
			if err := l.play(ctx, played, c, started.Add(-untilTick)); err != nil {
				return fmt.Errorf("turn %d: %w", played+1, err)
			}
			played++
		}
	}
	last := &contender{system: stockAlone, rate: stockRate}
	all = append(all, last)
	r.say("%s, for up to %s", last.name, last.limit)
	return l.play(ctx, played, last, time.Now())
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
	if !cluster.Sleep(ctx, settle) ||
		!cluster.Sleep(ctx, podgcTick-(nodeGrace+time.Since(moment))%podgcTick) {
		return context.Cause(ctx)
	}
	o, err := l.outage(ctx, victim, c.system)
	if err != nil {
		return err
	}
	c.outcomes = append(c.outcomes, o)
	l.r.say("%2d %-20s at %4d requests a second: %s; load %s", played+1, c.name, c.rate.qps, o.summary(), load1())
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

// compareSystems returns a table for people, with a line for each contender that had a turn.
func compareSystems(all []*contender) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seconds from NotReady until every StatefulSet pod runs again: %d pods on one of six nodes\n",
		shop.pods())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "system\trequests/s\tmedian\tmin..max\tall ran again\trunning replacements ended\tsure of off")
	for _, c := range all {
		if len(c.outcomes) == 0 {
			continue
		}
		var seconds []float64
		var ended []string
		sure := 0
		for _, o := range c.outcomes {
			if o.isBack() {
				seconds = append(seconds, o.notReadyToBack)
			}
			ended = append(ended, strconv.Itoa(o.deaths))
			if o.sure {
				sure++
			}
		}
		middle := "-"
		if len(seconds) > 0 {
			middle = number(round(median(seconds)))
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d of %d\t%s\t%d of %d\n", c.name, c.rate.qps, middle, extremes(seconds),
			len(seconds), len(c.outcomes), strings.Join(ended, ", "), sure, len(c.outcomes))
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}
