package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/journal"
)

// FencingWriter writes fences and shadow decisions into Fencing objects, on the leader. It is outside the protocol:
// callers of AddUpdate do not wait, no decision reads what it writes, and a write that fails or hangs delays nothing
// else. It sends one request at a time, each with a deadline.
type FencingWriter struct {
	FencingWriterOptions
	wake chan struct{}

	mu      sync.Mutex // guards all below
	fences  map[string]*trackedFence
	missing bool      // the API server did not have the resource when it was last asked
	again   time.Time // when it is asked again
}

// FencingWriterOptions is what a FencingWriter is made of. All fields are required.
type FencingWriterOptions struct {
	Client    client.Client // for Fencings alone: NewFencingClient
	Cache     client.Reader // of Nodes
	Log       *slog.Logger
	Metrics   *Metrics
	Leading   func() error
	Retention journal.Retention
	Now       func() time.Time
}

// trackedFence is one fence that has, or may have, a write still to come.
type trackedFence struct {
	entry     journal.Entry
	joined    bool      // entry includes what the object held
	dirty     bool      // entry differs from the object, and must be written
	since     time.Time // when it became dirty, or was last updated
	notBefore time.Time // not to be written before that
	failed    int       // writes in a row
}

const (
	fencingDeadline  = 5 * time.Second
	maxTrackedFences = 512              // fences that are kept in memory at the same time
	fencingSpacing   = time.Second      // between two writes of one open fence
	missingRetry     = 10 * time.Second // between two tries while the API server does not have the resource
	openCheckEvery   = 5 * time.Second  // between two comparisons of open fences with their Nodes
	lostAfter        = time.Minute      // without an update, while its Node has no open fence: then it counts as ended
	sweepEvery       = time.Hour        // between two lists of all, beside one after each end
)

// NewFencingClient returns a client that knows Fencings and needs no discovery: the resource may be missing, or be
// added later.
func NewFencingClient(rc *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("naming types: %w", err)
	}
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(api.GroupVersion.WithKind(api.Kind), apimeta.RESTScopeRoot)
	c, err := client.New(rc, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	return c, nil
}

// NewFencingWriter returns a FencingWriter. It writes nothing until Start.
func NewFencingWriter(o FencingWriterOptions) *FencingWriter {
	return &FencingWriter{FencingWriterOptions: o, wake: make(chan struct{}, 1), fences: map[string]*trackedFence{}}
}

// AddUpdate adds an update of a fence, or a shadow decision. It does not block, and any goroutine may call it.
func (c *FencingWriter) AddUpdate(t journal.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := t.Name()
	f := c.fences[name]
	if f == nil {
		if t.OnlyRead && !t.Record.IsOpen() { // it ended before
			return
		}
		c.makeRoom()
		f = &trackedFence{}
		c.fences[name] = f
	}
	f.since = t.At
	c.putEntry(f, f.entry.AddUpdate(t))
}

// putEntry stores an entry, and marks it to be written if it differs. The caller holds mu.
func (c *FencingWriter) putEntry(f *trackedFence, e journal.Entry) {
	if equality.Semantic.DeepEqual(f.entry.Object, e.Object) {
		f.entry = e
		return
	}
	if !journal.IsOpen(&e.Object) && journal.IsOpen(&f.entry.Object) && f.failed == 0 {
		f.notBefore = time.Time{}
	}
	f.entry, f.dirty = e, true
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// makeRoom drops the oldest fence if there are too many: preferably one that is written. The caller holds mu.
func (c *FencingWriter) makeRoom() {
	if len(c.fences) < maxTrackedFences {
		return
	}
	oldest := ""
	for name, f := range c.fences {
		o := c.fences[oldest]
		if o == nil || o.dirty && !f.dirty || o.dirty == f.dirty && f.since.Before(o.since) {
			oldest = name
		}
	}
	if c.fences[oldest].dirty {
		c.Metrics.fencingWrites.WithLabelValues("dropped").Inc()
	}
	delete(c.fences, oldest)
}

// Start writes until ctx ends.
func (c *FencingWriter) Start(ctx context.Context) error {
	var settle, sweep time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := c.Now()
		if !now.Before(settle) {
			settle = now.Add(openCheckEvery)
			c.checkOpenFences(ctx, now)
		}
		name, next := c.nextDue(now)
		switch {
		case name != "":
			if c.writeFencing(ctx, name) {
				sweep = time.Time{}
			}
			continue
		case !now.Before(sweep) && c.mayAsk(now):
			sweep = now.Add(sweepEvery)
			if err := c.sweepFencings(ctx, now); err != nil && ctx.Err() == nil {
				c.Log.Warn("Cannot delete expired Fencings", "error", err)
				sweep = now.Add(time.Minute)
			}
			continue
		}
		for _, at := range []time.Time{settle, sweep} {
			if next.IsZero() || at.Before(next) {
				next = at
			}
		}
		timer.Reset(max(next.Sub(now), 10*time.Millisecond))
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
	}
	return nil
}

