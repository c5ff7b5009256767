package install

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ticks is USER_HZ, the unit of start times in procfs: 100 on every architecture that Linux and Kubernetes share.
const ticks = 100

// process is one process of the runtime. Its start, in ticks since boot, differs from that of a later process with the
// same pid, and does not depend on the wall clock.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

func (h Host) procFile(name string) string { return filepath.Join(cmp.Or(h.Proc, "/proc"), name) }

// findProcesses returns the runtime's processes. A process of that name in a container counts as well: that can only
// report a restart as due that is not.
func (h Host) findProcesses(name RuntimeName) []process {
	files, _ := filepath.Glob(h.procFile("[0-9]*/stat")) // the pattern is well formed
	var found []process
	for _, file := range files {
		pid, bad := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		stat, err := os.ReadFile(file)
		if bad != nil || err != nil { // it has ended
			continue
		}
		if command, start, ok := parseStat(stat); ok && command == kinds[name].process {
			found = append(found, process{PID: pid, Start: start})
		}
	}
	return found
}

// parseStat parses /proc/PID/stat: the command in parentheses, which may contain spaces and parentheses itself, and
// field 22.
func parseStat(stat []byte) (command string, start uint64, ok bool) {
	from, to := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if from < 0 || to < from {
		return "", 0, false
	}
	const startField = 22 - 3 // the first field behind the command is the third
	fields := strings.Fields(string(stat[to+1:]))
	if len(fields) <= startField || fields[0] == "Z" {
		return "", 0, false
	}
	start, err := strconv.ParseUint(fields[startField], 10, 64)
	return string(stat[from+1 : to]), start, err == nil
}

// startTime returns when the oldest of the processes started, on the wall clock, or zero if that is unknown.
func (h Host) startTime(ps []process) time.Time {
	text, _ := os.ReadFile(h.procFile("stat"))
	_, after, _ := strings.Cut(string(text), "\nbtime ")
	line, _, _ := strings.Cut(after, "\n")
	boot, err := strconv.ParseInt(line, 10, 64)
	if err != nil || len(ps) == 0 {
		return time.Time{}
	}
	first := slices.MinFunc(ps, func(a, b process) int { return cmp.Compare(a.Start, b.Start) })
	return time.Unix(boot, 0).Add(time.Duration(first.Start) * (time.Second / ticks))
}

func (h Host) bootID() (string, error) {
	id, err := os.ReadFile(h.procFile("sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("reading the machine's boot id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
