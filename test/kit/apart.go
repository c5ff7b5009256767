//go:build unix

package kit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
)

// apartRole is the variable that makes a test's process the one that RunApart starts.
const apartRole = "FORCEFENCE_TEST_IS_APART"

// RunApart runs the test once more, in a process of another user or in namespaces. It returns true there, where the
// test goes on, and false here, once the test there has ended. The process has the first attributes that this machine
// allows. Where it allows none, or the test there is skipped, it skips the test, as Need does with the variable.
func RunApart(t testing.TB, variable string, attrs ...*syscall.SysProcAttr) (there bool) {
	t.Helper()
	if os.Getenv(apartRole) == t.Name() {
		return true
	}
	var refused []error
	for _, attr := range attrs {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = os.Environ()
		if attr.Credential != nil {
			moveToUser(t, cmd, attr.Credential)
		}
		cmd.Args = append(cmd.Args, "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v", "-test.count=1")
		cmd.Env = append(cmd.Env, apartRole+"="+t.Name())
		cmd.SysProcAttr = attr
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := StartChild(cmd); err != nil {
			refused = append(refused, err)
			continue
		}
		err := cmd.Wait()
		switch {
		case err != nil:
			t.Errorf("in a process of its own: %v\n%s", err, out.Bytes())
			return false
		case bytes.Contains(out.Bytes(), []byte("--- PASS: "+t.Name()+" ")):
			return false
		}
		refused = append(refused, fmt.Errorf("no test passed:\n%s", out.Bytes()))
	}
	Need(t, fmt.Sprintf("this machine refuses such a process: %v", errors.Join(refused...)), variable)
	return false
}

// moveToUser has a copy of the program run in a folder of that user: others may not enter the folder of our program.
func moveToUser(t testing.TB, cmd *exec.Cmd, user *syscall.Credential) {
	t.Helper()
	dir := SocketDir(t)
	Must(t, os.Chmod(dir, 0o755))
	text, err := os.ReadFile(cmd.Path)
	Must(t, err)
	program, own := filepath.Join(dir, "test"), filepath.Join(dir, "own")
	Must(t, os.WriteFile(program, text, 0o700))
	Must(t, os.Chmod(program, 0o755)) // the umask may have taken it away
	Must(t, os.Mkdir(own, 0o700))
	// A user namespace may lack that user: then the process does not start either.
	_ = os.Chown(own, int(user.Uid), int(user.Gid))
	cmd.Path, cmd.Args, cmd.Dir = program, []string{program}, own
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + own, "TMPDIR=" + own}
}
