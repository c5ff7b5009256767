package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/forcefence/forcefence/taint"
)

const (
	dialTimeout = 1500 * time.Millisecond // one lost SYN is sent again after a second
	readTimeout = 5 * time.Second         // of one GET or LIST
	readEvery   = time.Second             // until the first success of a boot; then the pause doubles
	readPause   = 8 * time.Second         // at most
	watchPause  = 100 * time.Millisecond
	watchIdle   = 10 * time.Second // how long the API server may be silent before it is pinged
	watchFor    = 5 * time.Minute  // at least, and at most twice that: a proxy may keep a dead watch open
	pollEvery   = 5 * time.Second  // while a pod is held
	freeEvery   = time.Minute      // at most: it costs a garbage collection
)

// errReadAgain ends the watches because they may be behind.
var errReadAgain = errors.New("the watches may be behind")

// reader keeps a view in sync with the API server. It makes one quorum GET of the own Node and one quorum LIST of its
// pods, then watches both. After any failure it starts again with new connections, because old ones stay dead for up to
// half a minute after a network outage. While a pod is held it also reads the Node every pollEvery, because a watch may
// be open and silent.
type reader struct {
	kubeconfig   string
	version      string // the program's
	node         string
	view         *view
	reportResult func(error) // called with the error when reading fails, and with nil when it works again

	used  bool      // memory, since the last freeMemory
	freed time.Time // when freeMemory gave memory back

	polls    <-chan time.Time // for tests, instead of pollEvery
	watchFor time.Duration    // for tests, instead of the constant
	free     func()           // for tests, instead of debug.FreeOSMemory
}

// runReader reads until ctx ends.
func (r *reader) runReader(ctx context.Context) {
	pause := readEvery
	for ctx.Err() == nil {
		synced := false
		err := r.runSession(ctx, func() {
			synced = true
			r.reportResult(nil)
		})
		if ctx.Err() != nil {
			return
		}
		r.reportResult(err)
		pause = min(2*pause, readPause)
		if synced || !r.view.lastNode().Read { // once a second until the first success: a node that boots waits for it
			pause = readEvery
		}
		jittered := pause - pause/5 + rand.N(2*pause/5)
		select {
		case <-ctx.Done():
		case <-time.After(jittered):
		}
	}
}

// runSession reads and watches until an error. It calls synced whenever the view is in sync after a read.
func (r *reader) runSession(ctx context.Context, synced func()) error {
	ctx, cancel := context.WithCancel(ctx)
	rc, closeIdle, err := NewClient(r.kubeconfig, r.version)
	if err != nil {
		cancel()
		return err
	}
	defer closeIdle()
	defer cancel() // first: the connections of running watches are not idle
	api := client{rc, cmp.Or(r.watchFor, watchFor+rand.N(watchFor))}
	for {
		if err := r.readAndWatch(ctx, api, synced); !errors.Is(err, errReadAgain) {
			return err
		}
	}
}

