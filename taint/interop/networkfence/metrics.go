package networkfence

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forcefence/forcefence/taint/interop/networkfence/storagefence"
)

// Metrics tells how old our fences are. It is safe for concurrent use.
type Metrics struct {
	now func() time.Time

	mu   sync.Mutex // guards seen
	seen map[string]seenFence
}

// seenFence is a fence of ours, as it was last read.
type seenFence struct {
	state storagefence.Standing
	made  time.Time
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(reg prometheus.Registerer, now func() time.Time) *Metrics {
	m := &Metrics{now: now, seen: map[string]seenFence{}}
	for _, state := range storagefence.Standings {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forcefence_network_fence_age_seconds",
			Help: "Age of the oldest NetworkFence of forcefence in each state, 0 without one: holds, kept (its node " +
				"is Ready), unfencing (the storage does not let it in), node_gone.",
			ConstLabels: prometheus.Labels{"state": string(state)},
		}, func() float64 { return m.oldest(state).Seconds() }))
	}
	return m
}

// oldest returns the age of the oldest fence in that state; 0: there is none.
func (m *Metrics) oldest(state storagefence.Standing) (age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.seen {
		if f.state == state {
			age = max(age, m.now().Sub(f.made), time.Second) // one of a clock that is ahead counts, too
		}
	}
	return age
}

func (m *Metrics) note(fence string, state storagefence.Standing, made time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[fence] = seenFence{state, made}
}

func (m *Metrics) forget(fence string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, fence)
}
