package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/.ci/image/internal/oci"
)

// TestReproducible builds the image that `make image` made once more: from a clone in another place, under another
// umask, with other flags and another time zone. Every byte is the same. What is compiled for both comes from Go's
// cache, which knows sources by their content.
func TestReproducible(t *testing.T) {
	archive := os.Getenv("FORCEFENCE_IMAGE")
	if archive == "" {
		t.Skip("needs an image's archive: set FORCEFENCE_IMAGE, as make image-test does")
	}
	status, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "status", "--porcelain").Output()
	if err != nil || len(status) > 0 {
		t.Skipf("a clone has other sources than this folder, where something is changed: %v\n%s", err, status)
	}
	dir := t.TempDir()
	if err := oci.Unpack(archive, filepath.Join(dir, "layout")); err != nil {
		t.Fatal(err)
	}
	index, err := oci.Open(filepath.Join(dir, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	img, err := oci.Of(index, oci.Platforms[0])
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	labels, again := config.Config.Labels, filepath.Join(dir, "again.oci.tar")
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `umask 077
git clone -q --no-local "$1" "$2/a clone"
cd "$2/a clone/.ci/image"
find "$2/a clone" -type f -exec touch -d 2001-02-03 {} +
go run . -source ../.. -out "$3" -version "$4" -revision "$5"`,
		"sh", must(filepath.Abs("../..")), dir, again,
		labels[versionLabel], labels["org.opencontainers.image.revision"])
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=true -p=2", "TZ=Pacific/Auckland", "LC_ALL=C", "USER=else",
		"HOSTNAME=elsewhere")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building again: %v\n%s", err, said)
	}
	one, two := must(os.ReadFile(archive)), must(os.ReadFile(again))
	if !bytes.Equal(one, two) {
		t.Errorf("the second image has other bytes:\n%s", differences(t, filepath.Join(dir, "layout"), again))
	}
}

// differences names the blobs that one of two images has alone.
func differences(t *testing.T, layout, archive string) string {
	other := filepath.Join(t.TempDir(), "layout")
	if err := oci.Unpack(archive, other); err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, pair := range [][2]string{{layout, other}, {other, layout}} {
		for _, e := range must(os.ReadDir(filepath.Join(pair[0], "blobs/sha256"))) {
			if _, err := os.Stat(filepath.Join(pair[1], "blobs/sha256", e.Name())); err != nil {
				text := must(os.ReadFile(filepath.Join(pair[0], "blobs/sha256", e.Name())))
				fmt.Fprintf(&out, "%s: %.2000q\n", e.Name(), text)
			}
		}
	}
	return out.String()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
