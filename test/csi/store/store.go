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
//	DIR/volumes/ID/record   see Record
//	DIR/volumes/ID/lock     the lock
package store

import (
	"encoding/json"
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

// MinSize is the smallest disk that gets a journal: without one a power cut could leave a damaged file system.
const MinSize = 8 << 20

// Store is a folder. Its methods may be called by many processes at a time.
type Store struct{ dir string }

// Record is what the storage knows of a volume.
type Record struct {
	Size int64  `json:"size"`           // bytes
	Node string `json:"node,omitempty"` // it is published to; "": none
}

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

// Create makes a volume with an empty ext4. One that exists is left alone and returned, with any size. It needs
// mkfs.ext4.
func (s *Store) Create(id string, size int64) (Record, error) {
	if !ValidID(id) {
		return Record{}, fmt.Errorf("create volume: bad name %q", id)
	}
	size = max(size, MinSize)
	dir := filepath.Join(s.dir, "volumes", id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Record{}, err
	}
	unlock, err := s.lock(id)
	if err != nil {
		return Record{}, fmt.Errorf("create volume %s: %w", id, err)
	}
	defer unlock()
	if r, err := s.read(id); !errors.Is(err, ErrNotFound) {
		return r, err
	}
	f, err := os.Create(s.Disk(id))
	if err != nil {
		return Record{}, err
	}
	err = errors.Join(f.Truncate(size), f.Close())
	if err != nil {
		return Record{}, err
	}
	// Before the record: a volume whose record exists is complete.
	if out, err := exec.Command(mkfs(), "-q", "-F", s.Disk(id)).CombinedOutput(); err != nil {
		return Record{}, fmt.Errorf("create volume %s: mkfs.ext4: %w: %s", id, err, out)
	}
	r := Record{Size: size}
	return r, s.write(id, r)
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

// Get returns a volume's record, or ErrNotFound.
func (s *Store) Get(id string) (r Record, err error) {
	err = s.With(id, func(cur *Record) error { r = *cur; return nil })
	return r, err
}

// With calls f with the volume's record while no other process can change it, and keeps what f made of it unless f
// fails.
func (s *Store) With(id string, f func(*Record) error) error {
	if !ValidID(id) {
		return ErrNotFound
	}
	unlock, err := s.lock(id)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := s.read(id)
	if err != nil {
		return err
	}
	old := r
	if err := f(&r); err != nil {
		return err
	}
	if r == old {
		return nil
	}
	return s.write(id, r)
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

func (s *Store) read(id string) (Record, error) {
	b, err := os.ReadFile(s.path(id, "record"))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, ErrNotFound
	}
	if err != nil {
		return Record{}, err
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("reading record of volume %s: %w", id, err)
	}
	return r, nil
}

// write replaces the record by a rename: a process that is killed leaves the old one or the new one.
func (s *Store) write(id string, r Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := s.path(id, "record.new")
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, s.path(id, "record"))
}
