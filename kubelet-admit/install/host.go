package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stageName is a folder beside the one that a file goes into. It is usually on the same file system, and no other
// program reads it.
const stageName = ".forcefence-stage"

// Host is the machine to install on. The zero value is the machine that this process sees.
type Host struct {
	Proc string // where procfs is; "": /proc
	Path string // PATH of host programs; "": nri.DefaultPath
	// Exec runs a host program and returns its standard output. nil runs it as a child. The error contains what the
	// program wrote to stderr.
	Exec func(ctx context.Context, name string, args ...string) ([]byte, error)

	before func(op, path string) error // called before every change of a file; tests make it fail
}

// execTimeout limits one host program: a config dump takes 30 ms, a restart of a busy runtime some seconds.
const execTimeout = 90 * time.Second

func (h Host) runCommand(ctx context.Context, name string, args ...string) ([]byte, error) {
	if h.Exec != nil {
		return h.Exec(ctx, name, args...)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, execTimeout, fmt.Errorf("no end after %s", execTimeout))
	defer cancel()
	bin, err := h.findProgram(name)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, bin, args...)
	// Our own environment is the container's, whose paths mean nothing on the host. systemctl would take the changed
	// root for a chroot and do nothing; SYSTEMD_IGNORE_CHROOT says that this root is the host's.
	cmd.Env = []string{"PATH=" + h.searchPath(), "LC_ALL=C", "SYSTEMD_IGNORE_CHROOT=1"}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLines(stderr.String()))
	}
	return stdout.Bytes(), nil
}

func (h Host) searchPath() string {
	if h.Path != "" {
		return h.Path
	}
	return defaultPath
}

// findProgram finds a program as the host's own PATH would: exec.LookPath asks the environment of this process.
func (h Host) findProgram(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(h.searchPath()) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: %w in %s", name, exec.ErrNotFound, h.searchPath())
}

// lastLines returns the lines of a program's error output that a person needs.
func lastLines(s string) string {
	const most = 600
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = "..." + s[len(s)-most:]
	}
	return s
}

func (h Host) checkChange(op, path string) error {
	if h.before == nil {
		return nil
	}
	if err := h.before(op, path); err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// staged is a complete file that waits for its rename. nil is a file whose content is in place already.
type staged struct{ from, to string }

// stageFile writes a file beside its place, synced to disk. It returns nil if the content and the mode in place are the
// same.
func (h Host) stageFile(dst string, mode fs.FileMode, content func() (io.ReadCloser, error)) (*staged, error) {
	same, err := h.hasContent(dst, mode, content)
	if err != nil || same {
		return nil, err
	}
	dir := filepath.Dir(dst)
	if err := h.makeDir(dir); err != nil {
		return nil, err
	}
	s := &staged{from: filepath.Join(stageDir(dir), filepath.Base(dst)), to: dst}
	if err := h.writeFile(s.from, mode, content); err != nil {
		return nil, err
	}
	return s, nil
}

// stageDir returns the staging folder beside a folder. If the folder is a link, it lies beside the link's target.
func stageDir(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return filepath.Join(filepath.Dir(dir), stageName)
}

func (h Host) writeFile(file string, mode fs.FileMode, content func() (io.ReadCloser, error)) (err error) {
	if err := h.makeDir(filepath.Dir(file)); err != nil {
		return err
	}
	in, err := content()
	if err != nil {
		return err
	}
	defer in.Close()
	if err := h.checkChange("create", file); err != nil {
		return err
	}
	_ = os.Remove(file) // left by a crash: its mode and its links may be wrong
	// Not executable before it is complete, wherever it may be.
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := h.checkChange("write", file); err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := h.checkChange("sync", file); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	if err := h.checkChange("chmod", file); err != nil {
		return err
	}
	return out.Chmod(mode)
}

// commitFile renames a staged file into its place atomically, and syncs the folder.
func (h Host) commitFile(s *staged) error {
	if s == nil {
		return nil
	}
	if err := h.checkChange("rename", s.to); err != nil {
		return err
	}
	if err := os.Rename(s.from, s.to); err != nil {
		if errors.Is(err, syscall.EXDEV) {
			return fmt.Errorf("%w: %s is a file system of its own: mount one that holds its parent, too", err,
				filepath.Dir(s.to))
		}
		return err
	}
	return h.syncDir(filepath.Dir(s.to))
}

// hasContent reports whether a file has this content and mode. It returns an error for anything that is not a plain
// file: that is not ours.
func (h Host) hasContent(file string, mode fs.FileMode, content func() (io.ReadCloser, error)) (bool, error) {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a plain file (%s): remove it, it was not put there by install", file,
			info.Mode().Type())
	}
	if info.Mode().Perm() != mode {
		return false, nil
	}
	want, err := content()
	if err != nil {
		return false, err
	}
	defer want.Close()
	got, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer got.Close()
	return haveSameContent(got, want)
}

func haveSameContent(a, b io.Reader) (bool, error) {
	const chunk = 64 << 10
	bufA, bufB := make([]byte, chunk), make([]byte, chunk)
	for {
		nA, errA := io.ReadFull(a, bufA)
		nB, errB := io.ReadFull(b, bufB)
		if !bytes.Equal(bufA[:nA], bufB[:nB]) {
			return false, nil
		}
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if errA != nil || errB != nil {
			return true, nil
		}
	}
}

// makeDir creates a folder and its parents. It follows a link to a folder.
func (h Host) makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := h.checkChange("mkdir", dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w, and it is no folder (or a link to nothing): remove it", err)
		}
		return err
	}
	return h.syncDir(filepath.Dir(dir))
}

// removePath removes a file or an empty folder, and syncs its parent. It reports whether the path existed; a missing
// one is no error.
func (h Host) removePath(file string) (bool, error) {
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := h.checkChange("remove", file); err != nil {
		return false, err
	}
	if err := os.Remove(file); err != nil {
		return false, err
	}
	return true, h.syncDir(filepath.Dir(file))
}

// removeAll removes a folder that is entirely ours, with its content. It reports whether the folder existed.
func (h Host) removeAll(dir string) (bool, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := h.checkChange("remove", dir); err != nil {
		return false, err
	}
	return true, os.RemoveAll(dir)
}

func (h Host) syncDir(dir string) error {
	if err := h.checkChange("sync", dir); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func contentOf(b []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}
