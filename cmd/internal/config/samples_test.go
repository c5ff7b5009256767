package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/providers/providertest/plug"
)

// samples finds configurations. Another test holds Kubernetes' objects.
var samples = regexp.MustCompile("(?s)```yaml(?: config[^\n]*| test=cmd/internal/config.TestSamples)?\n(.*?)```")

// Each type has a README with a valid sample of its configuration, and is in an example.
func TestSamples(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	example := ""
	for _, file := range []string{"config.example.yaml", "deploy/examples/config-devices.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		example += string(text)
	}
	types := append(providers.Registry{plug.Type()}, all.Types()...)
	for _, ty := range types {
		if ty.Name != "plug" && !strings.Contains(example, "  "+ty.Name+":") {
			t.Errorf("%s is in no example", ty.Name)
		}
		file := all.ReadmePath(ty)
		readme, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Error(err)
			continue
		}
		found := 0
		for _, sample := range samples.FindAllStringSubmatch(string(readme), -1) {
			cfg, err := config.Parse(file, []byte(sample[1]), types, config.SkipFiles())
			if err != nil {
				t.Error(err)
				continue
			}
			for _, p := range cfg.Providers {
				if p.Type == ty.Name {
					found++
				}
			}
		}
		if found == 0 {
			t.Errorf("%s has no sample of %s", file, ty.Name)
		}
	}
}
