package main

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestResults(t *testing.T) {
	never := outcome{notReadyToBack: math.NaN(), running: 7, volumes: 20, marks: []string{"a", "b"}}
	r := resultsOf(Run{Date: "2026-03-01", Kubernetes: "v1.37.2", Cores: 2, Load: shop}, []*contender{
		{system: forcefence, rate: fastRate, outcomes: []outcome{
			{cutToBack: 8, notReadyToBack: 3, sure: true}, {cutToBack: 7.46, notReadyToBack: 2.46, sure: true},
			{cutToBack: 5, notReadyToBack: 1, sure: true}}},
		{system: farTaint, rate: stockRate, versions: "FAR v1.2.3",
			outcomes: []outcome{{cutToBack: 45, notReadyToBack: 40, deaths: 28, marks: []string{"a"}}, never}},
		{system: bareLoop, rate: stockRate}, // had no turn
		{system: stockAlone, rate: stockRate, outcomes: []outcome{never}},
	})
	want := "All figures are of one run of `make bench RUN=peers`: 2026-03-01, Kubernetes v1.37.2,\n" +
		"2 cores, simulated kubelets. The node had 110 pods, 20 of them\n" +
		"with a volume and 10 of a Deployment; five other nodes were free.\n\n" +
		tableHead + `| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| forcefence | 1000 | 7.5 s (5.0-8.0) | 2.5 s (1.0-3.0) | 3 of 3 | none | 3 of 3 | none | none |
| NHC and FAR, OutOfServiceTaint (FAR v1.2.3) | 20 | 45.0 s | 40.0 s | 1 of 2 | 0-28 | 0 of 2 | 0-20 | a, b |
| Kubernetes alone | 20 | never | never | 0 of 1 | none | 0 of 1 | 20 | a, b |
`
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var read PeerResults
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{r.markdown(), read.markdown()} {
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestContenders(t *testing.T) {
	rounds, once, err := contenders([]string{"forcefence", "NHC and FAR", "Kubernetes"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range slices.Concat(rounds[fastRate], once) {
		got = append(got, c.name)
	}
	want := []string{forcefence.name, farTaint.name, farDeletion.name, stockAlone.name}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if rounds, once, err = contenders(nil); err != nil || len(rounds[stockRate])+len(once) != len(compared) {
		t.Errorf("without names: got %d and %d of %d, %v", len(rounds[stockRate]), len(once), len(compared), err)
	}
	if _, _, err = contenders([]string{"forcefence", "FAR"}); err == nil || !strings.Contains(err.Error(), `"FAR"`) {
		t.Errorf("an unknown name: got %v", err)
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
