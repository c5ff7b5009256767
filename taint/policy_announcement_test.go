package taint

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
)

// An announcement holds for its policy and word, and for this period of the node being not Ready.
func TestAnnounced(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	down := func(since time.Time) {
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				LastTransitionTime: metav1.NewTime(since.Truncate(time.Second))}}
	}
	look := func() Look { return NewLook(node, nil, DefaultKey, providers.InstantOf(at), providers.InstantOf(at)) }
	down(at)
	if look().HasAnnounced("p", "word") {
		t.Error("a node without the annotation has a policy")
	}
	node.Annotations = map[string]string{PolicyAnnotation: look().EncodeAnnouncement("p", "word", at)}
	want := []Unproven{
		{Policy: "p", WithoutProof: "word", NodeUID: "u", Since: at.Truncate(time.Second),
			At: at.Truncate(time.Second)}}
	if diff := cmp.Diff(want, look().Unproven); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, change := range map[string]func(l *Look) bool{
		"itself":        func(l *Look) bool { return l.HasAnnounced("p", "word") },
		"other policy":  func(l *Look) bool { return !l.HasAnnounced("q", "word") },
		"other word":    func(l *Look) bool { return !l.HasAnnounced("p", "other") },
		"other node":    func(l *Look) bool { l.UID = "v"; return !l.HasAnnounced("p", "word") },
		"ready between": func(l *Look) bool { l.ReadySince = at.Add(time.Hour); return !l.HasAnnounced("p", "word") },
		"no condition":  func(l *Look) bool { l.ReadySince = time.Time{}; return !l.HasAnnounced("p", "word") },
	} {
		if l := look(); !change(&l) {
			t.Errorf("%s: got another answer", name)
		}
	}
	// Each policy once, the newest ones, for any content of the annotation.
	long := strings.Repeat("x", 63)
	for i := range 20 {
		down(at.Add(time.Duration(i) * time.Hour))
		for _, p := range []string{"p", fmt.Sprint(long, i)} {
			node.Annotations[PolicyAnnotation] = look().EncodeAnnouncement(p, "accept-duplicates", at)
			if !look().HasAnnounced(p, "accept-duplicates") {
				t.Fatalf("%d: %s was announced, and is not", i, p)
			}
		}
	}
	if l := look(); len(l.Unproven) != maxUnproven || !l.HasAnnounced("p", "accept-duplicates") ||
		len(node.Annotations[PolicyAnnotation]) > 2<<10 {
		t.Errorf("got %d bytes: %s", len(node.Annotations[PolicyAnnotation]), node.Annotations[PolicyAnnotation])
	}
	node.Annotations[PolicyAnnotation] = "{half a"
	if look().Unproven != nil || look().EncodeAnnouncement("p", "word", at) == "" {
		t.Errorf("one that cannot be read: got %v", look().Unproven)
	}
}
