package controller

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
)

// neverConnected is a client whose connections are never made. It counts how often one was asked for.
func neverConnected(t *testing.T) (c client.Client, dialed *atomic.Int32) {
	t.Helper()
	dialed = &atomic.Int32{}
	over, end := context.WithCancel(t.Context()) // the transport dials on, for the next who asks
	t.Cleanup(end)
	rc := &rest.Config{Host: "https://api.example.net", Dial: func(context.Context, string, string) (net.Conn, error) {
		dialed.Add(1)
		<-over.Done()
		return nil, over.Err()
	}}
	kube.SendWritesOnce(rc)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), meta.RESTScopeRoot)
	c, err := client.New(rc, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	must(t, err)
	return c, dialed
}

// aboutToWrite is a node whose pods are to be ended, or whose volume lists are to be cleared. Its device answers after
// takes.
func aboutToWrite(t *testing.T, clears bool, takes time.Duration) (*midst, action.Decision) {
	t.Helper()
	m := &oneMachine{state: providers.PowerOff}
	x := inMidst(t, m, taint.PhaseEvicting)
	m.now = func() time.Time {
		asked := x.c.now
		x.c.now = asked.Add(takes)
		return asked
	}
	do := "EndPods"
	if x.live.pods = podsOf("n1", "a", "b"); clears {
		x.live.pods, do = endedPods("n1", "a"), "ClearVolumes"
		x.live.node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/x^1"}
	}
	return x, x.upTo(do)
}

// The way to the API server is blocked for longer than the proof holds: nothing is sent, now or later, and nothing
// counts as tried (invariant 1).
func TestWritesDoNotWaitForAConnection(t *testing.T) {
	for _, tc := range []struct {
		clears        bool
		takes, atMost time.Duration
	}{
		{false, 0, 2 * proof.Sending}, // one worker writes one pod after the other; the proof's clock stands still
		{true, 0, proof.Sending},
		{false, 4700 * time.Millisecond, 600 * time.Millisecond},
		{true, 4700 * time.Millisecond, 300 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			x, s := aboutToWrite(t, tc.clears, tc.takes)
			x.writer.Client, _ = neverConnected(t)
			begun := time.Now()
			o := x.act(t.Context(), s)
			wrong := tc.clears && !errors.Is(o.Err, kube.ErrLate) || !tc.clears && o.Err != nil
			if took := time.Since(begun); took > tc.atMost || took < tc.atMost/2 || len(o.Results) != 0 || wrong {
				t.Errorf("%s, device takes %s: over after %s, want %s; noted %v, error %v",
					action.Name(s.Action), tc.takes, took, tc.atMost, o.Results, o.Err)
			}
		})
	}
}

// undeletable is an API server that takes patches, while no connection for a deletion is made.
type undeletable struct {
	*answers
	never client.Client
}

func (u undeletable) SubResource(sub string) client.SubResourceClient {
	return versioned{u.answers.SubResource(sub)}
}

// versioned gives what it patches a resourceVersion, as an API server does.
type versioned struct{ client.SubResourceClient }

func (v versioned) Patch(
	ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	o.SetResourceVersion("2")
	return v.SubResourceClient.Patch(ctx, o, p, opts...)
}

func (u undeletable) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return u.never.Delete(ctx, o, opts...)
}

// A pod without volumes is deleted as soon as it is ended: the deletion, too, is sent by the proof's end or not at all
// (invariant 1).
func TestDeletionAfterTheEndIsSentInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, s := aboutToWrite(t, false, 0)
		never, dialed := neverConnected(t)
		x.writer.Client = undeletable{x.api, never}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		o := x.act(ctx, s)
		took := time.Since(begun)
		if took > 2*proof.Sending || dialed.Load() == 0 || x.api.patches != 2 || len(o.Writes.Made) != 2 {
			t.Errorf("over after %s, want %s at most; %d connections for deletions, %d pods ended, %+v", took,
				2*proof.Sending, dialed.Load(), x.api.patches, o)
		}
	})
}

// A process that stands still between its last check and the write does not send it: the time to send counts from
// before the check (invariant 1).
func TestProcessThatStandsStillWritesNothing(t *testing.T) {
	for _, clears := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			x, s := aboutToWrite(t, clears, 0)
			c, dialed := neverConnected(t)
			x.writer.Client = c
			x.Now = func() time.Time {
				read := x.c.Now()
				time.Sleep(time.Second)
				return read
			}
			if x.act(t.Context(), s); dialed.Load() != 0 {
				t.Errorf("%s: %d connections were asked for, want none", action.Name(s.Action), dialed.Load())
			}
		})
	}
}

