package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Git runs git in the repository that holds a folder, with more variables in its environment, and returns what it
// printed, without space around it. The error contains git's message, and is ErrNoHistory without git or a repository.
//
// Another account may own the repository. Of this process's variables for git, none applies but
// GIT_CEILING_DIRECTORIES: a hook of git sets GIT_DIR, so that git would work on that repository.
func Git(ctx context.Context, folder string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", folder, "-c", "safe.directory=*"}, args...)...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GIT_") && !strings.HasPrefix(v, "GIT_CEILING_DIRECTORIES=")
	}), "LC_ALL=C") // its messages are read below
	cmd.Env = append(cmd.Env, env...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) || strings.Contains(said.String(), "not a git repository") {
			err = fmt.Errorf("%w: %w", ErrNoHistory, err)
		}
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// Checkout writes the files of a commit below dir, which it makes. The repository is that of a folder; its index and
// its work tree stay as they are.
func Checkout(ctx context.Context, root, commit, dir string) error {
	index := []string{"GIT_INDEX_FILE=" + dir + ".index"}
	if _, err := Git(ctx, root, index, "read-tree", commit); err != nil {
		return err
	}
	_, err := Git(ctx, root, index, "checkout-index", "--all", "--prefix="+dir+"/")
	return err
}

// ErrNoHistory is a source that no repository holds, or a machine without git.
var ErrNoHistory = errors.New("this source has no history to take the previous version from")

// Previous writes the files of the version that people upgrade from below dir, as Checkout does, and returns its tag or
// commit: the last release before this commit or, as long as there is none, the first commit whose chart has the
// leader's Lease in kube-system. That commit differs most from this one: versions before it led by other Leases, so
// none of them leads in turn with this one. The test is skipped where there is no history, and fails where it was cut
// off.
func Previous(t testing.TB, dir string) (commit string) {
	t.Helper()
	root := Root(t)
	commit, err := previous(t.Context(), root)
	if errors.Is(err, ErrNoHistory) {
		t.Skip("SKIPPED:", err)
	}
	Must(t, err)
	Must(t, Checkout(t.Context(), root, commit, dir))
	return commit
}

func previous(ctx context.Context, root string) (commit string, err error) {
	const chart = "deploy/helm/forcefence/templates/rbac.yaml"
	switch shallow, err := Git(ctx, root, nil, "rev-parse", "--is-shallow-repository"); {
	case err != nil:
		return "", err
	case shallow == "true":
		return "", errors.New("this clone's history is cut off, and with it the previous version: git fetch " +
			"--unshallow --tags")
	}
	tag, err := Git(ctx, root, nil, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD~1")
	if err == nil {
		if _, err = Git(ctx, root, nil, "cat-file", "-e", tag+":"+chart); err == nil {
			return tag, nil
		}
	}
	with, err := Git(ctx, root, nil, "log", "--reverse", "--format=%H", "-Sforcefence-leader, namespace: kube-system",
		"HEAD", "--", chart)
	if first, _, _ := strings.Cut(with, "\n"); first != "" || err != nil {
		return first, err
	}
	return "", errors.New("no commit has a chart with the leader's Lease in kube-system")
}
