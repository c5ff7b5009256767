package app

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// A part that fails ends the process, which closes what the parts before it opened.
func TestRunClosesItsParts(t *testing.T) {
	cluster.Admin(t, shared) // skips the test where there is no control plane
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ip, err := kit.FreePodIP()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("POD_IP", ip)
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf(`
listen: {metrics: %q}
providers: [{name: one, device: {}}, {name: two, device: {}}]
nodes: [{name: all, provider: one, machine: {from: systemUUID}}]
`, taken.Addr())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var made []*instance
	p, err := newProcess(Options{
		ConfigFile: file,
		REST:       shared.RESTConfig(),
		Registry: providers.Registry{
			{Name: "device", NewConfig: func() providers.Config { return &device{made: &made} }},
		},
		Log: slog.New(slog.DiscardHandler),
	}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.run(t.Context()); err == nil || !strings.Contains(err.Error(), "serving metrics") {
		t.Errorf("got error %v, want that the metrics' address is taken", err)
	}
	if len(made) != 2 {
		t.Fatalf("got %d providers, want both opened before the part that fails", len(made))
	}
	for _, i := range made {
		if closed, _ := i.state(); closed != 1 {
			t.Errorf("provider %s was closed %d times, want once", i.name, closed)
		}
	}
}

// The programs that are shipped do not link golang.org/x/net/trace, which gRPC brings: with it the linker keeps every
// method of every type.
func TestSmall(t *testing.T) {
	for _, program := range []string{"forcefence", "forcefence-node"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../"+program).CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		if slices.Contains(strings.Fields(string(out)), "golang.org/x/net/trace") {
			t.Errorf("%s links golang.org/x/net/trace", program)
		}
	}
}