// The out-of-service taint lets stock controllers end pods and detach volumes: it is written while the proof holds, or
// not at all, and does not wait for a connection (invariant 1).
func TestOutOfServiceIsWrittenInTime(t *testing.T) {
	for _, tc := range []struct {
		name          string
		age           time.Duration // of the proof
		dials         int32
		least, atMost time.Duration
	}{
		{"the way to the API server is blocked", 0, 1, proof.Sending / 2, proof.Sending},
		{"the proof is over", proof.TTL + time.Second, 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, _ := aboutToWrite(t, true, 0)
				var dialed *atomic.Int32
				x.writer.Client, dialed = neverConnected(t)
				x.c.now = x.c.now.Add(tc.age)
				begun := time.Now()
				o := x.act(t.Context(), action.Decision{Action: action.AddOutOfServiceTaint{}})
				took := time.Since(begun)
				if !errors.Is(o.Err, kube.ErrLate) || dialed.Load() != tc.dials || took < tc.least || took > tc.atMost {
					t.Errorf("after %s, %d connections: got %v, want %v after %s", took, dialed.Load(), o.Err,
						kube.ErrLate, tc.atMost)
				}
			})
		})
	}
}

// A pod waited for its write until stock eviction is about to delete it: it is not written, and not noted as tried. The
// others are (F2).
func TestWritesStopBeforeStockEviction(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
	added, seconds := metav1.NewTime(x.c.now), int64(33)
	x.live.node.Spec.Taints = append(x.live.node.Spec.Taints, corev1.Taint{
		Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added,
	})
	x.live.pods = podsOf("n1", "a", "b")
	a := &x.live.pods[0]
	a.DeletionTimestamp, a.DeletionGracePeriodSeconds = nil, nil
	a.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}}
	s := x.upTo("EndPods")
	if len(action.PodsOf(s.Action)) != 2 {
		t.Fatalf("got %v, want both pods to be ended", action.PodsOf(s.Action))
	}
	x.c.now = x.c.now.Add(3 * time.Second)
	var written []string
	o := x.work().writePods(t.Context(), s.Action, func(_ context.Context, p action.Pod) error {
		written = append(written, p.Name)
		return nil
	})
	if _, tried := o.Results["a"]; o.Err != nil || tried || !slices.Equal(written, []string{"b"}) {
		t.Errorf("got %v written, noted %v, error %v; want b alone", written, o.Results, o.Err)
	}
}

// What a write is decided on holds for as long as it may take until it is sent.
func TestProofOutlivesTheWayToTheServer(t *testing.T) {
	for _, tc := range []struct {
		age  time.Duration
		want int
	}{{4 * time.Second, 0}, {4600 * time.Millisecond, 1}} {
		m := &oneMachine{state: providers.PowerOff}
		x := inMidst(t, m, taint.PhaseEvicting)
		x.live.pods = podsOf("n1", "a")
		s := x.upTo("EndPods")
		at := x.st.course.Answer().At
		m.asked = 0
		x.c.now = at.Add(tc.age).Wall
		if o := x.act(t.Context(), s); o.Err != nil || m.asked != tc.want {
			t.Errorf("a proof %s old: asked %d times, error %v; want %d", tc.age, m.asked, o.Err, tc.want)
		}
	}
}

// busy is a device that is held up before it asks whether it may still act.
type busy struct {
	oneMachine
	meanwhile func()
	still     func() error
}

func (b *busy) PowerOff(_ context.Context, _ providers.Target, still func() error) error {
	b.meanwhile()
	b.still = still
	if err := providers.PermitSends(still)(); err != nil {
		return err
	}
	b.off++
	return nil
}

