package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// Every preset compiles, once it has drivers, and says whose word it takes.
func TestPresets(t *testing.T) {
	for _, p := range storage.Presets {
		if len(p.Spec.Drivers) == 0 {
			p.Spec.Drivers = []string{"csi.example.net"}
		}
		_, bad := storage.CompileAdapter(p.Name, p.Spec)
		if !p.API && len(bad) > 0 || p.Trusts == "" {
			t.Errorf("%s: got %v, trusts %q", p.Name, bad, p.Trusts)
		}
	}
	if _, ok := storage.PresetOf("none"); ok {
		t.Error("a preset that does not exist was found")
	}
}

// noSource is never read.
type noSource struct{ storage.Source }

func TestCompileBad(t *testing.T) {
	preset, _ := storage.PresetOf("longhorn")
	for _, c := range []struct {
		name   string
		change func(*storage.Spec)
		want   []string // prefixes
	}{
		{"the preset itself", func(*storage.Spec) {}, nil},
		{"nothing at all", func(s *storage.Spec) { *s = storage.Spec{} }, []string{"drivers: missing"}},
		{"nothing told", func(s *storage.Spec) { *s = storage.Spec{Drivers: []string{"a"}} },
			[]string{": describes nothing"}},
		{"a driver twice", func(s *storage.Spec) { s.Drivers = []string{"a", "a"} }, []string{"drivers[1]: "}},
		{"an empty driver", func(s *storage.Spec) { s.Drivers = []string{""} }, []string{"drivers[0]: "}},
		{"a namespace that cannot be", func(s *storage.Spec) { s.Namespace = "Longhorn" }, []string{"namespace: "}},
		{"a resource without a version", func(s *storage.Spec) { s.Node.Resource = "nodes" },
			[]string{"node.resource: want plural.version.group"}},
		{"a resource as a kind", func(s *storage.Spec) { s.Volume.Resource = "Volume.v1beta2.longhorn.io" },
			[]string{"volume.resource: want plural"}},
		{"a group that cannot be", func(s *storage.Spec) { s.Replica.Resource = "replicas.v1.longhorn_io" },
			[]string{"replica.resource: want plural"}},
		{"no expression", func(s *storage.Spec) { s.Volume.Healthy = "" },
			[]string{"volume.healthy: missing: a CEL expression of type bool"}},
		{"expressions without a resource", func(s *storage.Spec) { s.Volume.Resource = "" }, []string{
			"volume.key: has no effect without volume.resource", "volume.healthy: has no effect",
			"volume.why: has no effect",
		}},
		{"does not parse", func(s *storage.Spec) { s.Volume.Healthy = "object.status ==" },
			[]string{"volume.healthy: not a CEL expression: at character "}},
		{"an unknown variable", func(s *storage.Spec) { s.Volume.Healthy = "volume.status.ok" }, []string{
			"volume.healthy: not a CEL expression: at character 1: undeclared reference to 'volume'",
		}},
		{"node where there is none", func(s *storage.Spec) { s.Replica.Healthy = "node.spec.ok" }, []string{
			"replica.healthy: not a CEL expression: at character 1: undeclared reference to 'node'",
		}},
		{"node without nodes", func(s *storage.Spec) { s.Node = storage.NodeSpec{} },
			[]string{"replica.wanted: reads `node`"}},
		{"text for a bool", func(s *storage.Spec) { s.Volume.Healthy = `"true"` },
			[]string{"volume.healthy: gives string, must give bool"}},
		{"a bool for text", func(s *storage.Spec) { s.Volume.Key = `has(object.x)` },
			[]string{"volume.key: gives bool, must give string"}},
		{"a list for a bool", func(s *storage.Spec) { s.Volume.Healthy = `[object.x]` },
			[]string{"volume.healthy: gives list(dyn), must give bool"}},
		{"an optional for a bool", func(s *storage.Spec) { s.Volume.Healthy = `object.?x` },
			[]string{"volume.healthy: gives optional_type(dyn), must give bool"}},
		{"a pattern that cannot be", func(s *storage.Spec) { s.Volume.Healthy = `object.x.matches("(")` },
			[]string{"volume.healthy: not a CEL expression: "}},
		{"a list in a list in a list", func(s *storage.Spec) {
			s.Volume.Healthy = `object.a.all(x, object.b.all(y, object.c.all(z, x + y == z)))`
		}, []string{"volume.healthy: may cost too much ("}},
		{"a list in a list", func(s *storage.Spec) { s.Volume.Healthy = `object.a.all(x, object.b.all(y, x != y))` },
			nil},
		{"very long", func(s *storage.Spec) { s.Volume.Healthy = strings.Repeat("true && ", 600) + "true" },
			[]string{"volume.healthy: has 4804 bytes"}},
		{"very deep", func(s *storage.Spec) {
			s.Volume.Healthy = strings.Repeat("(", 1000) + "true" + strings.Repeat(")", 1000)
		}, []string{"volume.healthy: "}},
		{"what volumes are found by", func(s *storage.Spec) { s.Volume.Find = "name" },
			[]string{"volume.find: must be handle, pv or claim"}},
		{"pods without a namespace", func(s *storage.Spec) { s.Namespace = "" },
			[]string{"pods: selects pods in all namespaces"}},
		{"pods that no selector is", func(s *storage.Spec) { s.Pods = "a in" }, []string{"pods: not a label selector"}},
		{"eviction that cannot be taken back", func(s *storage.Spec) { s.Replica.Keep = "" },
			[]string{"replica.evict: needs both evict"}},
		{"eviction that is not seen", func(s *storage.Spec) { s.Replica.Evicting = "" },
			[]string{"replica.evicting: missing"}},
		{"eviction that is no JSON", func(s *storage.Spec) { s.Replica.Evict = "spec.evictionRequested" },
			[]string{"replica.evict: must be a JSON merge patch"}},
		{"an empty patch", func(s *storage.Spec) { s.Replica.Keep = "{}" },
			[]string{"replica.keep: must be a JSON merge patch"}},
		{"a patch of metadata", func(s *storage.Spec) { s.Replica.Keep = `{"metadata": {"finalizers": null}}` },
			[]string{"replica.keep: must not patch metadata"}},
		{"everything at once", func(s *storage.Spec) { s.Drivers, s.Node.Name, s.Volume.Healthy = nil, "5", "nope" },
			[]string{
				"drivers: ", "node.name: gives int", "volume.healthy: not a CEL",
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := preset.Spec
			c.change(&spec)
			a, bad := storage.CompileAdapter("it", spec)
			if (a == nil) != (len(bad) > 0) {
				t.Errorf("adapter %v beside problems %v", a, bad)
			}
			same := slices.EqualFunc(bad, c.want,
				func(p storage.Problem, want string) bool { return strings.HasPrefix(p.String(), want) })
			if !same {
				t.Errorf("got %v, want %v", bad, c.want)
			}
		})
	}
}

