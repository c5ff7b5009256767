package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/features/room"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/view"
)

// RoomAnnotation is the annotation of a leader's Lease that has its room.Summary, in JSON.
const RoomAnnotation = "forcefence.io/room"

const (
	roomInterval = time.Minute // between two estimates, at least
	// roomShare is how long an estimate rests for each time that it works: so it takes at most 1 % of a core.
	roomShare = 100
	// roomPageRest is the same within an estimate, after each page: 20 % of a core at most, so that fences go on.
	roomPageRest = 4
	maxRoomBytes = 32 << 10 // of the annotation that is read
)

// roomEstimator repeats the estimate of room while this process leads. It reads lists in pages and keeps nothing of
// them between two estimates.
type roomEstimator struct {
	live   client.Reader
	key    string
	limits func() *fleet.Limits
	log    *slog.Logger

	last atomic.Pointer[room.Summary] // nil: none yet

	failures *prometheus.GaugeVec
	pods     *prometheus.GaugeVec
	at       prometheus.Gauge
	seconds  prometheus.Gauge
}

func newRoomEstimator(
	live client.Reader, key string, limits func() *fleet.Limits, log *slog.Logger, reg prometheus.Registerer,
) *roomEstimator {
	r := &roomEstimator{
		live: live, key: key, limits: limits, log: log,
		failures: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_room_failures",
			Help: "Failures of one node, one failure domain or a pair of domains, by whether their pods find room " +
				"elsewhere now: fits, lacks, unknown. An estimate.",
		}, []string{"of", "result"}),
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_room_lacking_pods",
			Help: "Pods that find no room elsewhere in the worst failure of one node, one failure domain or a pair " +
				"of domains. An estimate.",
		}, []string{"of"}),
		at: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forcefence_room_estimated_timestamp_seconds",
			Help: "When the last estimate of room ended, as a Unix time; 0: never.",
		}),
		seconds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forcefence_room_estimate_seconds",
			Help: "How long the last estimate of room worked. It rests 100 times as long, and at least a minute.",
		}),
	}
	for _, kind := range room.Kinds {
		for _, v := range []room.Verdict{room.Lacks, room.Unknown, room.Fits} {
			r.failures.WithLabelValues(string(kind), string(v)) // from the start
		}
		r.pods.WithLabelValues(string(kind))
	}
	reg.MustRegister(r.failures, r.pods, r.at, r.seconds)
	return r
}

// Start repeats the estimate until ctx ends.
func (r *roomEstimator) Start(ctx context.Context) error {
	before := ""
	for wait := roomInterval; sleepFor(ctx, wait); {
		worked, err := r.estimate(ctx)
		why := ""
		if err != nil {
			why = err.Error()
		}
		if why != before && why != "" && ctx.Err() == nil {
			r.log.Warn("The estimate of room is incomplete or failed", "error", err)
		}
		before = why
		wait = max(roomInterval, roomShare*worked)
	}
	return nil
}

// sleepFor waits, and reports whether ctx goes on.
func sleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// estimate makes one estimate, and returns how long it worked. With an error that is a missing right the estimate has
// unknown pods.
func (r *roomEstimator) estimate(ctx context.Context) (worked time.Duration, _ error) {
	began, rested := time.Now(), time.Duration(0)
	c := room.New(r.key, domainLabels(r.limits()))
	unread, err := kube.ReadRoom(ctx, r.live, c, func(took time.Duration) {
		rest := time.Now()
		sleepFor(ctx, roomPageRest*took)
		rested += time.Since(rest)
	})
	if err != nil {
		return time.Since(began) - rested, err
	}
	s := room.Summarize(time.Now().UTC().Truncate(time.Second), c.Estimate())
	worked = time.Since(began) - rested
	for _, kind := range room.Kinds {
		for v, n := range s.Counts[kind] {
			r.failures.WithLabelValues(string(kind), string(v)).Set(float64(n))
		}
		r.pods.WithLabelValues(string(kind)).Set(float64(s.Worst[kind].Lacking))
	}
	r.at.Set(float64(s.At.Unix()))
	r.seconds.Set(worked.Seconds())
	r.last.Store(s)
	return worked, unread
}

// annotateLease publishes the last estimate. That of the leader before stays until there is one.
func (r *roomEstimator) annotateLease(a map[string]string) {
	if s := r.last.Load(); s != nil {
		raw, err := json.Marshal(s)
		if err == nil {
			a[RoomAnnotation] = string(raw)
		}
	}
}

// roomOrNone returns a summary as the view has it: nil for none.
func roomOrNone(s *room.Summary) view.Room {
	if s == nil {
		return nil
	}
	return s
}

// parseRoom returns the summary in a Lease's annotation; nil if there is none that can be read.
func parseRoom(text string) *room.Summary {
	var s room.Summary
	if text == "" || len(text) > maxRoomBytes || json.Unmarshal([]byte(text), &s) != nil || s.At.IsZero() {
		return nil
	}
	return &s
}
