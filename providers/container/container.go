// Package container asks a container engine whether a node that is a container has ended: the nodes of kind, k3d and
// minikube, on Docker or Podman. It speaks the Docker Engine API over the engine's unix socket, and imports the
// contract, providers/remote and the standard library. The README beside it says what counts as off, and what an engine
// does not know.
//
//	providers:
//	- name: laptop
//	  container:
//	    socket: /var/run/docker.sock
//
// A target's ID is its container's name: on kind, k3d and minikube the node's own.
//
// It promises that a state was asked in that call, and that no container is guessed from the beginning of an ID. It
// reports Off only if the container's word, flags, process and exit code agree that nothing of it is left. It acts on
// exactly the container that it inspected.
package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Config is the provider's part of the configuration file.
type Config struct {
	Socket string `yaml:"socket"` // the engine's unix socket, as an absolute path; must be set
}

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "container", NewConfig: func() providers.Config { return &Config{} },
		Off:      "the container is `exited` or `created`, has no process, and the engine saw its end",
		Identity: "none: a container has a name only",
	}
}

// Validate returns every fault. It asks no engine, which may be started later.
func (c *Config) Validate() []providers.Problem {
	switch info, err := os.Stat(c.Socket); {
	case c.Socket == "":
		return []providers.Problem{providers.Problemf("socket",
			"missing: write the engine's unix socket, such as /var/run/docker.sock")}
	case !filepath.IsAbs(c.Socket):
		return []providers.Problem{providers.Problemf("socket",
			"not an absolute path of a unix socket, such as /var/run/docker.sock")}
	case err == nil && info.Mode().Type() != os.ModeSocket:
		return []providers.Problem{providers.Problemf("socket", "not a socket")}
	}
	return nil
}

// SharesPower implements providers.SharesPower: the engine's socket is on this process's own machine. A container has
// no power that it could lose while the engine and forcefence run.
func (c *Config) SharesPower() bool { return false }

// New returns the provider. It contacts no engine.
func (c *Config) New(o providers.Options) (providers.Provider, error) { return New(*c, o), nil }

// Provider controls the containers of one engine. It is safe for concurrent use.
type Provider struct {
	opts providers.Options
	http *http.Client
	// until a lost stream of events is asked for again; doubles with each that fails, up to lastPause
	first time.Duration
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Watcher  = (*Provider)(nil)
	_ providers.Closer   = (*Provider)(nil)

	_ providers.SharesPower = (*Config)(nil)
)

// New returns the provider for a valid Config. It contacts no engine.
func New(c Config, o providers.Options) *Provider {
	return &Provider{opts: o.WithDefaults(), first: firstPause, http: &http.Client{
		Transport: remote.Permitted{Next: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
			},
			MaxIdleConnsPerHost:    4,
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: remote.MaxHeader,
			DisableCompression:     true,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes the connections.
func (p *Provider) Close(context.Context) error {
	p.http.CloseIdleConnections()
	return nil
}

// State asks the engine for the container. A word that no engine uses is PowerUnknown without an error, and so is a
// doubtful end.
func (p *Provider) State(ctx context.Context, t providers.Target) (obs providers.Observation, _ error) {
	err := p.runCall(ctx, "ask state of", t, func(ctx context.Context) error {
		at := p.opts.Now()
		c, err := p.inspectContainer(ctx, t)
		if err == nil {
			obs = c.toObservation(at)
		}
		return err
	})
	return obs, err
}

// PowerOff kills the container: SIGKILL for its first process, with which the kernel ends all others of its process
// namespace. It does not remove it. The engine does not restart it by itself (its restart policy) until the engine
// itself is started again.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power off", t, func(ctx context.Context) error {
		c, err := p.inspectContainer(ctx, t)
		if err != nil {
			return err
		}
		if state, _ := c.powerState(); state == providers.PowerOff {
			return nil
		}
		return p.sendAction(ctx, c, "kill", providers.PowerOff, providers.PowerChanging)
	})
}

// PowerOn starts the container. It does not start one that the engine lost sight of, because what is left of it would
// run beside the new one.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power on", t, func(ctx context.Context) error {
		c, err := p.inspectContainer(ctx, t)
		if err != nil {
			return err
		}
		switch state, raw := c.powerState(); state {
		case providers.PowerOn:
			return nil
		case providers.PowerUnknown:
			return providers.Errorf(providers.ErrPermanent, "%s: check the container on the engine's own machine", raw)
		}
		return p.sendAction(ctx, c, "start", providers.PowerOn)
	})
}

// sendAction sends one request about the inspected container, by its ID, because its name may be another's a moment
// later. If the engine refuses (Docker answers 409, Podman 500), it inspects the container again: the action may be
// done already.
func (p *Provider) sendAction(ctx context.Context, c inspected, verb string, done ...providers.PowerState) error {
	t := providers.Target{ID: strings.TrimPrefix(c.Name, "/")}
	err := p.callEngine(ctx, http.MethodPost, "/containers/"+c.ID+"/"+verb, nil)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if again, lost := p.inspectContainer(ctx, t); lost == nil && again.ID == c.ID {
		if state, _ := again.powerState(); slices.Contains(done, state) {
			return nil
		}
	}
	return err
}

