package main

import (
	"math"
	"testing"
)

func TestCompareSystems(t *testing.T) {
	never := outcome{notReadyToBack: math.NaN(), running: 7}
	got := compareSystems([]*contender{
		{system: forcefence, rate: fastRate, outcomes: []outcome{
			{notReadyToBack: 3, sure: true}, {notReadyToBack: 2.5, sure: true}, {notReadyToBack: 1, sure: true}}},
		{system: outOfService, rate: stockRate, outcomes: []outcome{{notReadyToBack: 40, deaths: 28}, never}},
		{system: bareLoop, rate: stockRate}, // had no turn
		{system: stockAlone, rate: stockRate, outcomes: []outcome{never}},
	})
	want := `seconds from NotReady until every StatefulSet pod runs again: 110 pods on one of six nodes
system                requests/s  median  min..max  all ran again  running replacements ended  sure of off
forcefence            1000        2.500   1..3      3 of 3         0, 0, 0                     3 of 3
out-of-service taint  20          40      -         1 of 2         28, 0                       0 of 2
Kubernetes alone      20          -       -         0 of 1         0                           0 of 1
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestSummary(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   outcome
		want string
	}{
		{"back", outcome{cutToOff: 2.6, notReadyToBack: 2.31, cutToBack: 6.5, running: 100, sure: true},
			"NotReady 4.2 s after the power cut, all StatefulSet pods ran again 2.3 s later; 0 running replacements " +
				"ended; a device said Off 2.6 s after the power cut, before any pod ended"},
		{"never", outcome{notReadyToBack: math.NaN(), running: 7, deaths: 2},
			"7 StatefulSet pods run in the end; 2 running replacements ended; not sure that the machine was off"},
	} {
		if got := tt.in.summary(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
