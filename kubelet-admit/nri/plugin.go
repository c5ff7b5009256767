package nri

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// registrationTimeout is how long the runtime may take to configure a connected plugin: twice NRI's own.
const registrationTimeout = 10 * time.Second

// The requests that the plugin answers. A sandbox is the earliest. A container is asked about as well, because a
// sandbox may have started while no plugin was there. The validator's request is sent for each container even if
// another plugin fails. An answer to CreateContainer that comes too late counts as given (F26), so it serves only where
// the runtime knows no validators.
var (
	requestsValidating = []string{"RunPodSandbox", "ValidateContainerAdjustment"}
	requestsCreating   = []string{"RunPodSandbox", "CreateContainer"}
)

// plugin implements the methods that the stub calls. The view gives its answers.
type plugin struct {
	// configure is called once per connection. text comes from the runtime, for a plugin that it started.
	configure     func(text string) (*view, error)
	registeredNow func() // called at each registration; must not block

	mu       sync.Mutex // guards what follows
	stub     stub.Stub
	view     *view
	runtime  string
	nri      string
	requests []string
	since    time.Time // when it registered; zero: not registered

	configured bool // on this connection
}

// Configure is the runtime's first call: it names the runtime, and the answer is what to subscribe to.
func (p *plugin) Configure(_ context.Context, config, runtime, version string) (api.EventMask, error) {
	v, err := p.configure(config)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.configured = true
	p.view, p.runtime, p.nri = v, runtime+" "+version, p.stub.RuntimeNRIVersion()
	p.requests = requestsCreating
	if knowsValidators(p.nri) {
		p.requests = requestsValidating
	}
	return api.ParseEventMask(p.requests...)
}

// Synchronize ends the registration. The hook ignores what runs already.
func (p *plugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	p.mu.Lock()
	p.since = time.Now()
	v := p.view
	p.mu.Unlock()
	v.queueLog("Registered with the runtime", "runtime", p.runtime, "nri", p.nri, "requests", p.requests)
	v.signalChange()
	p.registeredNow()
	return nil, nil
}

// RunPodSandbox holds a pod with an error: the kubelet shows the error in the pod's Events and retries.
func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error { return p.admitPod(pod) }

// ValidateContainerAdjustment holds a container, by the same rule.
func (p *plugin) ValidateContainerAdjustment(_ context.Context, r *api.ValidateContainerAdjustmentRequest) error {
	return p.admitPod(r.GetPod())
}

// CreateContainer holds a container where the runtime knows no validators.
func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error,
) {
	return nil, nil, p.admitPod(pod)
}

func (p *plugin) admitPod(pod *api.PodSandbox) error {
	p.mu.Lock()
	v := p.view
	p.mu.Unlock()
	return v.admitPod(request{pod.GetNamespace(), pod.GetName(), pod.GetUid(), pod.GetAnnotations()}, time.Now)
}

// markDisconnected records that the connection has ended.
func (p *plugin) markDisconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
	if p.view != nil {
		p.view.signalChange()
	}
}

// isConfigured reports whether the runtime has configured the plugin on this connection. NRI before 0.7 does no more
// for a plugin that it started itself, and asks it nevertheless.
func (p *plugin) isConfigured() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.configured
}

func (p *plugin) fillStatus(s *Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Runtime, s.NRI, s.Registered, s.Requests = p.runtime, p.nri, p.since, p.requests
}

// knowsValidators reports whether the runtime has validators: since NRI 0.10. An older runtime drops a plugin that
// subscribes to an unknown event. If the version is unknown the plugin uses the older events, which every runtime
// knows.
func knowsValidators(version string) bool {
	var major, minor int
	if n, err := fmt.Sscanf(version, "v%d.%d", &major, &minor); n != 2 || err != nil {
		return false
	}
	return major > 0 || minor >= 10
}

// serveRuntime registers with the runtime and answers it until the connection or ctx ends. If the plugin does not
// answer a request in time, the request fails where the runtime's NRI supports that (0.12.5); else it passes.
func (p *plugin) serveRuntime(ctx context.Context, opts ...stub.Option) error {
	opts = append(opts, stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}))
	s, err := stub.New(p, opts...)
	if err != nil {
		return fmt.Errorf("creating the NRI plugin: %w", err)
	}
	p.mu.Lock()
	p.stub, p.configured = s, false
	p.mu.Unlock()
	defer p.markDisconnected()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-time.After(registrationTimeout):
	}
	if !p.isConfigured() {
		// The stub waits for the runtime under a lock, without a deadline: it cannot be stopped, only abandoned.
		return errStuck
	}
	return <-done
}

var errStuck = fmt.Errorf("the runtime did not configure the plugin within %s", registrationTimeout)
