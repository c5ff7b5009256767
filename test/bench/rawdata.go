package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"
)

// fenceRound is one power cut of bench p99, and one line of its raw data. Times are in seconds from the cut.
type fenceRound struct {
	Way        string             `json:"way"` // a source's name
	Build      string             `json:"build"`
	Kubernetes string             `json:"kubernetes"`
	Cores      int                `json:"cores"`
	Pods       int                `json:"pods"`    // on the machine
	Volumes    int                `json:"volumes"` // of these pods
	Cut        time.Time          `json:"cut"`
	Load       string             `json:"load"`               // the machine's, of the minute before the cut
	By         string             `json:"by,omitempty"`       // what made forcefence suspect the node
	At         map[moment]float64 `json:"at"`                 // of the node
	Pod        string             `json:"pod,omitempty"`      // whose replacement was the last to run
	PodAt      map[moment]float64 `json:"podAt,omitempty"`    // of that pod and its replacement
	Reasons    []reasonAt         `json:"reasons,omitempty"`  // why forcefence acted or waited, by its log
	NotEnded   string             `json:"notEnded,omitempty"` // what had not happened when the bench gave up
}

// reasonAt is a reason in forcefence's log: of an act, when it was over, or of a wait, when it began.
type reasonAt struct {
	At   float64 `json:"at"`
	Why  string  `json:"why"`
	Wait bool    `json:"wait,omitempty"`
}

// fill takes in what was seen of an outage that began at that time.
func (r *fenceRound) fill(s *phases, zero time.Time) {
	since := func(t times) map[moment]float64 {
		m := map[moment]float64{}
		for name, at := range t {
			m[name] = round(between(zero, at))
		}
		return m
	}
	r.Cut, r.At = zero.UTC().Round(time.Millisecond), since(s.node)
	if s.last != nil {
		r.Pod, r.PodAt = s.last.Name, since(s.pods[s.last.Name])
	}
	for _, l := range s.reasons {
		wait := l.Act == action.Name(action.Wait{})
		r.Reasons = append(r.Reasons, reasonAt{round(between(zero, l.Time)), l.Why, wait})
	}
}

// appendRound writes a round to the end of the file, in one write.
func appendRound(file string, r fenceRound) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// readRounds returns the rounds of raw data. Errors name the line.
func readRounds(from io.Reader) (all []fenceRound, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r fenceRound
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w: remove it", n, err)
		}
		all = append(all, r)
	}
	return all, lines.Err()
}
