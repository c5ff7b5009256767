package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
)

// busy is a Node that somebody else writes just before each of our first writes.
type busy struct {
	client.Client
	times int
}

func (b *busy) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if _, ok := o.(*corev1.Node); ok && b.times > 0 {
		b.times--
		other := &corev1.Node{}
		other.Name = o.GetName()
		touch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"touched":"`+time.Now().String()+`"}}}`))
		if err := b.Client.Patch(ctx, other, touch); err != nil {
			return err
		}
	}
	return b.Client.Patch(ctx, o, p, opts...)
}

// A node that lives is written by its kubelet and others: a release does not give up for that, nor does it overwrite what they wrote.
func TestReleaseOfABusyNode(t *testing.T) {
	c := admin(t)
	for _, tc := range []struct {
		times int
		fails bool
	}{{0, false}, {releaseTries - 1, false}, {releaseTries, true}} {
		n := newNode(t, c)
		_, l, err := Look(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		rec := taint.Record{ID: "f-1", NodeUID: string(n.UID), By: "test"}.Enter(taint.PhaseArmed, "", time.Now())
		if err := (late{}).writer(c).arm(t.Context(), l, rec); err != nil {
			t.Fatal(err)
		}
		told, err := Release(t.Context(), &busy{c, tc.times}, n.Name, taint.DefaultKey, true, time.Now)
		if (err != nil) != tc.fails {
			t.Errorf("changed %d times: got %q, error %v", tc.times, told, err)
		}
		_, l, err = Look(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
		if err != nil || (l.Mark != nil) != tc.fails {
			t.Errorf("changed %d times: got mark %v, error %v", tc.times, l.Mark, err)
		}
	}
}