// An object of any size costs what it may cost, and then is Unknown.
func TestCost(t *testing.T) {
	s := empty(t, storage.Spec{Drivers: []string{"d"}, Volume: storage.VolumeSpec{
		Resource: "volumes.v1.example.net", Find: storage.ByHandle, Key: "object.metadata.name",
		Healthy: `object.l.all(x, object.l.exists(y, x == y))`,
	}})
	for n, known := range map[int]bool{10: true, 400: false} {
		list := make([]any, n)
		for i := range list {
			list[i] = int64(i)
		}
		o := object(t, "", fmt.Sprint("v", n), "{}")
		o.Object["l"] = list
		s.Put(storage.Volumes, o)
		h := s.VolumeHealth(action.VolumeName{Driver: "d", Handle: o.GetName()})
		if h.Known != known || !known && !strings.Contains(h.Why, "cost limit") {
			t.Errorf("a list of %d against itself: got %+v, want known %v", n, h, known)
		}
	}
}

// What an object says is shown, but not as it likes.
func TestForeignText(t *testing.T) {
	s := empty(t, storage.Spec{Drivers: []string{"d"}, Node: storage.NodeSpec{
		Resource: "nodes.v1.example.net", Name: "object.metadata.name", Healthy: `object.ok`, Why: "object.why",
	}})
	o := object(t, "", "n", "{ok: false}")
	o.Object["why"] = "two\nlines\x1b[31m " + strings.Repeat("long ", 1000)
	s.Put(storage.Nodes, o)
	if why := s.NodeHealth("n").Why; len(why) > 210 || strings.ContainsAny(why, "\n\x1b") ||
		!strings.HasPrefix(why, "two lines [31m long") {
		t.Errorf("got %q", why)
	}
	o.Object["ok"] = strings.Repeat("x\n", 1000)
	s.Put(storage.Nodes, o)
	if diff := cmp.Diff(action.Health{Why: "node.healthy: gives no bool"}, s.NodeHealth("n")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Whatever is written in place of an expression, it compiles or is refused, and what compiles never makes an object
// healthy by an error.
func FuzzExpression(f *testing.F) {
	p, _ := storage.PresetOf("longhorn")
	for _, text := range []string{
		p.Spec.Volume.Healthy, p.Spec.Replica.Wanted, "object.?a.orValue(false)", `[1,2].all(x, x/0 > 1)`,
		"object == object", "dyn(1)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec := p.Spec
		spec.Volume.Healthy, spec.Replica = text, storage.ReplicaSpec{}
		a, bad := storage.CompileAdapter("it", spec)
		if len(bad) > 0 {
			return
		}
		s := storage.NewState(a)
		s.Replace(storage.Volumes, nil)
		s.Put(storage.Volumes, lhVolume(t, "v", "healthy"))
		h := s.VolumeHealth(action.VolumeName{Driver: "driver.longhorn.io", Handle: "v"})
		if h.Healthy && !h.Known || !h.Known && h.Why == "" {
			t.Errorf("%q: got %+v", text, h)
		}
	})
}

// The cluster controls a schema: the check ends for any content.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(
		`{"components":{"schemas":{"a":{"type":"object","properties":{"status":{"$ref":"#/components/schemas/a"}},` +
			`"x-kubernetes-group-version-kind":[{"group":"g","version":"v","kind":"K"}]}}}}`))
	f.Add([]byte(
		`{"components":{"schemas":{"a":{"$ref":"#/components/schemas/a",` +
			`"x-kubernetes-group-version-kind":[{"group":"g","version":"v","kind":"K"}]}}}}`))
	f.Add([]byte(
		`{"components":{"schemas":{"a":{"type":"object","additionalProperties":true,` +
			`"x-kubernetes-group-version-kind":[{"group":"g","version":"v","kind":"K"}]}}}}`))
	p, _ := storage.PresetOf("longhorn")
	a, _ := storage.CompileAdapter("it", p.Spec)
	f.Fuzz(func(t *testing.T, doc []byte) {
		s, err := storage.FindSchema(doc, "g", "v", "K")
		if err != nil || s == nil {
			return
		}
		schemas := map[storage.Kind]*storage.Schema{storage.Nodes: s, storage.Volumes: s, storage.Replicas: s}
		bad := a.CheckSchemas(schemas)
		if again := a.CheckSchemas(schemas); !slices.Equal(bad, again) {
			t.Errorf("got %q, then %q for the same schema", bad, again)
		}
		for _, p := range bad {
			if p.Text == "" || strings.ContainsAny(p.Text, "\n\x1b") {
				t.Errorf("problem of %q: got %q, want one line of text", p.Path, p.Text)
			}
		}
	})
}
