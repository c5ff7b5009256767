// Package storageapi joins two descriptions of a storage system: how its own API is read (providers/rest), and what the
// answers mean (taint/features/storage). It promises that a Description's cases have the results that they want.
package storageapi

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/rest"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// Description describes a storage system by its API. It is immutable and safe for concurrent use.
type Description struct {
	API  *rest.API
	Spec storage.Spec // what the answers mean; empty: the configuration says it

	text    []byte
	adapter *storage.Adapter // of the Spec; nil: it is empty
}

// Parse reads a description, checks it, and runs its cases. It returns all faults, and nil then.
func Parse(text []byte) (*Description, rest.Faults) {
	api, spec, bad := rest.ParseReading[storage.Spec](text)
	if api == nil {
		return nil, bad
	}
	d := &Description{API: api, text: text}
	if spec == nil {
		return d, nil
	}
	d.Spec = *spec
	source, problems := d.NewSource(d.Spec, rest.ReaderConfig{}, "")
	adapter, more := storage.CompileWithSource("described", d.Spec, source)
	for _, p := range append(problems, more...) {
		bad = append(bad, api.FaultAt(strings.TrimSuffix("storage."+p.Path, "."), p.Text))
	}
	if len(bad) > 0 {
		return nil, bad
	}
	d.adapter = adapter
	if _, bad = d.checkCases(false); len(bad) > 0 {
		return nil, bad
	}
	return d, nil
}

// CheckCases reads a description, runs its cases, and changes one thing of a case at a time. No change that matters may
// give a node or a volume a health that permits a policy to act. It returns what is wrong.
func CheckCases(text []byte) (rest.Report, rest.Faults) {
	d, bad := Parse(text)
	switch {
	case d == nil:
		return rest.Report{}, bad
	case d.adapter == nil:
		return rest.Report{}, rest.Faults{d.API.FaultAt("storage", "missing: the drivers, and what the answers mean "+
			"for node and volume")}
	}
	return d.checkCases(true)
}

// permits are the words that permit a policy to act. It ends pods of an unhealthy node whose volumes are healthy, and a
// node that was healthy in between is looked at again.
var permits = map[string][]string{
	storage.Nodes.String(): {healthy, unhealthy}, storage.Volumes.String(): {healthy},
}

const healthy, unhealthy = "healthy", "unhealthy"

func (d *Description) checkCases(mutate bool) (rest.Report, rest.Faults) {
	lists, _ := d.compileLists(d.Spec) // Parse has reported the problems
	in := rest.Interpreter{Lists: lists, Permits: map[string][]string{}, Interpret: d.interpret}
	for list := range lists {
		in.Permits[list] = permits[list]
	}
	return d.API.CheckCases(in, mutate)
}

// interpret implements rest.Interpreter.
func (d *Description) interpret(objects map[string][]any) (wordOf func(list, name string) string, ok bool) {
	s := storage.NewState(d.adapter)
	s.ReplaceAll(objectsOf(objects))
	wordOf = func(list, name string) string {
		health := s.NodeHealth(name)
		if list == storage.Volumes.String() {
			health = s.VolumeHealth(d.volumeOf(name))
		}
		switch {
		case !health.Known:
			return rest.Unread
		case health.Healthy:
			return healthy
		}
		return unhealthy
	}
	return wordOf, s.MissingReason() == ""
}

// volumeOf returns a volume that has the name by which the Spec finds volumes.
func (d *Description) volumeOf(name string) action.VolumeName {
	namespace, claim, _ := strings.Cut(name, "/")
	return action.VolumeName{Driver: d.Spec.Drivers[0], Handle: name, PV: name, Namespace: namespace, Claim: claim}
}

// compileLists compiles the expressions of a Spec's lists of objects.
func (d *Description) compileLists(spec storage.Spec) (out map[string]rest.Listing, bad []storage.Problem) {
	out = map[string]rest.Listing{}
	for kind, text := range resourcesOf(spec) {
		list, err := d.API.CompileList(text)
		if err != nil {
			bad = append(bad, storage.Problem{Path: kind + ".resource", Text: err.Error()})
		}
		out[kind] = list
	}
	slices.SortFunc(bad, func(a, b storage.Problem) int { return strings.Compare(a.Path, b.Path) })
	return out, bad
}

func resourcesOf(spec storage.Spec) map[string]string {
	out := map[string]string{}
	for kind, text := range map[storage.Kind]string{
		storage.Nodes: spec.Node.Resource, storage.Volumes: spec.Volume.Resource,
	} {
		if text != "" {
			out[kind.String()] = text
		}
	}
	return out
}

func objectsOf(all map[string][]any) storage.Objects {
	return storage.Objects{
		storage.Nodes: all[storage.Nodes.String()], storage.Volumes: all[storage.Volumes.String()],
	}
}

// Source reads a storage system's own API. It implements storage.Source.
type Source struct {
	*rest.Reader
	rest.ReaderConfig
	text  []byte            // of the description
	lists map[string]string // the expressions of the objects, by kind
}

// NewSource returns a Source of the objects that a Spec names. It contacts nothing.
func (d *Description) NewSource(spec storage.Spec, c rest.ReaderConfig, name string) (*Source, []storage.Problem) {
	lists, bad := d.compileLists(spec)
	if len(bad) > 0 {
		return nil, bad
	}
	o := providers.Options{Name: name, Agent: version.UserAgent("forcefence")}
	return &Source{d.API.NewReader(c, lists, o), c, d.text, resourcesOf(spec)}, nil
}

// Read implements storage.Source.
func (s *Source) Read(ctx context.Context) (storage.Objects, error) {
	all, err := s.Reader.Read(ctx)
	if err != nil {
		return nil, err
	}
	return objectsOf(all), nil
}

// Equals implements storage.Source.
func (s *Source) Equals(other storage.Source) bool {
	o, ok := other.(*Source)
	return ok && reflect.DeepEqual(s.ReaderConfig, o.ReaderConfig) && bytes.Equal(s.text, o.text) &&
		reflect.DeepEqual(s.lists, o.lists)
}
