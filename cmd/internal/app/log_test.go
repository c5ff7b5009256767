package app

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An Event that a namespace does not take because it is being deleted is no error; every other refusal stays one.
func TestEventsOfEndingNamespaces(t *testing.T) {
	refused := func(causes ...metav1.StatusCause) error {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "e", errors.New("no"))
		err.ErrStatus.Details.Causes = causes
		return err
	}
	ends := refused(metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	for _, tc := range []struct {
		name, message string
		err           error
		level         slog.Level // of the log
		want          string     // "" is none
	}{
		{"namespace ends", rejectedEvent, ends, slog.LevelInfo, ""},
		{"namespace ends, debug", rejectedEvent, ends, slog.LevelDebug, "DEBUG"},
		{"forbidden", rejectedEvent, refused(), slog.LevelInfo, "ERROR"},
		{"another text", "Unable to write event", ends, slog.LevelInfo, "ERROR"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			text := slog.NewTextHandler(&b, &slog.HandlerOptions{Level: tc.level})
			log := logr.FromSlogHandler(quietLog{text, t.Context()})
			log.WithName("events").WithValues("a", "b").Error(tc.err, tc.message, "event", "e")
			if got := b.String(); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want level %q", got, tc.want)
			}
		})
	}
}
