package config_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
)

const (
	fileA   = "mode: observe\npowerOffAfter: 21s\n"
	fileB   = "mode: observe\npowerOffAfter: 22s\n"
	fileC   = "mode: observe\npowerOffAfter: 23s\n"
	fileBad = "mode: observe\npowerOffAfter: 1s\n"
)

// watching is a running Watch; told receives a *config.Config or an error per call.
type watching struct {
	t    *testing.T
	told chan any
}

func watch(t *testing.T, file string) watching {
	t.Helper()
	w := watching{t, make(chan any, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- config.Watch(ctx, file, configtest.Types(),
			func(c *config.Config) { w.told <- c },
			func(err error) { w.told <- err })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch: got %v, want nil", err)
		}
		close(w.told)
		for more := range w.told {
			t.Errorf("told %v after all was expected", more)
		}
		goleak.VerifyNone(t)
	})
	return w
}

// next waits for the next call.
func (w watching) next() any {
	w.t.Helper()
	select {
	case v := <-w.told:
		return v
	case <-time.After(2 * time.Minute): // without inotify a file is read every 30 s
		w.t.Fatal("no outcome was reported")
		return nil
	}
}

func (w watching) good(after time.Duration) {
	w.t.Helper()
	if c, ok := w.next().(*config.Config); !ok || c.PowerOffAfter != after {
		w.t.Fatalf("got %+v, want the configuration with powerOffAfter %s", c, after)
	}
}

func (w watching) bad() error {
	w.t.Helper()
	v := w.next()
	err, ok := v.(error)
	if !ok {
		w.t.Fatalf("got %+v, want an error", v)
	}
	return err
}

// write puts a file in place by renaming, so that no reading sees half of it.
func write(t *testing.T, file, text string) {
	t.Helper()
	part := filepath.Join(t.TempDir(), "part")
	do(t, os.WriteFile(part, []byte(text), 0o600))
	do(t, os.Rename(part, file))
}

// overwrite changes a file in place, in one write: the texts have one length.
func overwrite(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	do(t, err)
	_, err = f.WriteString(text)
	do(t, err)
	do(t, f.Close())
}

// do fails the test on an error.
func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWatch changes a file in every way a file changes. Where nothing may be told, the next thing told shows that
// nothing was.
func TestWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, fileA)
	w := watch(t, file)
	w.good(21 * time.Second)

	overwrite(t, file, fileB)
	w.good(22 * time.Second)

	write(t, file, fileB) // the same again
	write(t, filepath.Join(filepath.Dir(file), "other"), "x")
	write(t, file, fileA)
	w.good(21 * time.Second)

	write(t, file, fileBad)
	var errs config.Errors
	if err := w.bad(); !errors.As(err, &errs) || errs[0].Line != 2 {
		t.Fatalf("got %v, want Errors on line 2", err)
	}
	write(t, file, fileBad) // once per content
	write(t, file, fileC)
	w.good(23 * time.Second)

	do(t, os.Remove(file))
	if err := w.bad(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want fs.ErrNotExist", err)
	}
	write(t, file, fileC) // what is in force: told, since the trouble is over
	w.good(23 * time.Second)
}

// TestWatchConfigMap does to a folder what a kubelet does when a ConfigMap changes.
func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	publish := func(version, text string) {
		t.Helper()
		do(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "config.yaml"), text)
		do(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		do(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	publish("..2024_1", fileA)
	do(t, os.Symlink(filepath.Join("..data", "config.yaml"), file))
	w := watch(t, file)
	w.good(21 * time.Second)

	publish("..2024_2", fileB)
	do(t, os.RemoveAll(filepath.Join(dir, "..2024_1")))
	w.good(22 * time.Second)

	publish("..2024_3", fileB) // another key of the map changed
	publish("..2024_4", fileC)
	w.good(23 * time.Second)

	publish("..2024_5", fileBad)
	w.bad()
	publish("..2024_6", fileA)
	w.good(21 * time.Second)
}

// TestWatchLinked changes the file that a link elsewhere leads to.
func TestWatchLinked(t *testing.T) {
	target, link := filepath.Join(t.TempDir(), "target.yaml"), filepath.Join(t.TempDir(), "config.yaml")
	write(t, target, fileA)
	do(t, os.Symlink(target, link))
	w := watch(t, link)
	w.good(21 * time.Second)
	overwrite(t, target, fileB)
	w.good(22 * time.Second)
}

func TestWatchBeginsWithoutFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	w := watch(t, file)
	w.bad()
	write(t, file, fileA)
	w.good(21 * time.Second)
}
