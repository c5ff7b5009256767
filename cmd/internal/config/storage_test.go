package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// What an item says wins over its preset, key by key, and the rest of the preset stays. No system is followed that
// nothing asks.
func TestStorage(t *testing.T) {
	cfg, err := config.Parse("x.yaml", []byte(`
storage:
- name: longhorn
  preset: longhorn
  namespace: storage
  volume: {healthy: object.status.robustness == "healthy"}
- name: own
  drivers: [csi.example.net]
  node: {resource: nodes.v1.example.net, name: object.metadata.name, healthy: object.status.ready}
`), configtest.Types())
	if err != nil {
		t.Fatal(err)
	}
	want, _ := storage.PresetOf("longhorn")
	want.Spec.Namespace, want.Spec.Volume.Healthy = "storage", `object.status.robustness == "healthy"`
	if diff := cmp.Diff(want.Spec, cfg.StorageAdapter("longhorn").Spec); diff != "" {
		t.Errorf("over the preset: -want +got:\n%s", diff)
	}
	if a := cfg.StorageAdapter("own"); a == nil || a.Name != "own" {
		t.Errorf("one of one's own: got %+v", a)
	}
	if a := cfg.StorageAdapter("none"); a != nil {
		t.Errorf("one that is not there: got %+v", a)
	}
	if asked := cfg.FollowedStorage(); len(asked) > 0 {
		t.Errorf("nothing asks a system: got %d followed", len(asked))
	}
}

// Longhorn's replicas are Longhorn's to move, though its preset says how they would be asked to leave: no drain guard
// takes that back.
func TestEvictable(t *testing.T) {
	cfg, err := config.Parse("x.yaml", []byte(`
storage:
- {name: longhorn, preset: longhorn}
- name: own
  namespace: disks
  drivers: [csi.example.net]
  replica:
    resource: replicas.v1.example.net
    node: object.spec.node
    volume: object.spec.volume
    healthy: object.status.healthy
    evicting: object.spec.evict
    evict: '{"spec": {"evict": true}}'
    keep: '{"spec": {"evict": false}}'
- name: fixed
  namespace: disks
  drivers: [csi.example.com]
  replica:
    resource: replicas.v1.example.com
    node: object.spec.node
    volume: object.spec.volume
    healthy: object.status.healthy
`), configtest.Types())
	if err != nil {
		t.Fatal(err)
	}
	if _, can := cfg.StorageAdapter("longhorn").EvictionPatch(storage.Replica{}, true); !can {
		t.Error("Longhorn's preset does not say how a replica's eviction is asked for: this test shows nothing")
	}
	var got []string
	for _, a := range cfg.EvictableStorage() {
		got = append(got, a.Name)
	}
	if want := []string{"own"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The storage systems of the example are valid. docs/storage.md has every preset, with whose word it
// takes.
func TestStorageExample(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	example, err := os.ReadFile(filepath.Join(root, "deploy", "examples", "config-storage.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse("config-storage.yaml", example, configtest.Types(), config.SkipFiles())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := storage.NewState(cfg.StorageAdapter("example")).EvictionPatch(storage.Replica{}, true); !ok {
		t.Error("the example does not say how a replica's eviction is asked for")
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "storage.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range storage.Presets {
		if !strings.Contains(string(page), "| `"+p.Name+"` | "+p.Trusts+" |") {
			t.Errorf("the page does not say whom %s trusts: %s", p.Name, p.Trusts)
		}
	}
}
