package install

import (
	"cmp"
	"fmt"
	"io"
	"iter"
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

// findProcesses returns the runtime's processes that run now.
func (h Host) findProcesses(s Site) []process {
	s, _ = h.resolve(s)
	return s.processes
}

// hostProcesses reads the processes that findSite needs: process 1 first, then those that may be a kubelet or a
// runtime. It keeps none of the others, and reads only so much of what a process writes about itself.
func (h Host) hostProcesses() iter.Seq[hostProcess] {
	return func(yield func(hostProcess) bool) {
		dir, err := os.Open(h.procFile(""))
		if err != nil {
			return
		}
		defer dir.Close()
		if p, ok := h.readProcess(1); ok && !yield(p) {
			return
		}
		for {
			names, err := dir.Readdirnames(256)
			for _, name := range names {
				pid, bad := strconv.Atoi(name)
				if bad != nil || pid == 1 {
					continue
				}
				if p, ok := h.readProcess(pid); ok && !yield(p) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// readProcess reads one process. One that has ended, and one that findSite does not need, is not ok.
func (h Host) readProcess(pid int) (p hostProcess, ok bool) {
	read := func(name string) string {
		f, err := os.Open(h.procFile(strconv.Itoa(pid) + "/" + name))
		if err != nil {
			return ""
		}
		defer f.Close()
		text, _ := io.ReadAll(io.LimitReader(f, procBound))
		return string(text)
	}
	p.PID = pid
	p.argv = strings.Split(strings.TrimRight(read("cmdline"), "\x00"), "\x00")
	if kubelet, runtime := p.servesPods(); !kubelet && !runtime && pid != 1 {
		return p, false
	}
	for line := range strings.Lines(read("status")) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Uid":
			p.uids = value
		case "NSpid":
			p.depth = len(strings.Fields(value))
		}
	}
	p.cgroup = read("cgroup")
	p.exe, _ = os.Readlink(h.procFile(strconv.Itoa(pid) + "/exe"))
	p.parent, p.Start, ok = parseStat(read("stat"))
	return p, ok
}

// procBound bounds what is read of one file of a process. A command line may be longer.
const procBound = 64 << 10

// parseStat parses /proc/PID/stat: behind the command in parentheses, which may contain spaces and parentheses itself,
// the parent and field 22. A process that has ended, and whose parent has not asked, is not ok.
func parseStat(stat string) (parent int, start uint64, ok bool) {
	const startField = 22 - 3 // the first field behind the command is the third
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if !strings.Contains(stat, "(") || len(fields) <= startField || fields[0] == "Z" {
		return 0, 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	start, bad := strconv.ParseUint(fields[startField], 10, 64)
	return parent, start, err == nil && bad == nil
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