func (p *Provider) runCall(ctx context.Context, act string, t providers.Target, f func(context.Context) error) error {
	return remote.RunCall(ctx, act, t, "container "+p.opts.Name, f)
}

// inspected is the part of an engine's answer about one container that matters. Its pointers must be set in an answer.
type inspected struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Status                            string
		Running, Paused, Restarting, Dead *bool
		Pid, ExitCode                     *int
		StartedAt                         string
	}
	HostConfig struct{ PidMode *string }
}

func (c inspected) toObservation(at time.Time) providers.Observation {
	state, raw := c.powerState()
	return providers.Observation{State: state, Raw: raw, At: providers.InstantOf(at),
		Run: c.ID[:12] + " " + c.State.StartedAt}
}

// powerState maps the engine's words. Off is returned nowhere else.
func (c inspected) powerState() (state providers.PowerState, raw string) {
	switch raw = c.State.Status; raw {
	case "running", "paused",
		"restarting": // the memory of the second may go on; the third is started again by its engine
		return providers.PowerOn, raw
	case "removing", "stopping",
		"stopped": // Podman's stopped is before its clean-up, after which a restart policy may start it
		return providers.PowerChanging, raw
	case "created", "exited":
		if doubt := c.findDoubt(); doubt != "" {
			return providers.PowerUnknown, raw + ", but " + doubt
		}
		return providers.PowerOff, raw
	default: // dead (its removal failed), and unknown words
		return providers.PowerUnknown, raw
	}
}

// lostExitCode is the exit code that Docker invents for a container whose end it did not see: when Docker was started
// again, the container's supervisor did not answer. With live-restore its processes may run on, for ever
// (docker/for-linux issues 129 and 556; F38).
const lostExitCode = 255

// findDoubt returns why a container that is reported as ended may still run; "" if all of the engine's answer agrees.
func (c inspected) findDoubt() string {
	is := func(b *bool) bool { return b == nil || *b }
	switch s := c.State; {
	case is(s.Running), is(s.Paused), is(s.Restarting), is(s.Dead):
		return "its flags disagree"
	case s.Pid == nil || *s.Pid != 0:
		return "it has a process"
	case s.ExitCode == nil || *s.ExitCode == lostExitCode:
		return "the engine did not see its end (255)"
	case c.HostConfig.PidMode == nil || *c.HostConfig.PidMode != "" && *c.HostConfig.PidMode != "private":
		return "it shared its processes' namespace" // then they do not end with the first
	}
	return ""
}

var (
	// containerName matches the names that engines allow. None of them changes a path.
	containerName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)
	containerID   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// inspectContainer asks for the target's container. An engine also accepts the beginning of an ID as a name, so the
// result must have the name.
func (p *Provider) inspectContainer(ctx context.Context, t providers.Target) (c inspected, _ error) {
	if !containerName.MatchString(t.ID) {
		return c, providers.Errorf(providers.ErrNotFound, "the target's ID is not a container name: set one")
	}
	if err := p.callEngine(ctx, http.MethodGet, "/containers/"+url.PathEscape(t.ID)+"/json", &c); err != nil {
		return c, err
	}
	switch {
	case !containerID.MatchString(c.ID):
		return c, providers.Errorf(providers.ErrPermanent, "the answer does not describe a container: is this a "+
			"container engine?")
	case strings.TrimPrefix(c.Name, "/") != t.ID:
		return c, providers.Errorf(providers.ErrNotFound, "no container has that name, but the ID of one begins "+
			"with it")
	}
	return c, nil
}

// callEngine sends one request once. The paths have no version: an engine then uses its own. A version that one engine
// requires another does not have (Docker 29 refuses what Podman speaks, 1.41). All versions agree in what is read here.
func (p *Provider) callEngine(ctx context.Context, method, path string, into any) error {
	resp, err := p.sendRequest(ctx, method, path)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body := io.LimitReader(resp.Body, 4<<20)
	switch status := resp.StatusCode; {
	case method == http.MethodPost && (status == http.StatusNoContent || status == http.StatusNotModified):
		return nil
	case method == http.MethodPost || status != http.StatusOK:
		return refusalError(status, body)
	}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("reading answer: %w", err) // half an answer is none
	}
	return nil
}

func (p *Provider) sendRequest(ctx context.Context, method, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", p.opts.Agent)
	return p.http.Do(r)
}

// refusalError returns the error of an unexpected answer, with the engine's explanation.
func refusalError(status int, body io.Reader) error {
	var reply struct{ Message string }
	_ = json.NewDecoder(io.LimitReader(body, 64<<10)).Decode(&reply)
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	if reply.Message != "" {
		text += ": " + reply.Message[:min(len(reply.Message), 200)]
	}
	return providers.WithClass(remote.HTTPClass(status), errors.New(strings.ToValidUTF8(text, "?")))
}
