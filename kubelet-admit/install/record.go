package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// recordName is in the state folder, which is lost with the boot.
const recordName = "install.json"

// record says what the running runtime does not know yet: a runtime reads its configuration, and starts plugins, when it starts. It
// names the runtime's processes of that time, and holds until the last of them has ended: no clock is asked.
type record struct {
	BootID    string    `json:"bootID"`
	Processes []process `json:"processes"`

	Plugin   bool `json:"plugin,omitempty"`   // the plugin was put in place
	Upgrade  bool `json:"upgrade,omitempty"`  // it was replaced by another version
	Config   bool `json:"config,omitempty"`   // the drop-in was put in place, and the runtime did not require the plugin
	Released bool `json:"released,omitempty"` // the drop-in was taken away from a runtime that had read it

	// WhyNotRequired is why the last install did not let the runtime require the plugin, though it was asked to. It outlives the
	// processes.
	WhyNotRequired string `json:"whyNotRequired,omitempty"`
}

// readRecord returns what holds of the record now. A record that cannot be read is none: the files' times tell as well.
func (h Host) readRecord(stateDir string, now []process) record {
	text, err := os.ReadFile(filepath.Join(stateDir, recordName))
	if err != nil {
		return record{}
	}
	var r record
	boot, err := h.bootID()
	if json.Unmarshal(text, &r) != nil || err != nil || r.BootID != boot {
		return record{}
	}
	if !slices.ContainsFunc(r.Processes, func(p process) bool { return slices.Contains(now, p) }) {
		return record{WhyNotRequired: r.WhyNotRequired}
	}
	return r
}

// note adds to the record, before that which it announces is done: a crash between the two leaves a restart due that is not.
func (h Host) note(stateDir string, name RuntimeName, change func(*record)) error {
	now := h.processes(name)
	r := h.readRecord(stateDir, now)
	if len(r.Processes) == 0 {
		boot, err := h.bootID()
		if err != nil {
			return err
		}
		r.BootID, r.Processes = boot, now
	}
	change(&r)
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Written in place of the old one by a rename within the folder: the runtime does not read it.
	file := filepath.Join(stateDir, recordName)
	if err := h.write(file+".new", 0o644, contentOf(text)); err != nil {
		return fmt.Errorf("noting what the runtime has not read yet: %w", err)
	}
	if err := h.commit(&staged{from: file + ".new", to: file}); err != nil {
		return fmt.Errorf("noting what the runtime has not read yet: %w", err)
	}
	return nil
}

// newer tells whether a file changed after the runtime started, as far as clocks tell; a file that is not there did not.
func newer(file string, h Host, ps []process) (bool, error) {
	const slack = 2 // seconds: the boot's time is known to a second, and a runtime reads its files after its start
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	start := h.began(ps)
	return !start.IsZero() && info.ModTime().Unix() > start.Unix()+slack, nil
}
