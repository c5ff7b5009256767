package docs

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

var (
	fileFlag  = regexp.MustCompile(`--from-file=\S+`)
	flagShown = regexp.MustCompile("`(--from-file=[^`]+)`")
	nameShown = regexp.MustCompile("`(forcefence-[a-z]+)`")
)

// findRotationTask returns the block of docs/tasks.md that replaces the Secret of passwords, and the text below it, up
// to the next block.
func findRotationTask(t *testing.T) (block, advice string) {
	t.Helper()
	page := pages(t)["docs/tasks.md"]
	i := slices.IndexFunc(page.blocks, func(b Block) bool { return strings.Contains(b.Text, "kubectl replace") })
	if i < 0 {
		t.Fatal("docs/tasks.md: no block replaces a Secret")
	}
	block = page.blocks[i].Text
	_, below, _ := strings.Cut(string(page.source), block)
	_, below, _ = strings.Cut(below, "```\n")
	advice, _, _ = strings.Cut(below, "\n```")
	return block, advice
}

// rotatePasswords rotates a password of a Secret with several files as docs/tasks.md advises. No other file may get
// lost: the nodes of a file that is gone cannot be fenced.
func rotatePasswords(t *testing.T) {
	t.Parallel()
	block, advice := findRotationTask(t)
	flags := flagShown.FindAllStringSubmatch(advice, -1)
	names := nameShown.FindAllStringSubmatch(advice, -1)
	if len(flags) != 2 || len(names) != 1 {
		t.Fatalf("docs/tasks.md advises the flags %q and the Secrets %q, want two flags and one Secret:\n%s", flags,
			names, advice)
	}
	c := cluster.ForTest(t, cluster.Options{})
	_, err := c.Kubectl(t.Context(), "create", "namespace", namespace)
	kit.Must(t, err)
	kubectl, err := cluster.KubectlPath(t.Context())
	kit.Must(t, err)
	for _, tt := range []struct {
		name, secret, script string
		files                map[string]string // the paths of the Secret's files, by key
		changed              string            // the key of the password that is rotated
	}{
		{name: "a password for each rack", secret: "forcefence-bmc",
			script: strings.Replace(block, "--from-file=", flags[0][1]+" --from-file=", 1),
			files: map[string]string{"password": "bmc-password", "ca.pem": "bmc-ca.pem",
				"password-rack2": "password-rack2"},
			changed: "password"},
		{name: "a password for each machine", secret: names[0][1],
			script: strings.Replace(
				fileFlag.ReplaceAllString(strings.Replace(block, "forcefence-bmc", names[0][1], 1), ""),
				"--dry-run", flags[1][1]+" --dry-run", 1),
			files:   map[string]string{"n1": "passwords/n1", "n2": "passwords/n2"},
			changed: "n2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, want := t.TempDir(), map[string]string{}
			kit.Must(t, os.Mkdir(filepath.Join(dir, "passwords"), 0o700))
			create := []string{"create", "secret", "generic", tt.secret, "-n", namespace}
			for key, path := range tt.files {
				file := filepath.Join(dir, path)
				want[key] = "old " + key
				kit.Must(t, os.WriteFile(file, []byte(want[key]), 0o600))
				create = append(create, fmt.Sprintf("--from-file=%s=%s", key, file))
			}
			_, err := c.Kubectl(t.Context(), create...)
			kit.Must(t, err)
			want[tt.changed] = "new " + tt.changed
			kit.Must(t, os.WriteFile(filepath.Join(dir, tt.files[tt.changed]), []byte(want[tt.changed]), 0o600))
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", tt.script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(),
				"PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", tt.script, err, out)
			}
			secret, err := c.Client().CoreV1().Secrets(namespace).Get(t.Context(), tt.secret, metav1.GetOptions{})
			kit.Must(t, err)
			got := map[string]string{}
			for key, value := range secret.Data {
				got[key] = string(value)
			}
			if !maps.Equal(got, want) {
				t.Errorf("after the task the Secret has %q, want %q\n%s", got, want, tt.script)
			}
		})
	}
}
