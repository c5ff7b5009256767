//go:build unix

package store

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Kind is what happened.
type Kind string

// Kinds of events. Only those up to Off change what Violations knows.
const (
	Publish   Kind = "publish"   // the storage gives the volume to the node
	Unpublish Kind = "unpublish" // the storage takes it away
	Mount     Kind = "mount"     // the node is about to mount the disk: it counts from here
	Unmount   Kind = "unmount"   // it is unmounted, or was not mounted after all
	Boot      Kind = "boot"      // a node half starts on this boot; all earlier boots of its node are over
	// written by the one that cut the power: this boot is over, after the last process has ended
	Off     Kind = "off"
	Busy    Kind = "busy"    // the node may mount, but the disk is still mounted somewhere
	Refused Kind = "refused" // the node may not mount: the volume is not published to it
)

// Event is one line of the log.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   Kind      `json:"kind"`
	Node   string    `json:"node,omitempty"`
	Boot   string    `json:"boot,omitempty"`
	Volume string    `json:"volume,omitempty"`
	Result string    `json:"result,omitempty"` // what went wrong
}

// Append writes an event, now. One write to a file opened for appending is not torn by others.
func (s *Store) Append(e Event) error {
	e.Time = time.Now().UTC()
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing log: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}

// Log returns all events in order; none if there is no log yet.
func (s *Store) Log() ([]Event, error) {
	f, err := os.Open(filepath.Join(s.dir, "log"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return out, fmt.Errorf("reading log: line %d: %w", n, err)
		}
		out = append(out, e)
	}
	return out, lines.Err()
}

// boot is one life of a node.
type boot struct{ node, id string }

// Violations says what in a log must never happen on storage with a single writer. A mount ends by its unmount, by an
// Off of its boot, or by a later boot of its node. It is a function of the log alone.
func Violations(log []Event) []string {
	var out []string
	mounts := map[string]map[boot]bool{} // volume -> where it is mounted
	published := map[string]string{}     // volume -> node
	over := map[boot]bool{}
	end := func(gone func(boot) bool) {
		for _, m := range mounts {
			for b := range m {
				if gone(b) {
					delete(m, b)
				}
			}
		}
	}
	for _, e := range log {
		b := boot{e.Node, e.Boot}
		say := func(format string, args ...any) {
			out = append(out, e.Time.Format(time.RFC3339Nano)+" volume "+e.Volume+": "+fmt.Sprintf(format, args...))
		}
		others := func() (o []string) {
			for m := range mounts[e.Volume] {
				if m != b {
					o = append(o, m.node+" (boot "+m.id+")")
				}
			}
			return o
		}
		switch e.Kind {
		case Boot:
			end(func(m boot) bool { return m.node == e.Node && m.id != e.Boot })
		case Off:
			over[b] = true
			end(func(m boot) bool { return m == b })
		case Publish:
			if was := published[e.Volume]; was != "" && was != e.Node {
				say("published to %s while published to %s", e.Node, was)
			}
			published[e.Volume] = e.Node
		case Unpublish:
			for m := range mounts[e.Volume] {
				if e.Node == m.node {
					say("unpublished from %s while mounted there (boot %s)", e.Node, m.id)
				}
			}
			if published[e.Volume] == e.Node {
				delete(published, e.Volume)
			}
		case Mount:
			if over[b] {
				say("mounted on %s (boot %s), which was said to be off", e.Node, e.Boot)
			}
			if got := published[e.Volume]; got != e.Node {
				say("mounted on %s while published to %q", e.Node, got)
			}
			for _, o := range others() {
				say("mounted on %s (boot %s) while mounted on %s", e.Node, e.Boot, o)
			}
			if mounts[e.Volume] == nil {
				mounts[e.Volume] = map[boot]bool{}
			}
			mounts[e.Volume][b] = true
		case Unmount:
			delete(mounts[e.Volume], b)
		case Busy:
			// The kernel's word, not the log's. Where the holder is over for the log, its mount is about to be torn
			// down.
			for _, o := range others() {
				say("given to %s (boot %s) while mounted on %s", e.Node, e.Boot, o)
			}
		case Refused:
		}
	}
	return out
}
