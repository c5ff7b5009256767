package integration

import (
	"slices"
	"testing"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

// A machine loses its power: its pods run elsewhere, its volumes are detached, the mark comes and goes, and every
// output reports it.
func TestPowerCut(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.busy(h)
	before := w.pods()
	c := w.start(settings{})
	h.cut()
	rec := w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, before)

	if len(rec.Evidence) < 2 || rec.Device != "racks/"+h.bmc.URL() {
		t.Errorf("record: got %+v, want device %s and two answers: one before the mark, one after", rec, h.bmc.URL())
	}
	for _, e := range rec.Evidence {
		if e.State != "Off" || e.Raw != "Off" || e.From != "racks" {
			t.Errorf("evidence: got %+v, want the BMC's Off", e)
		}
	}
	want := []taint.Phase{taint.PhaseArmed, taint.PhaseEvicting, taint.PhaseDone}
	if got := w.seen.phases(h.Name(), rec.ID); !slices.Equal(got, want) {
		t.Errorf("phases: got %v, want %v", got, want)
	}
	if a, p := w.attachments(h), w.podsOn(h); len(a)+len(p) != 0 {
		t.Errorf("left on the node: attachments %v, %d pods", a, len(p))
	}
	for _, reason := range []string{"MachineOff", "MachineConfirmedOff", "NodeEvicted"} {
		w.untilEvent("Node", h.Name(), reason)
	}
	w.untilEvent("Pod", "db-", taint.TombstoneReason)
	w.untilEvent("Pod", "web-", taint.TombstoneReason)
	if len(c.log.story(rec.ID)) < 5 {
		t.Errorf("log of fence %s: got %v, want its story", rec.ID, c.log.story(rec.ID))
	}

	for series, least := range map[string]float64{
		`forcefence_fences_total{result="Evicted"}`:                                 1,
		`forcefence_phase_seconds_count{phase="tombstone"}`:                         1,
		`forcefence_phase_seconds_count{phase="confirm"}`:                           1,
		`forcefence_phase_seconds_count{phase="evict"}`:                             1,
		`forcefence_provider_calls_total{call="state",result="off",type="redfish"}`: 2,
		`forcefence_nodes{state="healthy"}`:                                         2,
		`forcefence_nodes{state="suspect"}`:                                         1,
		`forcefence_config_last_reload_successful`:                                  1,
		`forcefence_machines{result="ok"}`:                                          3,
	} {
		c.untilMetric(series, least)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		kit.Must(t, c.answers(path))
	}
}
