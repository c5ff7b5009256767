package install

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/test/kit"
)

// TestInstallOnAnotherBoot checks that nothing is installed while the Node reports another boot than the machine's: the
// hook would hold every ordinary pod for ever. Install waits for a kubelet that has just booted and will report.
func TestInstallOnAnotherBoot(t *testing.T) {
	after := func(n int, boot string) func(int) (string, error) {
		return func(read int) (string, error) {
			if read < n {
				return "boot-0", nil
			}
			return boot, nil
		}
	}
	for name, tt := range map[string]struct {
		boot func(read int) (string, error) // what the Node reports when it is read, from 0
		want string                         // of the error
		took time.Duration
	}{
		"the machine's":        {after(0, "boot-1"), "", 0},
		"reported in a moment": {after(5, "boot-1"), "", 5 * time.Second},
		"reported at the last": {after(30, "boot-1"), "", 30 * time.Second},
		"of another boot for good": {after(0, "boot-0"),
			`reports boot ID "boot-0" after 30s, but this machine's is "boot-1"`, 30 * time.Second},
		"never reported": {after(0, ""), `reports boot ID "" after 30s, but this machine's is "boot-1"`,
			30 * time.Second},
		"the API server went away": {func(read int) (string, error) { return "boot-0", errIf(read > 2, "no route") },
			"comparing boots: reading Node n1: no route", 3 * time.Second},
		"what to do, in the refusal": {after(0, "boot-0"), "--boot-id-file", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			synctest.Test(t, func(t *testing.T) {
				read := 0
				tell := func() (*corev1.Node, error) {
					boot, err := tt.boot(read)
					read++
					return l.nodeOf(boot), err
				}
				l.opts.connect = func(context.Context, nri.Config, string) (rest.Interface, *corev1.Node, error) {
					n, err := tell()
					return nil, n, err
				}
				l.opts.node = func(context.Context, rest.Interface, string) (*corev1.Node, error) { return tell() }
				before, began := l.tree(true), time.Now()
				_, err := Install(t.Context(), l.opts)
				if took := time.Since(began); took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
				if tt.want == "" {
					kit.Must(t, err)
					return
				}
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got error %v, want %q", err, tt.want)
				}
				if diff := cmp.Diff(before, l.tree(true)); diff != "" {
					t.Errorf("it left something:\n%s", diff)
				}
			})
		})
	}
}

func errIf(is bool, text string) error {
	if !is {
		return nil
	}
	return errors.New(text)
}
