package kit

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The previous version is the last release before this commit; before the first release, the first commit whose chart
// has the leader's Lease in kube-system.
func TestPrevious(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("SKIPPED:", err)
	}
	dir := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir)) // a repository may hold TMPDIR
	t.Setenv("GIT_DIR", "/none")                           // a hook of git sets it
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	if _, err := previous(t.Context(), dir); !errors.Is(err, ErrNoHistory) {
		t.Errorf("without a repository: got %v, want %v", err, ErrNoHistory)
	}
	git := func(args ...string) string {
		t.Helper()
		out, err := Git(t.Context(), dir, []string{"GIT_CONFIG_GLOBAL=/dev/null"},
			append([]string{"-c", "user.name=a", "-c", "user.email=a@example.net"}, args...)...)
		Must(t, err)
		return out
	}
	commit := func(file, text string) string {
		t.Helper()
		Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755))
		Must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		git("add", ".")
		git("commit", "--quiet", "--message", text)
		return git("rev-parse", "HEAD")
	}
	is := func(when, want string) {
		t.Helper()
		if got, err := previous(t.Context(), dir); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", when, got, err, want)
		}
	}
	git("init", "--quiet")
	config := filepath.Join(dir, ".git/config")
	right, err := os.ReadFile(config)
	Must(t, err)
	Must(t, os.WriteFile(config, []byte("["), 0o600))
	if _, err := previous(t.Context(), dir); err == nil || errors.Is(err, ErrNoHistory) {
		t.Errorf("with a repository that git cannot read: got %v, want an error that fails a test", err)
	}
	Must(t, os.WriteFile(config, right, 0o600))
	commit("README.md", "no chart")
	git("tag", "v0.0.1")
	if _, err := previous(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "no commit has a chart") {
		t.Errorf("before there was a chart: got %v, want an error", err)
	}
	const chart, lease = "deploy/helm/forcefence/templates/rbac.yaml", "forcefence-leader, namespace: kube-system"
	commit(chart, "forcefence-leader, namespace: another")
	git("branch", "old")
	first := commit(chart, lease)
	is("at the first commit with the Lease", first)
	git("branch", "new")
	git("checkout", "--quiet", "old")
	git("merge", "--quiet", "--no-ff", "--message", "merged", "new")
	is("at a merge that brings the Lease", first)
	git("checkout", "--quiet", "new")
	commit(chart, lease+", more")
	is("with a release that has no chart", first)
	git("tag", "v0.1.0")
	git("tag", "not-a-release")
	is("at the first release with a chart", first)
	commit("README.md", "more")
	is("after a release", "v0.1.0")

	out := filepath.Join(t.TempDir(), "source")
	Must(t, Checkout(t.Context(), dir, first, out))
	if text, err := os.ReadFile(filepath.Join(out, chart)); string(text) != lease {
		t.Errorf("the first chart: got %q, %v", text, err)
	}
	if got := git("status", "--porcelain"); got != "" {
		t.Errorf("the work tree after that: got %q, want it clean", got)
	}
	shallow := t.TempDir()
	git("clone", "--quiet", "--depth=1", "file://"+dir, shallow)
	if _, err := previous(t.Context(), shallow); err == nil || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("in a shallow clone: got %v, want to be told what to do", err)
	}
}
