package app

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/test/kit"
)

// Every HTTP request to a device names the version of forcefence.
func TestDevicesAreToldTheVersion(t *testing.T) {
	t.Setenv("PASSWORD", "x")
	kit.DropEnv(t, "AWS_")
	for _, file := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} { // else a person's ~/.aws
		t.Setenv(file, "/nonexistent")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	for name, tt := range map[string]struct{ config, target string }{
		"redfish": {"redfish: {username: u, passwordEnv: PASSWORD, auth: basic}", "URL/redfish/v1/Systems/1"},
		"ec2":     {"ec2: {regions: [eu-west-1], endpoint: URL}", "aws:///eu-west-1a/i-0123456789abcdef0"},
		"vsphere": {"vsphere: {address: URL, username: u, passwordEnv: PASSWORD}",
			"11223344-5566-7788-99aa-bbccddeeff01"},
		"container": {"container: {socket: SOCKET}", "kind-worker"},
	} {
		t.Run(name, func(t *testing.T) {
			agents := make(chan string, 100)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case agents <- r.UserAgent():
				default:
				}
				w.WriteHeader(http.StatusForbidden)
			}))
			socket := filepath.Join(kit.SocketDir(t), "s")
			if name == "container" {
				ln, err := net.Listen("unix", socket)
				if err != nil {
					t.Fatal(err)
				}
				server.Listener = ln
			}
			server.Start()
			defer server.Close()
			fill := strings.NewReplacer("URL", server.URL, "SOCKET", socket).Replace
			cfg, err := config.Parse("f",
				[]byte(fill("providers:\n- {name: it, timeout: 5s, "+tt.config+
					"}\nnodes:\n- {name: all, provider: it, machine: {from: list, list: [{node: n1, id: '"+
					tt.target+"'}]}}\n")), all.Types())
			if err != nil {
				t.Fatal(err)
			}
			p, err := newConfigs(Options{Log: slog.New(slog.DiscardHandler)}, prometheus.NewRegistry(),
				listedNodes(nil))
			if err == nil {
				err = p.applyConfig(cfg)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer p.providers.closeAll()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if obs, err := p.providers.open["it"].limited.State(ctx,
				providers.Target{Node: "n1", ID: fill(tt.target)}); err == nil {
				t.Errorf("got %v of a device that forbids everything", obs)
			}
			select {
			case got := <-agents:
				if want := version.UserAgent("forcefence"); got != want &&
					!strings.Contains(" "+got+" ", " "+want+" ") {
					t.Errorf("User-Agent: got %q, want %q in it", got, want)
				}
			case <-ctx.Done():
				t.Error("no device was asked")
			}
		})
	}
}
