package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

const (
	guardNodes = 5000
	guardZones = 50
	guardMax   = 50 // microseconds
)

// guardDecision times the storm guard's decision about each of 5,000 silent nodes whose machines are on, in a storm:
// one zone in five is below its floor, and as many machines as may be are being powered off.
func guardDecision(_ context.Context, r *runner) error {
	var f fleet.Fleet
	now := providers.Now()
	names := make([]string, guardNodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%04d", i)
		l := taint.Look{
			Exists: true, Name: names[i], UID: "u", ResourceVersion: "1", Ready: corev1.ConditionTrue,
			Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint(i % guardZones)},
		}
		if i%5 == 0 && i%3 != 0 {
			l.Ready = corev1.ConditionUnknown
		}
		f.ApplyLook(l, now)
		f.ApplyLease(names[i], "1", 0, now)
	}
	turns := 0
	for _, n := range names {
		if f.ReserveTurn(n, now) {
			turns++
		}
	}
	f.Tick(now)
	said := map[reason.Reason]int{}
	var took []float64
	for _, n := range names {
		v := fence.View{
			Facts: fence.Facts{Mode: fence.Fence, Devices: []proof.Device{{Name: "bmc/" + n}}, NewID: "f", By: "bench"},
			Now:   now, PendingWork: fence.WorkConfirmed,
			Look: taint.Look{Exists: true, Name: n, UID: "u", Ready: corev1.ConditionUnknown,
				Got: now.Add(-time.Second)},
		}
		v.Memory.ApplyLook(v.Look)
		v.Answers.SetDevices(v.Facts.Devices...)
		v.Answers.ApplyAnswers(
			providers.Answer{Observation: providers.Observation{State: providers.PowerOn, At: now}, Got: now})
		begun := time.Now()
		v.Fleet = f.View(n, now)
		v.Fleet.Stale, v.Fleet.SilentSince = true, now.Add(-time.Hour)
		d := fence.Step(v)
		took = append(took, float64(time.Since(begun))/float64(time.Microsecond))
		said[d.Reason]++
	}
	if said[reason.TooFewHealthy] == 0 || said[reason.PowerOffLimit] == 0 {
		return fmt.Errorf("the storm is none: %v, %d power-offs", said, turns)
	}
	r.add(figure(fmt.Sprintf("the guard's decision about one of %d nodes, %d power-offs under way", guardNodes, turns),
		"us", took).atMost(guardMax))
	return nil
}