// readAndWatch reads once and then watches until an error: errReadAgain if a poll finds that the watches may be behind.
func (r *reader) readAndWatch(ctx context.Context, api client, synced func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	polls := r.polls
	if polls == nil {
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		polls = tick.C
	}
	node, err := r.readNode(ctx, api)
	if err != nil {
		return err
	}
	version := node.ResourceVersion // the version of the last Node seen
	if isMarked(node, r.view.key) {
		r.view.seeNode(node, false, time.Now()) // at once; what lets pods start waits for the list of pods
	}
	nodes := api.watchFrom(ctx, "nodes", fields.OneTermEqualSelector(metav1.ObjectNameField, r.node),
		node.ResourceVersion)
	pods, stop, err := r.watchPods(ctx, api)
	if err != nil {
		return err
	}
	defer func() { stop() }()
	r.view.seeNode(node, true, time.Now())
	synced()
	r.freeMemory(time.Now())
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-pods:
			r.used = true
			pod, ok := ev.Object.(*corev1.Pod)
			if !ok {
				return fmt.Errorf("watching pods: %w", ev.toError())
			}
			r.view.seePod(pod, ev.Type == watch.Deleted)
		case ev := <-nodes:
			r.used = true
			node, ok := ev.Object.(*corev1.Node)
			if !ok {
				return fmt.Errorf("watching Node %s: %w", r.node, ev.toError())
			}
			if ev.Type == watch.Deleted {
				r.view.forgetNode()
				return fmt.Errorf("watching Node %s: it was deleted", r.node)
			}
			version = node.ResourceVersion
			if isMarked(node, r.view.key) && !r.view.lastNode().Detaching {
				r.view.seeNode(node, false, time.Now())
			}
			if last := r.view.lastNode(); last.Marked && !last.Detaching && !isHeld(node, r.view.key) {
				// Pods may have been ended under the mark, and their watch may be behind that of the Node.
				stop()
				if pods, stop, err = r.watchPods(ctx, api); err != nil {
					stop = func() {}
					return err
				}
			}
			r.view.seeNode(node, true, time.Now())
		case now := <-polls:
			r.freeMemory(now)
			held, unknown := r.view.hasHeldPods()
			if !held {
				continue
			}
			node, err := r.readNode(ctx, api)
			if err != nil {
				return err
			}
			// This Node alone is not enough: a mark may have come and gone since, and pods may have been ended. And a
			// later event of the watch may be older than this Node.
			if unknown || node.ResourceVersion != version {
				return errReadAgain
			}
		}
	}
}

// freeMemory gives back to the system what lists and changes took, at most once in freeEvery: the process may not need
// it for weeks, and Go alone keeps most of it. After an idle time there is nothing to give back.
func (r *reader) freeMemory(now time.Time) {
	if !r.used || now.Sub(r.freed) < freeEvery {
		return
	}
	r.used, r.freed = false, now
	if r.free != nil {
		r.free()
		return
	}
	debug.FreeOSMemory()
}

// readNode reads the own Node. If the Node was deleted the view forgets it.
func (r *reader) readNode(ctx context.Context, api client) (*corev1.Node, error) {
	node, err := api.getNode(ctx, r.node)
	if isGone(err) {
		// It may have been marked before, and others end its pods now.
		r.view.forgetNode()
	}
	return node, err
}

// watchPods lists the node's pods into the view and watches them from there.
func (r *reader) watchPods(ctx context.Context, api client) (events <-chan event, stop func(), err error) {
	r.used = true
	selector := fields.OneTermEqualSelector("spec.nodeName", r.node)
	seen := map[string]podView{}
	version, err := api.listPods(ctx, selector, func(pod *corev1.Pod) { r.view.listPod(seen, pod) })
	if err != nil {
		return nil, nil, err
	}
	r.view.seePods(seen)
	ctx, cancel := context.WithCancel(ctx)
	return api.watchFrom(ctx, "pods", selector, version), cancel, nil
}

// isGone reports whether the API server itself says that the Node does not exist. A proxy's page that says "not found"
// does not count.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func isMarked(node *corev1.Node, key string) bool {
	_, marked := taint.FindMark(node, key, "")
	return marked
}

// isHeld reports whether the Node has a mark that holds every ordinary pod.
func isHeld(node *corev1.Node, key string) bool {
	l := taint.NewLook(node, nil, key, taint.Instant{}, taint.Instant{})
	return l.Mark != nil && len(l.DetachingClaims()) == 0
}

// client makes the few calls that the kubelet's credentials allow and the hook needs.
type client struct {
	rest     rest.Interface
	watchFor time.Duration // how long one watch lasts; at least one second
}

