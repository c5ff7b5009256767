package storage_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/test/kit"
)

// longhorn is a State of the preset in which every kind was read, and is empty.
func longhorn(t testing.TB) *storage.State {
	t.Helper()
	p, ok := storage.PresetOf("longhorn")
	if !ok {
		t.Fatal("no preset longhorn")
	}
	return empty(t, p.Spec)
}

func empty(t testing.TB, spec storage.Spec) *storage.State {
	t.Helper()
	a, bad := storage.CompileAdapter("it", spec)
	if len(bad) > 0 {
		t.Fatalf("compiling: %v", bad)
	}
	s := storage.NewState(a)
	for _, k := range storage.Kinds {
		s.Replace(k, nil)
	}
	return s
}

// object makes one from YAML.
func object(t testing.TB, namespace, name, text string) *unstructured.Unstructured {
	t.Helper()
	var content map[string]any
	raw, err := yaml.YAMLToJSON([]byte(text))
	kit.Must(t, err)
	o := &unstructured.Unstructured{}
	kit.Must(t, json.Unmarshal(raw, &content))
	o.Object = content
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID("uid-" + o.GetUID() + "1")
	o.SetResourceVersion("7")
	return o
}

const lh = "longhorn-system"

func lhNode(t testing.TB, name, more string) *unstructured.Unstructured {
	return object(t, lh, name,
		`{spec: {evictionRequested: false, disks: {d1: {evictionRequested: false}, d2: {evictionRequested: false}}}, `+
			`status: {conditions: [{type: Ready, status: "True"}], diskStatus: {d1: {diskUUID: disk-1}, d2: `+
			`{diskUUID: disk-2}}}}`+more)
}

func lhVolume(t testing.TB, name, robustness string) *unstructured.Unstructured {
	return object(t, lh, name, "{status: {robustness: "+robustness+"}}")
}

// lhReplica is a healthy one that runs; change is YAML that replaces fields of spec.
func lhReplica(t testing.TB, name, volume, node string, change ...string) *unstructured.Unstructured {
	o := object(t, lh, name,
		`{spec: {volumeName: `+volume+`, nodeID: `+node+
			`, diskID: disk-1, desireState: running, evictionRequested: false, `+
			`healthyAt: "2026-01-01T00:00:00Z", failedAt: ""}, status: {currentState: running}}`)
	for _, c := range change {
		path, value, _ := strings.Cut(c, "=")
		var v any
		kit.Must(t, yaml.Unmarshal([]byte(value), &v))
		if value == "-" {
			unstructured.RemoveNestedField(o.Object, strings.Split(path, ".")...)
			continue
		}
		kit.Must(t, unstructured.SetNestedField(o.Object, v, strings.Split(path, ".")...))
	}
	return o
}

func TestLonghornNode(t *testing.T) {
	for _, c := range []struct {
		name, status   string
		known, healthy bool
		why            string
	}{
		{"ready", `conditions: [{type: Schedulable, status: "False"}, {type: Ready, status: "True"}]`, true, true, ""},
		{"down", `conditions: [{type: Ready, status: "False", reason: KubernetesNodeNotReady, message: "the node n1 ` +
			`not ready"}]`, true, false, "KubernetesNodeNotReady: the node n1 not ready"},
		{"down, and does not say why", `conditions: [{type: Ready, status: "False"}]`, true, false,
			"its object reports it as not healthy"},
		{"unknown word", `conditions: [{type: Ready, status: "Unknown"}]`, false, false,
			"node.healthy: no such key: Unknown"},
		{"in small letters", `conditions: [{type: Ready, status: "true"}]`, false, false,
			"node.healthy: no such key: true"},
		{"no condition Ready", `conditions: [{type: Schedulable, status: "True"}]`, false, false,
			"node.healthy: index out of bounds: 0"},
		{"no conditions", `region: x`, false, false, "node.healthy: no such key: conditions"},
		{"conditions that are null", `conditions: null`, false, false, "node.healthy: "},
		{"conditions that are text", `conditions: "True"`, false, false, "node.healthy: "},
		{"a status that is a bool", `conditions: [{type: Ready, status: true}]`, false, false,
			"node.healthy: no such key: true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := longhorn(t)
			s.Put(storage.Nodes, object(t, lh, "n1", "{status: {"+c.status+"}}"))
			h := s.NodeHealth("n1")
			if h.Known != c.known || h.Healthy != c.healthy || !strings.HasPrefix(h.Why, c.why) {
				t.Errorf("got %+v, want known %v, healthy %v, %q", h, c.known, c.healthy, c.why)
			}
		})
	}
}

