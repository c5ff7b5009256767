package watch

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forcefence/forcefence/taint/features/storage"
)

// collector reads the metrics of the systems in use at each scrape.
type collector struct{ inUse func() []*system }

var (
	known = prometheus.NewDesc("forcefence_storage_known",
		"1 if all resources of a storage system were read, 0 if not: nothing depends on it then.",
		[]string{"storage"}, nil)
	objects = prometheus.NewDesc("forcefence_storage_objects", "Objects that describe a storage system, by kind.",
		[]string{"storage", "kind"}, nil)
	failing = prometheus.NewDesc("forcefence_storage_unevaluated",
		"Objects on which an expression of the configuration fails: their state is unknown.",
		[]string{"storage", "expression"}, nil)
)

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{known, objects, failing} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	for _, s := range c.inUse() {
		s.dropStale()
		s.mu.RLock()
		all := 0
		if s.state.MissingReason() == "" {
			all = 1
		}
		gauge(known, all, s.Name())
		for _, k := range storage.Kinds {
			if _, has := s.adapter.ResourceOf(k); has {
				gauge(objects, s.state.CountObjects(k), s.Name(), k.String())
			}
		}
		for path, n := range s.state.Faults() {
			gauge(failing, n, s.Name(), path)
		}
		s.mu.RUnlock()
	}
}
