package install

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
)

// lockHost keeps a second install or uninstall away from the host's files, because both would share the staged files.
// It locks the folder that contains the state folder (/run), which exists on every host and stays when the hook is
// removed. The kernel releases the lock when the process ends.
func lockHost(stateDir string) (unlock func(), err error) {
	dir := filepath.Dir(cmp.Or(stateDir, nri.DefaultStateDir))
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil // there is no install with this state folder
	}
	if err == nil {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return func() { f.Close() }, nil
		}
		f.Close()
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another install or uninstall runs on this host")
	}
	return nil, fmt.Errorf("locking %s: %w", dir, err)
}
