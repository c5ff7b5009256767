package storage_test

import (
	"slices"
	"testing"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// ofSource returns a State of a system that an API describes. Volumes are grouped by their names.
func ofSource(t *testing.T) *storage.State {
	t.Helper()
	a, bad := storage.CompileWithSource("it", storage.Spec{
		Drivers: []string{"csi"},
		Node:    storage.NodeSpec{Resource: "nodes", Name: "object.name", Healthy: "object.ok"},
		Volume: storage.VolumeSpec{
			Resource: "volumes", Group: "object.name", Find: storage.ByHandle, Key: "object[0].name",
			Healthy: "object.all(v, v.ok)",
		},
	}, noSource{})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	return storage.NewState(a)
}

// entity is an object of an API.
func entity(name, ok any) any { return map[string]any{"name": name, "ok": ok} }

var (
	well    = action.Health{Known: true, Healthy: true}
	sick    = action.Health{Known: true, Why: "its object reports it as not healthy"}
	nothing = action.Health{}
)

// What an API returns replaces what it returned before. Nothing is known of what it names twice, or cannot be named.
func TestReplaceAll(t *testing.T) {
	s := ofSource(t)
	for _, step := range []struct {
		name    string
		nodes   []any
		volumes []any
		changed []string
		n1, n2  action.Health // without the reason, if unknown
		v1      action.Health
	}{
		{"first", []any{entity("n1", true), entity("n2", false)}, []any{entity("v1", true), entity("v1", true)},
			[]string{"n1", "n2"}, well, sick, well},
		{"in another order", []any{entity("n2", false), entity("n1", true)}, []any{entity("v1", true), entity("v2", true)},
			nil, well, sick, well},
		{"a part of a volume is not healthy", []any{entity("n2", false), entity("n1", true)},
			[]any{entity("v1", true), entity("v1", false)}, nil, well, sick, sick},
		{"a node twice", []any{entity("n1", true), entity("n1", true), entity("n2", false)}, []any{entity("v1", true)},
			[]string{"n1"}, nothing, sick, well},
		{"once again", []any{entity("n1", true), entity("n2", false)}, []any{entity("v1", true)}, []string{"n1"}, well, sick, well},
		{"gone", []any{entity("n1", true)}, nil, []string{"n2"}, well, nothing, nothing},
		{"values of other kinds", []any{entity("n1", true), "n2", nil, 1.0, []any{}, entity(nil, false), entity("n2", "false")},
			[]any{entity("v1", "true")}, []string{"n2"}, well, nothing, nothing},
		{"a volume without a name", []any{entity("n1", true)}, []any{entity("v1", true), entity(1.0, true)}, []string{"n2"},
			well, nothing, nothing},
		{"a name that looks like the second", []any{entity("n1 (2)", false), entity("n1", true), entity("n1", true)}, nil,
			[]string{"n1", "n1 (2)"}, nothing, nothing, nothing},
	} {
		changed := s.ReplaceAll(storage.Objects{storage.Nodes: step.nodes, storage.Volumes: step.volumes})
		if !slices.Equal(changed, step.changed) {
			t.Errorf("%s: changed: got %q, want %q", step.name, changed, step.changed)
		}
		for what, pair := range map[string][2]action.Health{
			"n1": {s.NodeHealth("n1"), step.n1}, "n2": {s.NodeHealth("n2"), step.n2},
			"v1": {s.VolumeHealth(action.VolumeName{Driver: "csi", Handle: "v1"}), step.v1},
		} {
			got, want := pair[0], pair[1]
			if got.Known != want.Known || got.Healthy != want.Healthy || got.Known && got.Why != want.Why {
				t.Errorf("%s: %s: got %+v, want %+v", step.name, what, got, want)
			}
		}
	}
}