// NewClient makes a client of the core group alone, because the whole clientset needs several MB of memory. It reads
// the files that the kubeconfig names once: a rotated certificate needs a new client. It has connections of its own,
// which closeIdle closes. It sends the program's version to the API server.
func NewClient(kubeconfig, version string) (_ rest.Interface, closeIdle func(), err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("reading kubeconfig %s: %w", kubeconfig, err)
		}
	}()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, nil, err
	}
	cfg.CertFile, cfg.KeyFile, cfg.CAFile = "", "", ""
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	cfg.GroupVersion, cfg.APIPath = &corev1.SchemeGroupVersion, "/api"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeProtobuf,
		runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	cfg.UserAgent, cfg.QPS = "forcefence-node/"+version, -1

	tc, err := cfg.TransportConfig() // an exec credential's certificate included
	if err != nil {
		return nil, nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, nil, err
	}
	t := &http.Transport{
		TLSClientConfig: tlsConfig, TLSHandshakeTimeout: readTimeout, Proxy: tc.Proxy, ForceAttemptHTTP2: true,
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		// A watch whose network failed gets no events: this is how long it stays blind after the network is back.
		HTTP2: &http.HTTP2Config{SendPingTimeout: watchIdle, PingTimeout: readTimeout},
	}
	if t.Proxy == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	if tc.DialHolder != nil {
		t.DialContext = tc.DialHolder.Dial
	}
	rt, err := transport.HTTPWrappersForConfig(tc, t)
	if err != nil {
		return nil, nil, err
	}
	c, err := rest.RESTClientForConfigAndClient(cfg, &http.Client{Transport: rt})
	return c, t.CloseIdleConnections, err
}

// getNode is a quorum read.
func (c client) getNode(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := c.rest.Get().Resource("nodes").Name(name).Timeout(readTimeout).Do(ctx).Into(node); err != nil {
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	return node, nil
}

// listPods is a quorum list: without a resourceVersion the API server reads from etcd. It calls see with each pod, also
// before an error. It sets no limit: before 1.34 an API server reads each further page from etcd, with the pods of all
// nodes.
func (c client) listPods(ctx context.Context, selector fields.Selector, see func(*corev1.Pod)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	opts := &metav1.ListOptions{FieldSelector: selector.String()}
	r := c.rest.Get().Resource("pods").VersionedParams(opts, metav1.ParameterCodec).Timeout(readTimeout)
	answer, err := r.Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("listing the node's pods: %w", err)
	}
	defer answer.Close()
	version, err := readPodList(answer, see)
	if err != nil {
		return "", fmt.Errorf("listing the node's pods: %w", err)
	}
	return version, nil
}

// event is a change of an object or, without an object, the end of a watch.
type event struct {
	watch.Event
	cause error
}

func (e event) toError() error { return cmp.Or(e.cause, fmt.Errorf("unexpected object %T", e.Object)) }

// watchFrom watches from a resourceVersion on, until ctx ends or the server refuses: then the last event has the cause.
// A watch that ends by its timeout is continued where it was. The client ends it a little later if the server's end
// does not arrive.
func (c client) watchFrom(ctx context.Context, resource string, selector fields.Selector, version string) <-chan event {
	out := make(chan event)
	send := func(e event) bool {
		select {
		case out <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	once := func() error {
		within, cancel := context.WithTimeout(ctx, c.watchFor+c.watchFor/10)
		defer cancel()
		seconds := int64(c.watchFor / time.Second)
		opts := &metav1.ListOptions{
			FieldSelector: selector.String(), ResourceVersion: version, AllowWatchBookmarks: true, Watch: true,
			TimeoutSeconds: &seconds,
		}
		w, err := c.rest.Get().Resource(resource).VersionedParams(opts, metav1.ParameterCodec).Watch(within)
		if err != nil {
			return err
		}
		defer w.Stop()
		for ev := range w.ResultChan() {
			obj, ok := ev.Object.(metav1.Object)
			if !ok || ev.Type == watch.Error {
				if within.Err() != nil {
					return ctx.Err() // the client's own end of it
				}
				return apierrors.FromObject(ev.Object)
			}
			version = obj.GetResourceVersion()
			if ev.Type != watch.Bookmark && !send(event{Event: ev}) {
				return ctx.Err()
			}
		}
		return nil
	}
	go func() {
		err := once()
		for ; err == nil; err = once() {
			select {
			case <-time.After(watchPause):
			case <-ctx.Done():
				return
			}
		}
		send(event{cause: err})
	}()
	return out
}
