package install

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	ctx, cancel := context.WithTimeoutCause(ctx, execTimeout, fmt.Errorf("did not end within %s", execTimeout))
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	// The rest of the environment is the container's. In a changed root systemctl does nothing without
	// SYSTEMD_IGNORE_CHROOT.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "SYSTEMD_IGNORE_CHROOT=1"}
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

// ranAndFailed reports whether runCommand's error is the program's own failure: the kernel refuses to start it here, or
// it ran to an end of its own. A program that was ended from outside (a deleted pod, a timeout, the OOM killer), or for
// which the machine lacked memory or processes, showed nothing.
func ranAndFailed(err error) bool {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		// Others send signals, except for these two, by which the kernel answers an instruction or a call.
		return ok && (status.Exited() || status.Signal() == syscall.SIGILL || status.Signal() == syscall.SIGSYS)
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC)
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

// change makes one change of a file, unless a test makes it fail.
func (h Host) change(op, path string, do func() error) error {
	if h.before != nil {
		if err := h.before(op, path); err != nil {
			return &fs.PathError{Op: op, Path: path, Err: err}
		}
	}
	return do()
}

// staged is a complete file that waits for its rename. nil is a file whose content is in place already.
type staged struct{ from, to string }

// stageFile writes a file beside its place, synced to disk. It returns nil if that content and mode are in place.
func (h Host) stageFile(dst string, mode fs.FileMode, content io.ReadSeeker) (*staged, error) {
	same, err := hasContent(dst, mode, content)
	if err != nil || same {
		return nil, err
	}
	dir := filepath.Dir(dst)
	if err := h.makeDir(dir); err != nil {
		return nil, err
	}
	// In a folder of that name: files of one name may wait for two folders.
	s := &staged{from: filepath.Join(stageDir(dir), filepath.Base(dir), filepath.Base(dst)), to: dst}
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

// writeFile writes a new file, synced to disk. It is not executable before it is complete.
func (h Host) writeFile(file string, mode fs.FileMode, content io.ReadSeeker) (err error) {
	if err := h.makeDir(filepath.Dir(file)); err != nil {
		return err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var out *os.File
	if err := h.change("create", file, func() (err error) {
		_ = os.Remove(file) // left by a crash: its mode and its links may be wrong
		out, err = os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := h.change("write", file, func() error { _, err := io.Copy(out, content); return err }); err != nil {
		return err
	}
	if err := h.change("sync", file, out.Sync); err != nil {
		return err
	}
	return h.change("chmod", file, func() error { return out.Chmod(mode) })
}

// commitFile renames a staged file into its place atomically, and syncs the folder.
func (h Host) commitFile(s *staged) error {
	if s == nil {
		return nil
	}
	err := h.change("rename", s.to, func() error { return os.Rename(s.from, s.to) })
	if errors.Is(err, syscall.EXDEV) {
		return fmt.Errorf("%w: %s is a separate file system: mount one that contains its parent folder as well", err,
			filepath.Dir(s.to))
	}
	if err != nil {
		return err
	}
	return h.syncDir(filepath.Dir(s.to))
}

// hasContent reports whether a file has this content and mode. Anything but a regular file is an error: it is not ours.
func hasContent(file string, mode fs.FileMode, content io.ReadSeeker) (bool, error) {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a regular file (%s), so install did not create it: remove it", file,
			info.Mode().Type())
	}
	if info.Mode().Perm() != mode {
		return false, nil
	}
	got, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer got.Close()
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	// Hashed, because the program's own file is large.
	is, want := sha256.New(), sha256.New()
	_, err = io.Copy(is, got)
	_, bad := io.Copy(want, content)
	return bytes.Equal(is.Sum(nil), want.Sum(nil)), errors.Join(err, bad)
}

// makeDir creates a folder and its parents. It follows a link to a folder.
func (h Host) makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	err := h.change("mkdir", dir, func() error { return os.MkdirAll(dir, 0o755) })
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w, but is a file or a broken link: remove it", err)
	}
	if err != nil {
		return err
	}
	return h.syncDir(filepath.Dir(dir))
}

// removePath removes a path by os.Remove or os.RemoveAll, and syncs its parent. It reports whether the path existed; a
// missing one is no error.
func (h Host) removePath(path string, remove func(string) error) (bool, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := h.change("remove", path, func() error { return remove(path) }); err != nil {
		return false, err
	}
	return true, h.syncDir(filepath.Dir(path))
}

func (h Host) syncDir(dir string) error {
	return h.change("sync", dir, func() error {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Sync()
	})
}
