//go:build unix

package kit

import (
	"os"
	"syscall"
	"testing"
)

// TestRunApart becomes another user, which only root can do.
func TestRunApart(t *testing.T) {
	const other = 65534
	if !RunApart(t, "", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}) {
		return
	}
	if os.Getuid() != other {
		t.Errorf("got user %d, want %d", os.Getuid(), other)
	}
	Must(t, os.WriteFile("file", nil, 0o600))
	SocketDir(t)
}
