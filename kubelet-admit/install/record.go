package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// pendingFileName is a file in the state folder, which is lost with the boot.
const pendingFileName = "install.json"

// pendingState records what the running runtime has not read yet: it reads its configuration, and starts plugins, only
// when it starts. It is valid until the last of the recorded processes has ended. It uses no clock.
type pendingState struct {
	BootID    string    `json:"bootID"`
	Processes []process `json:"processes"`

	Plugin  bool `json:"plugin,omitempty"`  // the plugin was put in place
	Upgrade bool `json:"upgrade,omitempty"` // it was replaced by another version
	// Config: the drop-in was put in place, and the runtime did not require the plugin
	Config   bool `json:"config,omitempty"`
	Released bool `json:"released,omitempty"` // the drop-in was removed from a runtime that had read it

	// WhyNotRequired is why the last install did not make the runtime require the plugin, though it was asked to. It
	// outlives the processes.
	WhyNotRequired string `json:"whyNotRequired,omitempty"`
	WhyAlone       string `json:"whyAlone,omitempty"` // why it left the plugin out; this outlives them, too
}

// readPending returns the part of the pending state that is valid now. A file that cannot be read counts as empty: then
// the files' times decide.
func (h Host) readPending(stateDir string, now []process) pendingState {
	text, err := os.ReadFile(filepath.Join(stateDir, pendingFileName))
	if err != nil {
		return pendingState{}
	}
	var r pendingState
	boot, err := h.bootID()
	if json.Unmarshal(text, &r) != nil || err != nil || r.BootID != boot {
		return pendingState{}
	}
	if !slices.ContainsFunc(r.Processes, func(p process) bool { return slices.Contains(now, p) }) {
		return pendingState{WhyNotRequired: r.WhyNotRequired, WhyAlone: r.WhyAlone}
	}
	return r
}

// updatePending changes the pending state. Call it before the step that it announces: a crash between the two only asks
// for a restart that is not needed.
func (h Host) updatePending(s Site, change func(*pendingState)) error {
	now := h.findProcesses(s)
	r := h.readPending(s.StateDir, now)
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
	// Replaced by a rename within the folder: the runtime does not read it.
	file := filepath.Join(s.StateDir, pendingFileName)
	if err = h.writeFile(file+".new", 0o644, bytes.NewReader(text)); err == nil {
		err = h.commitFile(&staged{from: file + ".new", to: file})
	}
	if err != nil {
		return fmt.Errorf("recording what the runtime has not read yet: %w", err)
	}
	return nil
}

// hasChangedSince reports whether one of the files changed after the runtime's start, by the wall clock. A missing file
// did not change, and none did if the start is unknown (zero).
func hasChangedSince(start time.Time, files ...string) (bool, error) {
	const slack = 2 // seconds: the boot's time is known to a second, and a runtime reads its files after its start
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if err == nil && !start.IsZero() && info.ModTime().Unix() > start.Unix()+slack {
			return true, nil
		}
	}
	return false, nil
}