// mayAsk reports whether a request about Fencings may be sent now: the resource exists, or it is time to try again.
func (c *FencingWriter) mayAsk(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.missing || !now.Before(c.again)
}

// nextDue returns the fence that has waited longest for its write, or when the next may be written; zero for never.
func (c *FencingWriter) nextDue(now time.Time) (name string, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(c.fences)) {
		f := c.fences[n]
		after := f.notBefore
		if c.missing && after.Before(c.again) {
			after = c.again
		}
		switch {
		case !f.dirty:
		case now.Before(after):
			if next.IsZero() || after.Before(next) {
				next = after
			}
		case name == "" || after.Before(c.fences[name].notBefore):
			name = n
		}
	}
	return name, next
}

// writeFencing writes one fence's object, and reports whether that fence ended. It blocks for the API server, 5 s at
// most.
func (c *FencingWriter) writeFencing(ctx context.Context, name string) (ended bool) {
	c.mu.Lock()
	f := c.fences[name]
	if f == nil { // dropped since it was found due: there were too many
		c.mu.Unlock()
		return false
	}
	entry, joined := f.entry, f.joined
	c.mu.Unlock()
	written, err := c.sendEntry(ctx, name, entry, joined)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	c.reportMissing(errors.Is(err, errNoResource), now)
	switch {
	case err != nil && ctx.Err() != nil:
		return false
	case err != nil:
		f.failed++
		f.notBefore = now.Add(min(time.Second<<min(f.failed-1, 6), time.Minute))
		if !c.missing {
			c.Metrics.fencingWrites.WithLabelValues("failed").Inc()
			if f.failed == 1 || f.failed == 7 {
				c.Log.Warn("Cannot write a Fencing", "fencing", name, "failed", f.failed, "error", err)
			}
		}
		return false
	}
	c.Metrics.fencingWrites.WithLabelValues("written").Inc()
	f.failed, f.notBefore, f.joined = 0, now.Add(fencingSpacing), true
	if f.dirty = !equality.Semantic.DeepEqual(f.entry.Object, entry.Object); f.dirty {
		if !joined { // then add what came meanwhile
			f.entry = f.entry.MergeObject(&written.Object)
		}
		return false
	}
	f.entry = written
	if journal.IsOpen(&written.Object) {
		return false
	}
	if c.fences[name] == f {
		delete(c.fences, name)
	}
	return true
}

// errNoResource means that the API server does not have the resource Fencings.
var errNoResource = errors.New("the API server does not know fencings.forcefence.io")

// sendEntry writes the entry into the object, and returns the entry joined with what the object held before.
func (c *FencingWriter) sendEntry(
	ctx context.Context, name string, e journal.Entry, joined bool,
) (journal.Entry, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fencingDeadline, fmt.Errorf("no answer within %s", fencingDeadline))
	defer cancel()
	if err := c.Leading(); err != nil {
		return e, err
	}
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(api.GroupVersion.WithKind(api.Kind))
	var found api.Fencing
	fresh := false
	err := c.Client.Get(ctx, client.ObjectKey{Name: name}, raw)
	switch {
	case apierrors.IsNotFound(err):
		bare := e.BoundedObject(&api.Fencing{})
		bare.Status = api.FencingStatus{}
		if err := c.Client.Create(ctx, bare); apierrors.IsNotFound(err) {
			return e, errNoResource
		} else if err != nil {
			return e, fmt.Errorf("creating: %w", err)
		}
		found, fresh = *bare, true
	case err != nil:
		return e, fmt.Errorf("reading: %w", err)
	default:
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, &found); err != nil {
			return e, fmt.Errorf("reading: %w", err)
		}
		if !joined {
			e = e.MergeObject(&found)
		}
	}
	want := e.BoundedObject(&found)
	status := found.DeepCopy()
	status.Status = want.Status
	data, err := mergePatch(raw.Object, &found, status)
	if fresh { // whole, so that counts of zero are written as well
		data, err = json.Marshal(map[string]any{"status": want.Status})
	}
	if err != nil {
		return e, err
	}
	if data != nil {
		if err := c.Client.Status().
			Patch(ctx, emptyFencing(name), client.RawPatch(types.MergePatchType, data)); err != nil {
			return e, fmt.Errorf("writing status: %w", err)
		}
	}
	return e, nil
}

