package nri

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// registrationTimeout is how long the runtime may take to configure a plugin that has connected: twice NRI's own.
const registrationTimeout = 10 * time.Second

// Requests that are answered. A sandbox is the earliest; a container is asked about as well, because a sandbox may have slipped
// through while no plugin was there. The validator's request is sent for each container whoever else fails; an answer to
// CreateContainer that comes too late counts as given (F26), so it serves only where the runtime knows no validators.
var (
	requestsValidating = []string{"RunPodSandbox", "ValidateContainerAdjustment"}
	requestsCreating   = []string{"RunPodSandbox", "CreateContainer"}
)

// plugin is what the stub calls. Its answers are the view's.
type plugin struct {
	configure     func(text string) (*view, error) // called once per connection; text is the runtime's, for a plugin it started
	registeredNow func()                           // called at each registration; must not block

	mu       sync.Mutex // guards what follows
	stub     stub.Stub
	view     *view
	runtime  string
	nri      string
	requests []string
	since    time.Time // registered; zero: not
}

// Configure is the first call of the runtime: who it is, and what to subscribe to.
func (p *plugin) Configure(_ context.Context, config, runtime, version string) (api.EventMask, error) {
	v, err := p.configure(config)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view, p.runtime, p.nri = v, runtime+" "+version, p.stub.RuntimeNRIVersion()
	p.requests = requestsCreating
	if knowsValidators(p.nri) {
		p.requests = requestsValidating
	}
	return api.ParseEventMask(p.requests...)
}

// Synchronize ends the registration. What runs already is not the hook's business.
func (p *plugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	p.mu.Lock()
	p.since = time.Now()
	v := p.view
	p.mu.Unlock()
	v.queueLog("Registered with the runtime", "runtime", p.runtime, "nri", p.nri, "guards", p.requests)
	v.signalChange()
	p.registeredNow()
	return nil, nil
}

// RunPodSandbox holds a pod by an error: the kubelet shows it in the pod's Events and tries again.
func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error { return p.admitPod(pod) }

// ValidateContainerAdjustment holds a container, by the same rule.
func (p *plugin) ValidateContainerAdjustment(_ context.Context, r *api.ValidateContainerAdjustmentRequest) error {
	return p.admitPod(r.GetPod())
}

// CreateContainer does so where the runtime knows no validators.
func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, p.admitPod(pod)
}

func (p *plugin) admitPod(pod *api.PodSandbox) error {
	p.mu.Lock()
	v := p.view
	p.mu.Unlock()
	return v.admitPod(request{pod.GetNamespace(), pod.GetName(), pod.GetUid(), pod.GetAnnotations()}, time.Now)
}

// markDisconnected notes that the connection has ended.
func (p *plugin) markDisconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
	if p.view != nil {
		p.view.signalChange()
	}
}

func (p *plugin) isRegistered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.since.IsZero()
}

func (p *plugin) fillStatus(s *Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Runtime, s.NRI, s.Registered, s.Requests = p.runtime, p.nri, p.since, p.requests
}

// knowsValidators: since NRI 0.10. An older runtime drops a plugin that subscribes to an event it does not know; where the version
// cannot be told, the older events are taken, which every runtime knows.
func knowsValidators(version string) bool {
	var major, minor int
	if n, err := fmt.Sscanf(version, "v%d.%d", &major, &minor); n != 2 || err != nil {
		return false
	}
	return major > 0 || minor >= 10
}

// serveRuntime registers with the runtime and answers it until the connection or ctx ends. A request that the plugin fails to answer in
// time fails, where the runtime's NRI knows how (0.12.5): else it passes.
func (p *plugin) serveRuntime(ctx context.Context, opts ...stub.Option) error {
	opts = append(opts, stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}))
	s, err := stub.New(p, opts...)
	if err != nil {
		return fmt.Errorf("preparing NRI: %w", err)
	}
	p.mu.Lock()
	p.stub = s
	p.mu.Unlock()
	defer p.markDisconnected()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	deadline := time.NewTimer(registrationTimeout)
	defer deadline.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-deadline.C:
			if !p.isRegistered() {
				// The stub waits for the runtime under a lock, without a deadline: it cannot be stopped, only left.
				return errStuck
			}
		}
	}
}

var errStuck = fmt.Errorf("the runtime did not configure the plugin within %s", registrationTimeout)