func TestLonghornVolume(t *testing.T) {
	at := action.VolumeName{Driver: "driver.longhorn.io", Handle: "v1", PV: "pv-1", Namespace: "app", Claim: "data"}
	for _, c := range []struct {
		name, robustness string
		at               action.VolumeName
		replicas         int
		want             action.Health
	}{
		{"healthy", "healthy", at, 3, action.Health{Known: true, Healthy: true}},
		{"degraded, and serves", "degraded", at, 1, action.Health{Known: true, Healthy: true}},
		{"faulted", "faulted", at, 3, action.Health{Known: true, Why: "robustness is faulted"}},
		{"unknown, as Longhorn says of one on a dead node", "unknown", at, 3,
			action.Health{Why: "volume.healthy: no such key: unknown"}},
		{"not told yet", `""`, at, 3, action.Health{Why: "volume.healthy: no such key:"}},
		{"a number", "1", at, 3, action.Health{Why: "volume.healthy: no such key: 1"}},
		{"healthy without a replica", "healthy", at, 0, action.Health{Why: "it has no replica"}},
		{"faulted without a replica", "faulted", at, 0, action.Health{Known: true, Why: "robustness is faulted"}},
		{"another volume", "healthy", action.VolumeName{Driver: at.Driver, Handle: "v2", PV: "v1"}, 3,
			action.Health{Why: `no object describes volume "v2"`}},
		{"no handle", "healthy", action.VolumeName{Driver: at.Driver}, 3,
			action.Health{Why: `no object describes volume ""`}},
		{"another driver's", "healthy", action.VolumeName{Driver: "csi.example.net", Handle: "v1"}, 3,
			action.Health{Why: `driver "csi.example.net" does not belong to storage it`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := longhorn(t)
			s.Put(storage.Volumes, lhVolume(t, "v1", c.robustness))
			for i := range c.replicas {
				s.Put(storage.Replicas, lhReplica(t, fmt.Sprintf("v1-r%d", i), "v1", fmt.Sprintf("n%d", i)))
			}
			if diff := cmp.Diff(c.want, s.VolumeHealth(c.at)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestLonghornReplica(t *testing.T) {
	at := storage.Replica{
		Namespace: lh, Name: "r1", UID: "uid-1", ResourceVersion: "7", Node: "n1", Volume: "v1", Healthy: true,
		Running: true, Started: true,
	}
	for _, c := range []struct {
		name   string
		change []string
		node   func(*unstructured.Unstructured)
		want   func(*storage.Replica)
	}{
		{"healthy", nil, nil, func(*storage.Replica) {}},
		{"failed", []string{`spec.failedAt="2026-01-02T00:00:00Z"`}, nil,
			func(r *storage.Replica) { r.Healthy = false }},
		{"rebuilding: it was in sync never, or not yet again", []string{`spec.healthyAt=""`}, nil,
			func(r *storage.Replica) { r.Healthy, r.Started = false, false }},
		{"failed before it was ever in sync", []string{`spec.healthyAt=""`, `spec.failedAt="x"`}, nil,
			func(r *storage.Replica) { r.Healthy = false }},
		{"being deleted", []string{`metadata.deletionTimestamp="2026-01-02T00:00:00Z"`}, nil,
			func(r *storage.Replica) { r.Healthy = false }},
		{"stopped", []string{"spec.desireState=stopped", "status.currentState=stopped"}, nil,
			func(r *storage.Replica) { r.Running = false }},
		{"stopping", []string{"spec.desireState=stopped"}, nil, func(*storage.Replica) {}},
		{"to be started", []string{"status.currentState=stopped"}, nil, func(*storage.Replica) {}},
		{"on no node yet", []string{`spec.nodeID=""`}, nil, func(r *storage.Replica) { r.Node = "" }},
		{"eviction asked for by somebody", []string{"spec.evictionRequested=true"}, nil,
			func(r *storage.Replica) { r.Evicting = true }},
		{"by us", []string{"spec.evictionRequested=true", `metadata.annotations={forcefence.io/evicting: "true"}`}, nil,
			func(r *storage.Replica) { r.Evicting, r.Ours = true, true }},
		{"its node is to be emptied", nil, func(n *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(n.Object, true, "spec", "evictionRequested")
		}, func(r *storage.Replica) { r.Wanted = true }},
		{"its disk is", nil, func(n *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(n.Object, true, "spec", "disks", "d1", "evictionRequested")
		}, func(r *storage.Replica) { r.Wanted = true }},
		{"another disk is", nil, func(n *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(n.Object, true, "spec", "disks", "d2", "evictionRequested")
		}, func(*storage.Replica) {}},
		{"a disk of which nobody knows which it is", nil, func(n *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(n.Object, true, "spec", "disks", "d2", "evictionRequested")
			_ = unstructured.SetNestedField(n.Object, nil, "status", "diskStatus")
		}, func(r *storage.Replica) { r.Wanted, r.Unknown = true, "replica.wanted: no such key: d2" }},
		{"its node has gone", []string{"spec.nodeID=n9"}, nil, func(r *storage.Replica) {
			r.Node, r.Wanted, r.Unknown = "n9", true, "replica.wanted: no object describes this node"
		}},
		{"without healthyAt", []string{"spec.healthyAt=-"}, nil, func(r *storage.Replica) {
			r.Healthy, r.Unknown = false, "replica.healthy: no such key: healthyAt; replica.started: no such key: "+
				"healthyAt"
		}},
		{"a healthyAt that is a bool", []string{"spec.healthyAt=true"}, nil, func(r *storage.Replica) {
			r.Healthy, r.Unknown = false, "replica.healthy: no such overload; replica.started: no such overload"
		}},
		{"a failedAt that is a number", []string{"spec.failedAt=0"}, nil, func(r *storage.Replica) {
			r.Healthy, r.Unknown = false, "replica.healthy: no such overload"
		}},
		{"an eviction that is text", []string{`spec.evictionRequested="true"`}, nil, func(r *storage.Replica) {
			r.Healthy, r.Unknown = false, "replica.evicting: gives no bool"
		}},
		{"a volume that is a number", []string{"spec.volumeName=5"}, nil, func(r *storage.Replica) {
			r.Healthy, r.Volume, r.Unknown = false, "", "replica.volume: gives no string"
		}},
		{"a node that is a list", []string{"spec.nodeID=[n1]"}, nil, func(r *storage.Replica) {
			r.Healthy, r.Node, r.Wanted, r.Unknown = false, "", true, "replica.node: gives no string"
		}},
		{"a volume whose name moves a terminal's cursor", []string{`spec.volumeName="v1\e[2J"`}, nil,
			func(r *storage.Replica) {
				r.Healthy, r.Volume, r.Unknown = false, "", "replica.volume: gives a text that is not a valid name"
			}},
		{"a volume whose name is as long as may be", []string{"spec.volumeName=" + strings.Repeat("v", 1024)}, nil,
			func(r *storage.Replica) {
				r.Volume = strings.Repeat("v", 1024)
			}},
		{"a volume whose name is longer", []string{"spec.volumeName=" + strings.Repeat("v", 1025)}, nil,
			func(r *storage.Replica) {
				r.Healthy, r.Volume, r.Unknown = false, "", "replica.volume: gives a text that is not a valid name"
			}},
		{"no status", []string{"status=-"}, nil, func(r *storage.Replica) {}}, // it is wanted to run, and so it does
		{"no status, and to be stopped", []string{"status=-", "spec.desireState=stopped"}, nil,
			func(r *storage.Replica) {
				r.Healthy, r.Unknown = false, "replica.running: no such key: status"
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, n := longhorn(t), lhNode(t, "n1", "")
			if c.node != nil {
				c.node(n)
			}
			s.Put(storage.Nodes, n)
			s.Put(storage.Replicas, lhReplica(t, "r1", "v1", "n1", c.change...))
			want := at
			c.want(&want)
			on := want.Node
			if want.Node == "" && want.Unknown != "" {
				on = "n7" // it may be on any
			}
			got := s.ReplicasOn(on)
			if diff := cmp.Diff([]storage.Replica{want}, got); diff != "" {
				t.Errorf("ReplicasOn(%s): -want +got:\n%s", on, diff)
			}
			if of := s.ReplicasOf(want.Volume); len(of) != 1 || of[0].Name != "r1" {
				t.Errorf("ReplicasOf(%q): got %v, want r1", want.Volume, of)
			}
		})
	}
}

// crds returns the schemas of Longhorn's kinds in a file of CustomResourceDefinitions.
func crds(t *testing.T, file string) map[storage.Kind]*storage.Schema {
	t.Helper()
	raw, err := os.ReadFile(file)
	kit.Must(t, err)
	// a Helm chart's
	lines := slices.DeleteFunc(strings.Split(string(raw), "\n"),
		func(l string) bool { return strings.Contains(l, "{{") })
	out := map[storage.Kind]*storage.Schema{}
	for _, doc := range strings.Split(strings.Join(lines, "\n"), "\n---\n") {
		var crd struct {
			Spec struct {
				Names    struct{ Plural string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema json.RawMessage }
				}
			}
		}
		kit.Must(t, yaml.Unmarshal([]byte(doc), &crd))
		kind := map[string]storage.Kind{"nodes": storage.Nodes, "volumes": storage.Volumes,
			"replicas": storage.Replicas}
		if k, ok := kind[crd.Spec.Names.Plural]; ok && crd.Spec.Versions[0].Name == "v1beta2" {
			s, err := storage.ParseSchema(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
			kit.Must(t, err)
			// An API server adds what every object has.
			s.Properties["metadata"] = storage.Schema{Type: "object"}
			out[k] = s
		}
	}
	if len(out) != 3 {
		t.Fatalf("%s: got %d of Longhorn's three kinds", file, len(out))
	}
	return out
}

// longhornCRDs names a file of Longhorn's own definitions, which are not ours to carry: the preset is held against them
// where it is set.
const longhornCRDs = "FORCEFENCE_LONGHORN_CRDS"

func TestLonghornSchema(t *testing.T) {
	p, _ := storage.PresetOf("longhorn")
	files := map[string]string{"ours": filepath.Join("testdata", "longhorn.yaml")}
	if file := os.Getenv(longhornCRDs); file != "" {
		files["real"] = file
	}
	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			schemas := crds(t, file)
			a, bad := storage.CompileAdapter("longhorn", p.Spec)
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			if bad := a.CheckSchemas(schemas); len(bad) > 0 {
				t.Errorf("the preset against the definitions: got %v, want nothing", bad)
			}
			for _, c := range []struct {
				name   string
				change func(*storage.Spec)
				want   string
			}{
				{"a field that is not there",
					func(s *storage.Spec) { s.Volume.Healthy = `object.status.robustnes == "healthy"` },
					"volume.healthy: at character 14: undefined field 'robustnes' (by the cluster's schema)"},
				{"of an element of a list",
					func(s *storage.Spec) { s.Node.Healthy = `object.status.conditions.exists(c, c.kind == "Ready")` },
					"node.healthy: at character 37: undefined field 'kind' (by the cluster's schema)"},
				{"of a map's value", func(s *storage.Spec) {
					s.Replica.Wanted = `node.spec.disks.exists(d, node.spec.disks[d].evict)`
				}, "replica.wanted: at character 45: undefined field 'evict' (by the cluster's schema)"},
				{"of another type than is wanted",
					func(s *storage.Spec) { s.Replica.Evicting = `object.spec.failedAt` },
					"replica.evicting: gives string, must give bool (by the cluster's schema)"},
				{"asked for with has",
					func(s *storage.Spec) { s.Replica.Node = `has(object.spec.node) ? object.spec.node : ""` },
					"replica.node: at character 4: undefined field 'node'"},
				{"compared with another type",
					func(s *storage.Spec) { s.Replica.Healthy = `object.spec.healthyAt == true` },
					"replica.healthy: at character 23: found no matching overload for '_==_'"},
			} {
				t.Run(c.name, func(t *testing.T) {
					spec := p.Spec
					c.change(&spec)
					a, bad := storage.CompileAdapter("it", spec)
					if len(bad) > 0 {
						t.Fatalf("without a schema: got %v, want it to compile", bad)
					}
					if bad := a.CheckSchemas(schemas); len(bad) != 1 || !strings.HasPrefix(bad[0].String(), c.want) {
						t.Errorf("got %v, want %s", bad, c.want)
					}
					if bad := a.CheckSchemas(nil); len(bad) > 0 {
						t.Errorf("where no schema is known: got %v, want nothing", bad)
					}
				})
			}
		})
	}
}
