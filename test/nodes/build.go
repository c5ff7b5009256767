//go:build linux

package nodes

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/forcefence/forcefence/test/cluster/binaries"
)

const module = "github.com/forcefence/forcefence"

// moduleRoot is this module's folder, asked of the go command where the tests run.
var moduleRoot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("asking go for the module's folder: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// Build builds what nodes run, if it is not in the cache: containerd, runc, the CNI plugins and the kubelet, which
// takes some minutes on two cores. It returns each program's file by its name. Start calls it; a test with a deadline
// of its own has Need do it before.
func Build(ctx context.Context, progress io.Writer) (map[string]string, error) {
	groups, err := binaries.Groups(
		slices.Concat(binaries.Runtime, binaries.CNI, []string{binaries.Runc, binaries.Kubelet}))
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, group := range groups {
		dir, err := binaries.Build(ctx, binaries.Options{Names: group, Progress: progress})
		if err != nil {
			return nil, err
		}
		for _, name := range group {
			files[name] = filepath.Join(dir, name)
		}
	}
	return files, nil
}

// BuildProgram builds a main package of this module, such as test/nodes/pause, without C and so without libraries: it
// runs in an image that holds nothing else. It returns the program, in dir and named as its folder.
func BuildProgram(ctx context.Context, dir, pkg string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return BuildProgramOf(ctx, root, "", dir, pkg)
}

// BuildProgramOf is BuildProgram from the source of another version, which it will say that it is.
func BuildProgramOf(ctx context.Context, root, version, dir, pkg string) (_ string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	file := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags",
		"-s -w -X "+module+"/cmd/internal/version.built="+version, "-o", file, module+"/"+filepath.ToSlash(pkg))
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return file, nil
}
