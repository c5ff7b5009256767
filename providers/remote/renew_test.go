package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

func TestMustRenew(t *testing.T) {
	made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := remote.LogIn{Sum: remote.CredentialHash{1}, At: made}
	for _, tt := range []struct {
		name string
		ctx  func(context.Context) context.Context
		sum  remote.CredentialHash
		age  time.Duration
		want bool
	}{
		{"a drill", providers.ForDrill, l.Sum, time.Hour - 1, false},
		{"a drill after an hour", providers.ForDrill, l.Sum, time.Hour, true},
		{"a drill with another credential", providers.ForDrill, remote.CredentialHash{2}, 0, true},
		{"a drill after the clock was set back", providers.ForDrill, l.Sum, -1, true},
		{"a fence after a day", context.WithoutCancel, l.Sum, 24 * time.Hour, false},
		{"a fence with another credential", context.WithoutCancel, remote.CredentialHash{2}, 0, false},
	} {
		if got := l.MustRenew(tt.ctx(t.Context()), tt.sum, made.Add(tt.age)); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}
