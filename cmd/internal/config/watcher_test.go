package config

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestPoll sees what no watch sees: a folder that is replaced as a whole, where the file appears later.
func TestPoll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sub", "config.yaml")
	told := make(chan any, 10)
	w := watcher{
		file: file, quiet: 10 * time.Millisecond, poll: 20 * time.Millisecond,
		onGood: func(c *Config) { told <- c }, onBad: func(err error) { told <- err },
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got %v, want nil", err)
		}
	}()
	next := func() any {
		select {
		case v := <-told:
			return v
		case <-time.After(20 * time.Second):
			t.Fatal("no outcome was reported")
			return nil
		}
	}
	if _, isErr := next().(error); !isErr {
		t.Fatal("got a configuration, want an error: there is no file")
	}
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	// Renamed into place, so that no reading sees half of it.
	if err := os.WriteFile(file+".new", []byte("mode: observe\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	if c, isConfig := next().(*Config); !isConfig || c.Mode != "observe" {
		t.Fatalf("got %v, want the configuration", c)
	}
}

// TestReadTellsOnce uses no clock. An outcome is reported once, and a good file again after a bad one.
func TestReadTellsOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	var told []string
	w := watcher{
		file: file, onGood: func(c *Config) { told = append(told, string(c.Mode)) },
		onBad: func(error) { told = append(told, "bad") },
	}
	const good, bad = "mode: observe\n", "mode: no\n"
	for _, step := range []struct {
		text string // "" removes the file
		want []string
	}{
		{good, []string{"observe"}},
		{good, nil},
		{good + "# changed\n", []string{"observe"}},
		{bad, []string{"bad"}},
		{bad, nil},
		{"powerOffAfter: 1\n", []string{"bad"}},
		{"", []string{"bad"}},
		{"", nil},
		{good, []string{"observe"}},
		{"", []string{"bad"}},
		{good, []string{"observe"}},
	} {
		var err error
		if step.text == "" {
			_ = os.Remove(file)
		} else {
			err = os.WriteFile(file, []byte(step.text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		told = nil
		w.read()
		if !slices.Equal(told, step.want) {
			t.Errorf("after %q: got %q, want %q", step.text, told, step.want)
		}
	}
}
