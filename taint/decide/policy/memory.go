package policy

import (
	"encoding/json"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/evict"
)

// memoryJSON is the encoded form of a Memory.
type memoryJSON struct {
	Ready   bool                         `json:"ready,omitempty"`
	Fell    int                          `json:"fell,omitempty"`
	Done    map[string]int               `json:"done,omitempty"`
	Since   providers.Instant            `json:"since,omitzero"`
	Looked  providers.Instant            `json:"looked,omitzero"`
	Resumed providers.Instant            `json:"resumed,omitzero"`
	Lost    providers.Instant            `json:"lost,omitzero"`
	Seen    evict.TaintTimes             `json:"seen,omitempty"`
	Again   map[string]providers.Instant `json:"again,omitempty"`
	Small   map[string]bool              `json:"small,omitempty"`
	Owed    map[string]bool              `json:"owed,omitempty"`
	Freed   map[string]bool              `json:"freed,omitempty"`
	Loose   map[string]string            `json:"loose,omitempty"`
	Told    map[string]bool              `json:"told,omitempty"`
	Spells  map[string]spellJSON         `json:"spells,omitempty"`
	Failed  map[string]bool              `json:"failed,omitempty"`
	Free    []freedJSON                  `json:"free,omitempty"`
	Boot    string                       `json:"boot,omitempty"`
}

type spellJSON struct {
	Healthy bool              `json:"healthy,omitempty"`
	Since   providers.Instant `json:"since,omitzero"`
	Open    bool              `json:"open,omitempty"`
	Begun   providers.Instant `json:"begun,omitzero"`
}

type freedJSON struct {
	Policy  string        `json:"policy"`
	Volume  action.Volume `json:"volume"`
	Boot    string        `json:"boot"`
	Cleared bool          `json:"cleared,omitempty"`
}

// MarshalJSON writes all of it: a process that reads it decides as this one would.
func (m Memory) MarshalJSON() ([]byte, error) {
	out := memoryJSON{
		Ready: m.ready, Fell: m.notReadyCount, Done: m.done, Since: m.since,
		Looked: m.looks.Last, Resumed: m.looks.Resumed, Lost: m.looks.LastBeforeGap, Seen: m.looks.TaintTimes,
		Again: m.retryAt, Small: m.small,
		Owed: m.owedDeletes, Freed: m.freedPods, Loose: m.loose, Failed: m.failed, Boot: m.boot,
		Told: m.reportedPolicies,
	}
	for name, s := range m.spells {
		if out.Spells == nil {
			out.Spells = map[string]spellJSON{}
		}
		out.Spells[name] = spellJSON{s.healthy, s.since, s.open, s.begun}
	}
	for _, f := range m.freedVolumes {
		out.Free = append(out.Free, freedJSON{f.policy, f.volume, f.boot, f.cleared})
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *Memory) UnmarshalJSON(text []byte) error {
	var in memoryJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	*m = Memory{
		ready: in.Ready, notReadyCount: in.Fell, done: in.Done, since: in.Since,
		looks:   evict.Looks{TaintTimes: in.Seen, Last: in.Looked, Resumed: in.Resumed, LastBeforeGap: in.Lost},
		retryAt: in.Again, small: in.Small,
		owedDeletes: in.Owed, freedPods: in.Freed, loose: in.Loose, failed: in.Failed, boot: in.Boot,
		reportedPolicies: in.Told,
	}
	for name, s := range in.Spells {
		if m.spells == nil {
			m.spells = map[string]spell{}
		}
		m.spells[name] = spell{s.Healthy, s.Since, s.Open, s.Begun}
	}
	for _, f := range in.Free {
		m.freedVolumes = append(m.freedVolumes, freedVolume{f.Policy, f.Volume, f.Boot, f.Cleared})
	}
	return nil
}
