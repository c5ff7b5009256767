package view

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint/api"
)

func TestTimelineEvents(t *testing.T) {
	fenceFrom := func(name string, begun time.Duration, ended *time.Duration) (r Record) {
		r.Fencing.Name = name
		r.Fencing.Spec.StartedAt = metav1.NewMicroTime(now.Add(begun))
		r.Fencing.Status.Evidence = []api.Answer{{At: metav1.NewMicroTime(now.Add(begun)), From: "bmc", State: "Off"}}
		if ended != nil {
			at := metav1.NewMicroTime(now.Add(*ended))
			r.Fencing.Status.FinishedAt = &at
		}
		return r
	}
	events := []OwnEvent{ // the newest first, as they are read
		{At: now.Add(40 * time.Minute), Reason: "MuchLater"},
		{At: now.Add(20 * time.Minute), Reason: "Later"},
		{At: now.Add(-time.Minute), Reason: "Suspect"},
		{At: now.Add(-5 * time.Minute), Reason: "EarlierFence"},
		{At: now.Add(-11 * time.Minute), Reason: "LongBefore"},
	}
	minutes := func(n time.Duration) *time.Duration { d := n * time.Minute; return &d }
	for _, tt := range []struct {
		name    string
		records []Record
		events  []OwnEvent
		want    []string
	}{
		{"open", []Record{fenceFrom("a", 0, nil)}, events, []string{"EarlierFence", "Suspect", "bmc", "Later", "MuchLater"}},
		{"over", []Record{fenceFrom("a", 0, minutes(5))}, events, []string{"EarlierFence", "Suspect", "bmc", "Later"}},
		{
			"after an earlier fence", []Record{fenceFrom("b", 0, nil), fenceFrom("a", -time.Hour, minutes(-3))}, events,
			[]string{"Suspect", "bmc", "Later", "MuchLater"},
		},
		{
			"Events not read", []Record{fenceFrom("b", 0, nil), fenceFrom("a", -time.Hour, minutes(-3))}, nil,
			[]string{"bmc"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			SortNewestFirst(tt.records)
			before := slices.Clone(tt.events)
			var got []string
			for _, e := range TimelineOf(tt.records, tt.events).Entries {
				got = append(got, e.From)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if !slices.Equal(before, tt.events) {
				t.Errorf("TimelineOf changed the events that it was given: %v", tt.events)
			}
		})
	}
}
