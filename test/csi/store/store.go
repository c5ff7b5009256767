//go:build unix

// Package store is the backing store of the test CSI driver: one folder that every node of one machine sees, as real
// nodes see a SAN. It keeps the volumes' disks, who each is published to, and a log of everything that was done with
// them.
//
// It promises that the log's order is the order of the facts: a publish, an unpublish, a mount and an unmount of one
// volume are each done, and written down, under the volume's lock. The lock is a flock, so that it ends with a process
// that is killed.
//
//	DIR/log                 JSON lines, see Event
//	DIR/volumes/ID/disk     an ext4 in a file
//	DIR/volumes/ID/node     whom it is published to; empty: to none
//	DIR/volumes/ID/lock     the lock
package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
)

// ErrNotFound is of a volume that does not exist.
var ErrNotFound = errors.New("no such volume")

// Driver is the name of the CSI driver.
const Driver = "loop.csi.forcefence.io"

// Size is a disk's. It is enough for a journal: without one a power cut could leave a damaged file system.
const Size = 16 << 20

// Store is a folder. Its methods may be called by many processes at a time.
type Store struct{ dir string }

// Open makes the folder if need be.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "volumes"), 0o755); err != nil {
		return nil, fmt.Errorf("opening backing store: %w", err)
	}
	return &Store{dir: dir}, nil
}

// Dir is the folder.
func (s *Store) Dir() string { return s.dir }

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// ValidID reports whether a volume or node may have this name: it becomes a file's.
func ValidID(id string) bool { return validID.MatchString(id) }

func (s *Store) path(id, name string) string { return filepath.Join(s.dir, "volumes", id, name) }

// Disk is the file that holds the volume.
func (s *Store) Disk(id string) string { return s.path(id, "disk") }

// Create makes a volume with an empty ext4. One that exists is left alone. It needs mkfs.ext4.
func (s *Store) Create(id string) error {
	if !ValidID(id) {
		return fmt.Errorf("create volume: bad name %q", id)
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "volumes", id), 0o755); err != nil {
		return err
	}
	unlock, err := s.lock(id)
	if err != nil {
		return fmt.Errorf("create volume %s: %w", id, err)
	}
	defer unlock()
	if _, err := s.read(id); !errors.Is(err, ErrNotFound) {
		return err
	}
	f, err := os.Create(s.Disk(id))
	if err != nil {
		return err
	}
	if err = errors.Join(f.Truncate(Size), f.Close()); err != nil {
		return err
	}
	if out, err := exec.Command(mkfs(), "-q", "-F", s.Disk(id)).CombinedOutput(); err != nil {
		return fmt.Errorf("create volume %s: mkfs.ext4: %w: %s", id, err, out)
	}
	return s.write(id, "") // last: a volume that has it is complete
}

// mkfs is looked for where a user's PATH may not lead.
func mkfs() string {
	if path, err := exec.LookPath("mkfs.ext4"); err == nil {
		return path
	}
	return "/usr/sbin/mkfs.ext4"
}

// Missing says what Create lacks, "" if nothing.
func Missing() string {
	if _, err := exec.LookPath(mkfs()); err != nil {
		return "mkfs.ext4 is not installed (apt-get install e2fsprogs)"
	}
	return ""
}

// Owner returns the node that a volume is published to, or ErrNotFound.
func (s *Store) Owner(id string) (node string, err error) {
	err = s.With(id, func(owner *string) error { node = *owner; return nil })
	return node, err
}

// With calls f with the volume's node while no other process can change it, and keeps what f made of it unless f fails.
func (s *Store) With(id string, f func(node *string) error) error {
	if !ValidID(id) {
		return ErrNotFound
	}
	unlock, err := s.lock(id)
	if err != nil {
		return err
	}
	defer unlock()
	node, err := s.read(id)
	if err != nil {
		return err
	}
	if err := f(&node); err != nil {
		return err
	}
	return s.write(id, node)
}

func (s *Store) lock(id string) (unlock func(), err error) {
	f, err := os.OpenFile(s.path(id, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking volume %s: %w", id, err)
	}
	return func() { f.Close() }, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func (s *Store) read(id string) (node string, err error) {
	b, err := os.ReadFile(s.path(id, "node"))
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	return string(b), err
}

// write goes by a rename: a process that is killed leaves the old one or the new one.
func (s *Store) write(id, node string) error {
	tmp := s.path(id, "node.new")
	if err := os.WriteFile(tmp, []byte(node), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, s.path(id, "node"))
}