// Whatever changed since the executor asked the device keeps it from acting, as far as the process knows.
func TestLastCheck(t *testing.T) {
	onNode := func(change func(*corev1.Node)) func(*midst) {
		return func(x *midst) { // in the cache alone: a later look may show it or not
			x.cached.node = x.cached.node.DeepCopy()
			x.cached.node.ResourceVersion = "6"
			change(x.cached.node)
		}
	}
	condition := func(of corev1.NodeConditionType) func(*midst) {
		return onNode(func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions,
				corev1.NodeCondition{Type: of, Status: corev1.ConditionTrue})
			slimNode(n)
		})
	}
	observe := func(x *midst) {
		config := x.Config()
		config.Modes = modeOfAll(fence.Observe)
		x.Config = func() *Config { return config }
	}
	behind := onNode(func(n *corev1.Node) { n.ResourceVersion = "4" })
	for _, tc := range []struct {
		name   string
		change func(*midst)
		sends  bool
	}{
		{"nothing", func(*midst) {}, true},
		{"the device is slow", func(x *midst) { x.c.now = x.c.now.Add(4 * time.Second) }, true},
		{"the device is too slow", func(x *midst) { x.c.now = x.c.now.Add(6 * time.Second) }, false},
		{"leadership lost", func(x *midst) { x.Leading = func() error { return errStale } }, false},
		{"a heartbeat",
			func(x *midst) {
				x.WithFleet(func(f *fleet.Fleet) { f.ApplyLease("n1", "2", 0, x.Now.Instant()) })
			}, false},
		{"a boot", onNode(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" }), false},
		{"a label", onNode(func(n *corev1.Node) { n.Labels = map[string]string{"zone": "a"} }), true},
		{"paused", onNode(func(n *corev1.Node) { n.Annotations[fence.PausedAnnotation] = "disks" }), false},
		{"in maintenance", condition("MaintenanceInProgress"), false},
		{"drained", condition("DrainInProgress"), false},
		{"shut down", condition("GracefulNodeShutdownInProgress"), false},
		{"released", onNode(func(n *corev1.Node) {
			r, _ := taint.RecordOf(n)
			n.Annotations[taint.RecordAnnotation] = r.EnterPhase(taint.PhaseDone, taint.ResultReleased, newYear).
				Encode()
		}), false},
		{"the cluster is paused", func(x *midst) { x.live.pause = map[string]string{"reason": "upgrade"} }, false},
		{"the pause cannot be read", func(x *midst) { x.live.pause = nil }, true},
		{"the pause may not be read any more", func(x *midst) {
			x.live.fails = func(o runtime.Object) error {
				if _, is := o.(*corev1.ConfigMap); is {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "pause", nil)
				}
				return nil
			}
		}, false},
		{"another mode by a new configuration", observe, false},
		{"the same, and a cache that is behind the look", func(x *midst) { behind(x); observe(x) }, false},
		{"a cache that is behind the look, and was paused", func(x *midst) {
			behind(x)
			x.cached.node.Annotations[fence.PausedAnnotation] = "disks"
		}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &busy{oneMachine: oneMachine{state: providers.PowerOn}}
			x := inMidst(t, &m.oneMachine, taint.PhasePoweringOff)
			config := x.Config()
			m1, _ := config.Machines.Led(nil)
			m1.Provider = m
			config.Machines.Led = func(*corev1.Node) (machine.Machine, error) { return m1, nil }
			x.Config = func() *Config { return config }
			x.live.pods = podsOf("n1", "a")
			s := x.upTo("PowerOff")
			config.Exclusions.Pause = client.ObjectKey{Namespace: "forcefence", Name: "pause"}
			x.live.pause = map[string]string{"until": "2000-01-01T00:00:00Z"}
			m.meanwhile = func() { tc.change(x) }
			begun := time.Now()
			o := x.act(t.Context(), s)
			sent, refused := m.off == 1, errors.Is(o.Err, providers.ErrNotSent)
			if sent != tc.sends || o.Withheld == tc.sends || refused == tc.sends ||
				sent && !o.SentAt.Equal(providers.InstantOf(x.c.now)) {
				t.Errorf("%s: got %d power-offs, outcome %+v; want it sent: %v", tc.name, m.off, o, tc.sends)
			}
			if took := time.Since(begun); took > pauseRead {
				t.Errorf("%s: it took %s, want %s at most", tc.name, took, pauseRead)
			}
			if err := m.still(); !errors.Is(err, errCallOver) {
				t.Errorf("%s: after the call: got %v, want %v", tc.name, err, errCallOver)
			}
			time.Sleep(2 * kube.Timeout) // a shared read of the pause goes on for whoever comes next
		})
	}
}
