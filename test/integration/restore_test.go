package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// lostRevisions are made after the backup: more than the cluster makes in the minutes after the restore.
const lostRevisions = 5000

// etcd is restored from a backup and counts on from there. forcefence keeps its Lease, and its watches bring nothing
// any more. After a minute it reports that and ends, and the next process sees what changed.
func TestRestoredEtcdOnServer(t *testing.T) {
	w := newWorld(t, plan{nodes: 2, own: &cluster.Options{NodeGrace: cluster.FastNodeGrace}})
	h := w.hosts[0]
	// It survives two outages, as a standby survives any.
	set := settings{Mode: "fence", Lease: "leaseDuration: 120s, renewDeadline: 100s, retryPeriod: 1s", Mortal: true}
	c := w.start(set)
	w.untilPinned(h)

	backup := filepath.Join(w.dir, "backup")
	w.withoutEtcd(func(data string) { kit.Must(t, os.CopyFS(backup, os.DirFS(data))) })
	w.makeRevisions(lostRevisions)
	w.kubectl("label", "node", h.Name(), "lost=") // so that the watch of Nodes gets past the backup, too
	w.during(12*time.Second, "a live read of the Lease, which is made every 10 s", func() error {
		if !c.running() {
			return fmt.Errorf("it ended with status %d", c.ExitCode())
		}
		return nil
	})
	lost := w.revision()
	w.withoutEtcd(func(data string) {
		kit.Must(t, os.RemoveAll(data))
		kit.Must(t, os.Rename(backup, data))
	})
	restored := time.Now()
	if now := w.revision(); now >= lost {
		t.Fatalf("revision after the restore: got %d, want one before %d", now, lost)
	}

	// A watch from before waits for the future: it brings no change, and no error.
	from := metav1.ListOptions{ResourceVersion: fmt.Sprint(lost), AllowWatchBookmarks: true}
	silent, err := w.Client().CoreV1().Nodes().Watch(w.ctx, from)
	kit.Must(t, err)
	defer silent.Stop()
	w.kubectl("label", "node", h.Name(), taint.PinLabel+"-")

	w.until("the process ends", func() bool { return !c.running() })
	if took := time.Since(restored); took < time.Minute {
		t.Errorf("it ended %s after the restore, want a minute at least", took.Round(time.Second))
	}
	if c.ExitCode() != 1 || !c.log.has("etcd was restored from an older backup") {
		t.Errorf("got exit status %d, want 1 and a log that says why", c.ExitCode())
	}
	w.untilEvent("Lease", "forcefence", "WatchesBehind")
	if len(silent.ResultChan()) > 0 {
		t.Errorf("the watch from before: got %v, want nothing", <-silent.ResultChan())
	}
	if w.node(h).Labels[taint.PinLabel] != "" {
		t.Error("the label was set again: the process saw the change, so its watches are not behind")
	}
	if now := w.revision(); now >= lost {
		t.Fatalf("revision at the end: got %d, want one before %d: too few were lost", now, lost)
	}
	if err := w.othersAlone(nil); err != nil {
		t.Error(err)
	}

	w.start(set)
	w.untilPinned(h)
}

// withoutEtcd stops the control plane, does something with etcd's data, and starts it again: after a restore from a
// backup all of it has to be restarted. A controller-manager with watches from before would take every node for silent.
func (w *world) withoutEtcd(do func(data string)) {
	w.t.Helper()
	parts := w.Parts()
	for _, p := range slices.Backward(parts) {
		p.Stop()
	}
	do(filepath.Join(w.Dir(), "etcd"))
	for _, p := range parts {
		kit.Must(w.t, p.Start(w.ctx))
	}
}

// revision is etcd's.
func (w *world) revision() int {
	w.t.Helper()
	list, err := w.Client().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{Limit: 1})
	kit.Must(w.t, err)
	n, err := strconv.Atoi(list.ResourceVersion)
	kit.Must(w.t, err)
	return n
}

// makeRevisions changes ConfigMaps so many times.
func (w *world) makeRevisions(count int) {
	w.t.Helper()
	const writers = 8
	g, ctx := errgroup.WithContext(w.ctx)
	maps := w.Client().CoreV1().ConfigMaps(w.ns)
	for i := range writers {
		g.Go(func() error {
			name := fmt.Sprintf("revisions-%d", i)
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
				return err
			}
			for n := range count / writers {
				patch := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n)
				if _, err := maps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	kit.Must(w.t, g.Wait())
}
