package config

import (
	"fmt"
	"strings"
)

// faults collects what is wrong with one file.
type faults struct {
	file  string
	errs  Errors
	lines map[string]int    // path -> line of its key, or of a list's item; what the environment sets has none
	bad   map[string]bool   // paths with a fault: report adds nothing about them and the paths below them
	env   map[string]string // path -> the environment variable that set it
}

func (f *faults) add(line int, path, problem string) {
	f.errs = append(f.errs, Error{File: f.file, Line: max(line, 1), Path: path, Problem: problem})
}

// fault adds a fault at a line. Later reports about the same path are ignored.
func (f *faults) fault(line int, path, format string, args ...any) {
	f.add(line, path, fmt.Sprintf(format, args...))
	f.bad[path] = true
}

// report adds what is wrong with a value, unless its path or one above it has a fault already.
func (f *faults) report(path, format string, args ...any) {
	line := 0
	for p := path; ; p = parent(p) {
		if f.bad[p] {
			return
		}
		if line == 0 {
			line = f.lines[p]
		}
		if p == "" {
			break
		}
	}
	problem := fmt.Sprintf(format, args...)
	if name := f.env[path]; name != "" {
		f.addVariable(name, path, problem)
		return
	}
	f.add(line, path, problem)
}

// addVariable adds a fault of an environment variable. No line of the file is wrong.
func (f *faults) addVariable(name, path, problem string) {
	f.errs = append(f.errs, Error{File: "environment variable " + name, Path: path, Problem: problem})
}

// reportIf reports a problem at path if wrong is true.
func (f *faults) reportIf(wrong bool, path, format string, args ...any) {
	if wrong {
		f.report(path, format, args...)
	}
}

// warn adds a warning: the value at path is valid, but risky.
func (f *faults) warn(c *Config, path, problem string) {
	c.warnings = append(c.warnings,
		Error{File: f.file, Line: max(f.lines[path], 1), Path: path, Problem: "warning: " + problem})
}

// given reports whether the file has the key at path. A value of the environment does not count.
func (f *faults) given(path string) bool {
	_, ok := f.lines[path]
	return ok
}

func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

func join(path, key string) string {
	if path == "" || key == "" {
		return path + key
	}
	return path + "." + key
}

func item(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
