package remote_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// device is a device of a Pool: how often it was expired, and for how long it is remembered then.
type device struct {
	expired  int
	remember time.Duration
}

func newPool(remember time.Duration) *remote.Pool[*device] {
	return remote.NewPool(time.Minute, func(remote.Account) *device { return &device{remember: remember} },
		func(d *device) time.Duration { d.expired++; return d.remember })
}

// expired returns how often d was expired.
func expired(p *remote.Pool[*device], d *device) int {
	p.Lock()
	defer p.Unlock()
	return d.expired
}

var anAccount = remote.Account{Device: "bmc1"}

// An unused device is expired after Idle and then forgotten, at once or later. A device in use is neither.
func TestPoolExpires(t *testing.T) {
	for _, tt := range []struct{ remember, left time.Duration }{{0, 0}, {time.Hour, time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPool(tt.remember)
			d, release, err := p.Acquire(anAccount)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			again, releaseAgain, err := p.Acquire(anAccount)
			if err != nil || again != d || expired(p, d) != 0 {
				t.Fatalf("got %p expired %d times, %v; want the same device", again, expired(p, d), err)
			}
			release()
			time.Sleep(time.Hour)
			releaseAgain()
			time.Sleep(time.Minute - 1)
			if synctest.Wait(); expired(p, d) != 0 {
				t.Error("expired before Idle was over")
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if n := expired(p, d); n != 1 {
				t.Errorf("expired %d times after Idle, want once", n)
			}
			if tt.left > 0 {
				time.Sleep(tt.left - 1)
				if synctest.Wait(); p.Len() != 1 {
					t.Error("forgotten early")
				}
				time.Sleep(time.Nanosecond)
			}
			if synctest.Wait(); p.Len() != 0 {
				t.Error("the device is not forgotten")
			}
		})
	}
}

// Owners have devices of their own.
func TestPoolSeparatesOwners(t *testing.T) {
	p := newPool(0)
	a, _, err := p.Acquire(remote.Account{Device: "bmc1", Owner: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if b, _, err := p.Acquire(remote.Account{Device: "bmc1", Owner: "n2"}); err != nil || a == b {
		t.Errorf("got the same device for two owners, %v", err)
	}
}

// A task outlives the call that began it and keeps its device in use. Its panic and its timeout are errors with a
// class.
func TestPoolTask(t *testing.T) {
	for name, tt := range map[string]struct {
		f     func(context.Context) (int, error)
		class error
		text  string
	}{
		"answer":  {func(context.Context) (int, error) { time.Sleep(30 * time.Second); return 7, nil }, nil, ""},
		"panic":   {func(context.Context) (int, error) { panic("oh") }, providers.ErrPermanent, "log-in panicked: oh"},
		"timeout": {waitForEnd, providers.ErrUnreachable, "no answer to the log-in within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(0)
				_, release, err := p.Acquire(anAccount)
				if err != nil {
					t.Fatal(err)
				}
				p.Lock()
				task := remote.BeginTask(p.Ending, p, anAccount, "log-in", time.Minute, tt.f)
				p.Unlock()
				release()
				got, err := task.Wait(t.Context())
				if !errors.Is(err, tt.class) || tt.class == nil && got != 7 ||
					err != nil && !strings.Contains(err.Error(), tt.text) {
					t.Errorf("got %d, %v; want %v with %q", got, err, tt.class, tt.text)
				}
				if synctest.Wait(); !task.HasEnded() || p.Len() != 1 {
					t.Errorf("ended %t, %d devices", task.HasEnded(), p.Len())
				}
				time.Sleep(time.Minute)
				if synctest.Wait(); p.Len() != 0 {
					t.Error("the device is not forgotten after the task")
				}
			})
		})
	}
}

func waitForEnd(ctx context.Context) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// Close ends what runs, names the devices whose sessions cannot be closed, and refuses further calls and tasks.
func TestPoolClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(time.Hour)
		_, release, err := p.Acquire(anAccount)
		if err != nil {
			t.Fatal(err)
		}
		release()
		_, _, err = p.Acquire(remote.Account{Device: "bmc2"})
		if err != nil {
			t.Fatal(err)
		}
		p.Lock()
		running := remote.BeginTask(p.Running, p, anAccount, "look-up", time.Hour, waitForEnd)
		ending := remote.BeginTask(p.Ending, p, anAccount, "log-in", time.Hour, waitForEnd)
		p.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		err = p.Close(ctx, func(*device) error { return errors.New("no answer") })
		for _, want := range []string{"close session on bmc1: no answer", "close session on bmc2: no answer"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		if took := time.Since(begun); took != time.Second || !running.HasEnded() || !ending.HasEnded() {
			t.Errorf("closed after %s; tasks have ended: %t, %t", took, running.HasEnded(), ending.HasEnded())
		}
		if _, _, err := p.Acquire(anAccount); !errors.Is(err, remote.ErrClosed) {
			t.Errorf("acquired after Close: %v", err)
		}
		p.Lock()
		late := remote.BeginTask(p.Ending, p, anAccount, "log-in", time.Hour, waitForEnd)
		p.Unlock()
		if _, err := late.Wait(t.Context()); !errors.Is(err, remote.ErrClosed) {
			t.Errorf("begun after Close: %v", err)
		}
	})
}
