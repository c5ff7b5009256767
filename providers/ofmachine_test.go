package providers_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
)

// mounted makes a folder as a kubelet mounts a Secret: each key is a link into ..data, which is a link to the version
// in force.
func mounted(t *testing.T, folder, version string, keys map[string]string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(folder, version), 0o755))
	for key, value := range keys {
		must(os.WriteFile(filepath.Join(folder, version, key), []byte(value), 0o600))
		if err := os.Symlink(filepath.Join("..data", key), filepath.Join(folder, key)); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	must(os.Symlink(version, filepath.Join(folder, "..data_tmp")))
	must(os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")))
}

// Each machine has its own password, by its Node's name, from a Secret as it is mounted. One that lacks its file keeps
// no other from being read, and a rotated one is read at the next use.
func TestSecretOfAMachine(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "bmc")
	mounted(t, folder, "..2026_01", map[string]string{"n1": "one\n", "n2.example.net": "two", "empty": "\n"})
	ref := providers.SecretRef{File: folder + "/{name}"}
	if err := ref.CheckReadable(); err != nil {
		t.Fatal(err)
	}
	read := func(node, want, says string) {
		t.Helper()
		got, err := ref.ReadSecretOf(node)
		if got.Reveal() != want || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("node %q: got %q, error %v; want %q, an error that says %q", node, got.Reveal(), err, want, says)
		}
	}
	read("n1", "one", "")
	read("n2.example.net", "two", "")
	read("n3", "", "of node n3: "+folder+"/n3: no such file")
	read("empty", "", folder+"/empty is empty")
	if _, err := ref.ReadSecretOf("n3"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	mounted(t, folder, "..2026_02", map[string]string{"n1": "new", "n3": "three"})
	read("n1", "new", "")
	read("n3", "three", "")
	read("n2.example.net", "", "no such file") // its key is gone from the Secret

	// A file in a folder of each machine's.
	mounted(t, filepath.Join(dir, "each", "n1"), "..1", map[string]string{"password": "own"})
	ref = providers.SecretRef{File: dir + "/each/{name}/password"}
	read("n1", "own", "")
	read("n2", "", dir+"/each/n2/password: no such file")
}

// No name, and no link, leads out of the folder that is written out.
func TestSecretOfAMachineStaysInItsFolder(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "bmc")
	mounted(t, folder, "..1", map[string]string{"n1": "one"})
	for file, content := range map[string]string{"token": "outside", "bmc/.hidden": "hidden", "bmc/n1x": "else"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"up": "../token", "absolute": filepath.Join(dir, "token"), "around": "../bmc/../token"} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	ref := providers.SecretRef{File: folder + "/{name}"}
	for _, node := range []string{
		"../token", "..", ".", "", "/etc/passwd", "..data/n1", "..1/n1", ".hidden", "n1/", "n1\x00", "N1", "n1 ",
		"a/../n1", "up", "absolute", "around",
		"{name}", "host of qemu:///system", strings.Repeat("n", 254),
	} {
		if got, err := ref.ReadSecretOf(node); err == nil || got.Reveal() != "" {
			t.Errorf("node %q: got %q, want an error", node, got.Reveal())
		}
	}
	if got, err := ref.ReadSecretOf("n1"); err != nil || got.Reveal() != "one" {
		t.Errorf("n1: got %q, %v", got.Reveal(), err)
	}
}

// What may stand in a file's name is {name} alone.
func TestCheckOfAMachinesFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, says := range map[string]string{
		dir + "/{name}":           "",
		dir + "/{name}.password":  "",
		dir + "/{name}/password":  "",
		dir + "/none/{name}":      "no such file",
		dir + "/file/{name}":      "not a directory",
		dir + "/{label:rack}":     "nothing else in braces",
		dir + "/{{ .Name }}":      "nothing else in braces",
		dir + "/{name}{{ .UID }}": "nothing else in braces",
		dir + "/{{ .Name":         "nothing else in braces",
		dir + "/{name}/{name}":    "more than once",
		dir + "/{name}/../{name}": "more than once",
		dir + "/{name}/../token":  "has an element",
		dir + "/x/../{name}":      "has an element",
		dir + "//{name}":          "has an element",
		"{name}":                  "begin with a folder",
	} {
		if err := (providers.SecretRef{File: file}).CheckReadable(); (err == nil) != (says == "") ||
			err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want an error that says %q", file, err, says)
		}
	}
	if err := (providers.SecretRef{Env: "PASSWORD_{name}"}).CheckReadable(); err == nil ||
		!strings.Contains(err.Error(), "the same for all machines") {
		t.Errorf("an environment variable: got %v", err)
	}
	if err := (providers.SecretRef{File: dir + "/none/{name}"}).CheckReadable(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: got %v, want ErrNotExist", err)
	}
}
