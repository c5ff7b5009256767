package config

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/cmd/internal/storageapi"
	"github.com/forcefence/forcefence/providers/rest"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// Storage is one item of storage: a storage system, by its resources and what they report. Policies and drains name it.
type Storage struct {
	Name         string             `yaml:"name"`   // unique, a DNS label
	Preset       string             `yaml:"preset"` // a known system with values for missing keys; "": none
	REST         *rest.ReaderConfig `yaml:"rest"`   // the system's own API; without it the cluster's resources are read
	storage.Spec `yaml:",inline"`   // what the item does not describe is unknown

	adapter *storage.Adapter
}

// StorageAdapter returns the item of storage of that name; nil if there is none, or it has faults.
func (c *Config) StorageAdapter(name string) *storage.Adapter {
	if i := slices.Index(c.storageNames(), name); i >= 0 {
		return c.Storage[i].adapter
	}
	return nil
}

func (c *Config) storageNames() []string {
	return mapList(c.Storage, func(s Storage) string { return s.Name })
}

// FollowedStorage returns the storage systems that policies and drain guards in force read.
func (c *Config) FollowedStorage() []*storage.Adapter {
	var names []string
	for _, g := range c.DrainGuards() {
		if g.Adapter != nil {
			names = append(names, g.Adapter.Name)
		}
	}
	for _, p := range c.Policies {
		for _, rule := range p.rules {
			names = append(names, rule.Storage)
		}
	}
	var out []*storage.Adapter
	for _, s := range c.Storage {
		if slices.Contains(names, s.Name) {
			out = append(out, s.adapter)
		}
	}
	return out
}

// EvictableStorage returns the storage systems whose replicas a drain guard may evict from a node, guarded or not.
func (c *Config) EvictableStorage() []*storage.Adapter {
	var out []*storage.Adapter
	for _, s := range c.Storage {
		if s.adapter == nil || slices.Contains(s.adapter.Spec.Drivers, longhornDriver) {
			continue
		}
		if _, can := s.adapter.EvictionPatch(storage.Replica{}, true); can {
			out = append(out, s.adapter)
		}
	}
	return out
}

// checkStorage checks one item and compiles its expressions.
func (r *reader) checkStorage(c *Config, i int) {
	s, path := &c.Storage[i], item("storage", i)
	r.checkName("storage", i, c.storageNames())
	preset, known := storage.PresetOf(s.Preset)
	if r.given(path + ".preset") {
		oneOf(r, path+".preset", s.Preset, mapList(storage.Presets, func(p storage.Preset) string { return p.Name })...)
		if !known {
			return
		}
	}
	spec, api := preset.Spec, (*storageapi.Description)(nil)
	switch {
	case s.REST == nil && preset.API:
		r.report(path, "rest is missing: write the address of %s's API, and the user", s.Preset)
		return
	case s.REST != nil && known && !preset.API:
		r.report(path+".rest", "preset %s reads resources of the cluster: leave rest out", s.Preset)
		return
	case s.REST != nil:
		if api = r.checkREST(s, path+".rest"); api == nil {
			return
		}
		spec = api.Spec
	}
	r.overlay(reflect.ValueOf(&spec).Elem(), reflect.ValueOf(s.Spec), path)
	var from storage.Source
	if api != nil {
		source, bad := api.NewSource(spec, *s.REST, s.Name)
		for _, p := range bad {
			r.report(join(path, p.Path), "%s", p.Text)
		}
		if source == nil {
			return
		}
		from = source
	}
	a, bad := storage.CompileWithSource(s.Name, spec, from)
	for _, p := range bad {
		r.report(join(path, p.Path), "%s", p.Text)
	}
	for _, e := range c.Storage[:i] {
		for j, d := range spec.Drivers {
			r.reportIf(e.adapter != nil && slices.Contains(e.adapter.Spec.Drivers, d), item(path+".drivers", j),
				"%s is already a driver of storage %s: only one may report a volume", d, e.Name)
		}
	}
	s.adapter = a
}

// overlay replaces a preset's values by those that the file gives.
func (r *reader) overlay(to, from reflect.Value, path string) {
	for i := range to.NumField() {
		name, _, _ := strings.Cut(to.Type().Field(i).Tag.Get("yaml"), ",")
		at := join(path, name)
		switch {
		case !r.given(at):
		case to.Field(i).Kind() == reflect.Struct:
			r.overlay(to.Field(i), from.Field(i), at)
		default:
			to.Field(i).Set(from.Field(i))
		}
	}
}

// checkREST checks an item's rest, and returns the description of its API; nil if that has faults, or its file does not
// exist.
func (r *reader) checkREST(s *Storage, at string) *storageapi.Description {
	text, err := readReading(s)
	faults := len(r.errs)
	var d *storageapi.Description
	switch {
	case r.skipFiles && errors.Is(err, fs.ErrNotExist):
	case err != nil:
		r.report(at+".description", "%s", oneLine(err.Error()))
	default:
		var bad rest.Faults
		if d, bad = storageapi.Parse(text); d == nil {
			r.report(at+".description", "line %v (the first of %d faults; forcefence check-config --description "+
				"shows all)", bad[0], len(bad))
		}
	}
	var api *rest.API
	if d != nil {
		api = d.API
	}
	r.reportSettings(s.REST.Validate(api), reflect.TypeFor[rest.ReaderConfig](), at)
	if len(r.errs) > faults {
		return nil
	}
	return d
}

// readReading returns the description of an item's API.
func readReading(s *Storage) ([]byte, error) {
	switch text, file := rest.FindReading(s.Preset), s.REST.Description; {
	case text != nil && file != "":
		return nil, fmt.Errorf("has no effect: the preset %s has one", s.Preset)
	case text != nil:
		return text, nil
	case file == "":
		return nil, errors.New("missing: the file of a description")
	default:
		return rest.ReadDescription(file)
	}
}