func emptyFencing(name string) *api.Fencing {
	return &api.Fencing{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// mergePatch returns the merge patch from one object to the other; nil if there is none. It names only fields that this
// version knows, so that the fields of a newer one stay; raw is the object with those.
func mergePatch(raw map[string]any, from, to *api.Fencing) ([]byte, error) {
	data, err := client.MergeFrom(from).Data(to)
	if err != nil || bytes.Equal(data, []byte("{}")) {
		return nil, err
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, fmt.Errorf("making patch: %w", err)
	}
	keepItems(raw, patch)
	return json.Marshal(patch)
}

// keepItems restores what this version does not know of a list's items: a merge patch replaces the whole list. Two
// items are the same if all fields that the patch names are equal.
func keepItems(raw, patch map[string]any) {
	for key, value := range patch {
		switch value := value.(type) {
		case map[string]any:
			if inner, ok := raw[key].(map[string]any); ok {
				keepItems(inner, value)
			}
		case []any:
			before, _ := raw[key].([]any)
			for i, item := range value {
				fields, ok := item.(map[string]any)
				if !ok {
					continue
				}
				same := slices.IndexFunc(before, func(o any) bool {
					old, ok := o.(map[string]any)
					for k, v := range fields {
						ok = ok && equality.Semantic.DeepEqual(old[k], v)
					}
					return ok
				})
				if same >= 0 {
					value[i] = before[same]
				}
			}
		}
	}
}

// reportMissing reports once that the API server does not have the resource, and once that it has it again. The caller
// holds mu.
func (c *FencingWriter) reportMissing(missing bool, now time.Time) {
	switch {
	case missing && !c.missing:
		c.Log.Warn("Fencings are not written: the API server does not have the resource fencings.forcefence.io",
			"remedy", "apply the CustomResourceDefinition of deploy/helm/forcefence/files")
	case !missing && c.missing:
		c.Log.Info("Fencings are written again")
	}
	if c.missing = missing; missing {
		c.again = now.Add(missingRetry)
	}
}

// checkOpenFences compares the open fences with the records of their Nodes: one may have ended unseen. It reads only
// the cache.
func (c *FencingWriter) checkOpenFences(ctx context.Context, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, f := range c.fences {
		if !journal.IsOpen(&f.entry.Object) {
			continue
		}
		var node corev1.Node
		var rec *taint.Record
		err := c.Cache.Get(ctx, client.ObjectKey{Name: f.entry.Object.Spec.Node}, &node)
		gone := apierrors.IsNotFound(err)
		if err == nil {
			rec, err = taint.RecordOf(&node)
		}
		switch lost := now.Sub(f.since) > lostAfter; { // the cache may be behind
		case rec != nil && !f.entry.Object.Spec.Shadow && journal.ObjectName(node.Name, *rec) == name:
			c.putEntry(f, f.entry.AddUpdate(journal.Update{Node: node.Name, At: now, Record: *rec}))
		case gone && lost:
			c.putEntry(f, f.entry.WithEnd(journal.ResultNodeGone, now))
		case err == nil && lost:
			c.putEntry(f, f.entry.WithEnd(journal.ResultUnknown, now))
		}
	}
}

// sweepFencings lists all objects. It takes in those of fences whose end no process saw, and deletes those that are too
// many or too old.
func (c *FencingWriter) sweepFencings(ctx context.Context, now time.Time) error {
	ask, cancel := context.WithTimeout(ctx, fencingDeadline)
	defer cancel()
	var list api.FencingList
	err := c.Client.List(ask, &list)
	c.mu.Lock()
	c.reportMissing(apierrors.IsNotFound(err), now)
	for i := range list.Items {
		if o := &list.Items[i]; journal.IsOpen(o) && c.fences[o.Name] == nil && len(c.fences) < maxTrackedFences {
			c.fences[o.Name] = &trackedFence{entry: journal.EntryOf(o), joined: true, since: now}
		}
	}
	c.mu.Unlock()
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	for _, f := range c.Retention.FindExpired(list.Items, now) {
		if err := c.Leading(); err != nil {
			return err
		}
		ask, cancel := context.WithTimeout(ctx, fencingDeadline)
		err := c.Client.Delete(ask, &f, client.Preconditions{UID: &f.UID})
		cancel()
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting %s: %w", f.Name, err)
		}
	}
	return nil
}
