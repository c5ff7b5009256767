package kit

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// Until waits until something is so, and ends the test where it is not within two minutes: other packages' tests share
// the machine.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	const often, rarely = 5 * time.Millisecond, 50 * time.Millisecond
	pause := often
	for deadline := time.Now().Add(2 * time.Minute); !so(); time.Sleep(pause) {
		pause = min(pause+pause/16, rarely)
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// Log is a log that is read while it is written. The zero value is an empty one.
type Log struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
