//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// readmeCommands are the two commands that README shows a newcomer, without their comments.
func readmeCommands(readme string) ([]string, error) {
	const fence = "\n```sh test=fresh\n"
	_, after, found := strings.Cut(readme, fence)
	if !found || strings.Contains(after, fence) {
		return nil, fmt.Errorf("has not one block of commands that begins with %q", strings.TrimSpace(fence))
	}
	block, _, _ := strings.Cut(after, "\n```")
	var commands []string
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(line, "#")
		commands = append(commands, strings.TrimSpace(line))
	}
	if len(commands) != 2 {
		return nil, fmt.Errorf("shows a newcomer %d commands, not two", len(commands))
	}
	return commands, nil
}

// record is minutes.json: what README's commands took, on which machine and when.
type record struct {
	Cold *recordedRun `json:"cold"` // with an empty build cache
	Warm *recordedRun `json:"warm"`
}

type recordedRun struct {
	Date     string        `json:"date"`
	Commit   string        `json:"commit"`
	Cores    int           `json:"cores"`
	CPU      string        `json:"cpu"`
	Commands []commandTime `json:"commands"`
}

// recordRun writes one run into the file, beside the other kind of run.
func recordRun(file string, cold bool, commands []commandTime) error {
	var all record
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("asking git for the commit: %w", err)
	}
	this := &recordedRun{Date: time.Now().UTC().Format(time.DateOnly), Commit: strings.TrimSpace(string(commit)),
		Cores: runtime.NumCPU(), CPU: cpuModel(), Commands: commands}
	if cold {
		all.Cold = this
	} else {
		all.Warm = this
	}
	out, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(out, '\n'), 0o644)
}

// cpuModel is the kernel's name of the first core; "" if it has none.
func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, " \t:"))
		}
	}
	return ""
}

// minutesOf are the minutes of a command; 0 if the run has none.
func (r *recordedRun) minutesOf(command string) float64 {
	for _, c := range r.Commands {
		if c.Command == command {
			return c.Minutes
		}
	}
	return 0
}
