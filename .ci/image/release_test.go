package main

import (
	"archive/tar"
	"debug/buildinfo"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		name, wanted, tags string
		changed, rehearsal bool
		want, err          string
	}{
		{name: "the tag", tags: "nightly v1.2.3", want: "v1.2.3"},
		{name: "the tag, named", wanted: "v1.2.3-rc.1", tags: "v1.2.3 v1.2.3-rc.1", want: "v1.2.3-rc.1"},
		{name: "no tag", err: "want one such as"},
		{name: "two tags", tags: "v1.2.3 v1.2.3-rc.1", err: "want one such as"},
		{name: "another tag", wanted: "v1.2.4", tags: "v1.2.3", err: "and not v1.2.4"},
		{name: "changed", tags: "v1.2.3", changed: true, err: "are changed"},
		{name: "changed, named", wanted: "v1.2.3", tags: "v1.2.3", changed: true, err: "are changed"},
		{name: "rehearsal", wanted: "v0.0.1-try", changed: true, rehearsal: true, want: "v0.0.1-try"},
		{name: "rehearsal without a version", tags: "v1.2.3", rehearsal: true, err: "set VERSION"},
		{name: "no v", wanted: "1.2.3", tags: "1.2.3", err: "write v1.2.3"},
		{name: "short", wanted: "v1.2", rehearsal: true, err: "write v1.2.3"},
		{name: "with a build", wanted: "v1.2.3+4", rehearsal: true, err: "write v1.2.3"},
		{name: "a flag", wanted: "--help", rehearsal: true, err: "write v1.2.3"},
		{name: "words", wanted: "v1.2.3 -X a", rehearsal: true, err: "write v1.2.3"},
	} {
		got, err := choose(tt.wanted, strings.Fields(tt.tags), tt.changed, tt.rehearsal)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %q, %v, want %q, %q", tt.name, got, err, tt.want, tt.err)
		}
	}
}

// TestRelease makes a release from a clone in another place, under another umask, with other flags and another time
// zone: its image has the same bytes as the one that `make image` made. Then it verifies the release as docs/upgrade.md
// says. Only the plugin for darwin is not made. What is compiled comes from Go's cache, which knows sources by content.
func TestRelease(t *testing.T) {
	first, dir := openArchive(t, "FORCEFENCE_IMAGE")
	t.Chdir("../..")
	if status := must(output(t.Context(), "git", "status", "--porcelain")); status != "" {
		t.Skipf("a clone has other sources than this folder, where something is changed:\n%s", status)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	b := builder{out: dir + "/release", release: true, rehearsal: true, key: dir + "/cosign.key",
		version: must(images(first)["linux/amd64"].ConfigFile()).Config.Labels["org.opencontainers.image.version"],
		push:    strings.TrimPrefix(server.URL, "http://") + "/team/forcefence"}
	for name := range hermetic {
		t.Setenv(name, os.Getenv(name)) // run sets them for good
	}
	for name, value := range map[string]string{"COSIGN_PASSWORD": "secret", "PATH": dir + ":" + os.Getenv("PATH"),
		"TZ": "Pacific/Auckland", "LC_ALL": "C", "USER": "else"} {
		t.Setenv(name, value)
	}
	if err := run(t, `git clone -q --no-local . "$1/a clone"; find "$1/a clone" -type f -exec touch -d 2001-02-03 {} +
		cd "$1"; ln -s "$(go -C "a clone/.ci/image" tool -n cosign)" cosign; cosign generate-key-pair
		cosign generate-key-pair --output-key-prefix other`, dir); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", "-buildvcs=true -p=2")
	defer syscall.Umask(syscall.Umask(0o077))
	t.Chdir(dir + "/a clone")
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := run(t, `cd "$1"; mkdir again; tar -xf "$2" -C again; cmp "$2" "$3" || diff -rq blobs again/blobs`, dir,
		b.file("forcefence", ".oci.tar"), os.Getenv("FORCEFENCE_IMAGE")); err != nil {
		t.Errorf("the second image has other bytes: %v", err)
	}
	testPrograms(t, &b, first)
	testTexts(t, &b)
	testVerified(t, &b, first)
}

// testPrograms: what is in the archives is what is in the image, and the SBOMs name what is linked into the programs.
func testPrograms(t *testing.T, b *builder, index v1.ImageIndex) {
	for _, p := range platforms {
		root, at := t.TempDir(), "-linux-"+p.Architecture
		eachFile(images(index)[p.String()], func(name string, h *tar.Header, content []byte) {
			file, err := filepath.Join(root, name), error(nil)
			if h.Typeflag == tar.TypeReg {
				err = errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, content, 0o700))
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		if err := run(t, `cd "$1/usr/share/doc"; mkdir programs plugin
			tar -xzf "$2" -C programs; tar -xzf "$3" -C plugin
			cmp programs/forcefence "$1/ko-app/forcefence"; cmp programs/forcefence-node "$1/ko-app/forcefence-node"
			cmp plugin/kubectl-forcefence "$1/ko-app/forcefence"; grep -q __complete plugin/kubectl_complete-forcefence
			test -x plugin/kubectl_complete-forcefence; rm programs/forcefence* plugin/kubectl*forcefence
			diff -r forcefence programs; diff -r forcefence plugin; test -s plugin/licences/std@go*/LICENSE`,
			root, b.file("forcefence", at, ".tar.gz"), b.file("kubectl-forcefence", at, ".tar.gz")); err != nil {
			t.Errorf("%s: archives differ from the image: %v", p, err)
		}
		for _, program := range programs {
			doc := must(spdxjson.Read(must(os.Open(b.file(program, at, ".spdx.json")))))
			info := must(buildinfo.ReadFile(root + "/ko-app/" + program))
			got := map[string]bool{}
			for _, m := range doc.Packages {
				got[m.PackageName+"@"+m.PackageVersion] = m.PackageLicenseDeclared != "NOASSERTION" &&
					(m.PackageName == "std" || len(m.PackageChecksums) == 1)
			}
			for _, m := range append(info.Deps, &debug.Module{Path: "std", Version: info.GoVersion}) {
				if !got[m.Path+"@"+m.Version] {
					t.Errorf("SBOM of %s for %s: %s is missing, or lacks licence or checksum", program, p, m.Path)
				}
			}
			if err := spdxlib.ValidateDocument(doc); err != nil {
				t.Errorf("SBOM of %s for %s: %v", program, p, err)
			}
		}
	}
}

// testTexts: chart, install.yaml and provenance name this release, and SHA256SUMS all files.
func testTexts(t *testing.T, b *builder) {
	read := func(name string) string { return string(must(os.ReadFile(filepath.Join(b.out, name)))) }
	version, plain, provenance := strings.TrimPrefix(b.version, "v"), read("install.yaml"), read("provenance.json")
	if strings.Count(plain, "image: "+b.push+":"+b.version+"\n") < 2 || strings.Contains(plain, "forcefence:dev") {
		t.Error("install.yaml does not have the image")
	}
	helm := must(output(t.Context(), "go", "run", "./test/cluster/cmd/build", "helm"))
	chart := must(output(t.Context(), helm+"/helm", "show", "all", b.out+"/forcefence-"+version+".tgz"))
	for want, in := range map[string]string{"\nversion: " + version + "\n": chart, "\nappVersion: " + b.version: chart,
		"\n  repository: " + b.push + "\n": chart, `"gitCommit": "` + b.revision + `"`: provenance,
		`"rehearsal": true`: provenance, "pkg:golang/std@go1.": provenance,
		"pkg:golang/github.com/google/ko@v": provenance} {
		if !strings.Contains(in, want) {
			t.Errorf("there is no %q in\n%s", want, in)
		}
	}
	if strings.Contains(provenance, "refs/tags") {
		t.Error("a rehearsal claims a tag")
	}
	files := len(must(os.ReadDir(b.out))) - 3 // the sums and two signatures
	if n := strings.Count(read("SHA256SUMS"), "\n"); n != files {
		t.Errorf("%d sums, want %d", n, files)
	}
}

// testVerified runs the commands of docs/upgrade.md. They fail with another key, with a changed file, and for another
// image to which the same signatures are attached.
func testVerified(t *testing.T, b *builder, index v1.ImageIndex) {
	tag := must(name.NewTag(b.push + ":other"))
	other := mutate.Annotations(index, map[string]string{"other": "image"}).(v1.ImageIndex)
	// Where a registry has no list of what refers to an image, a tag has it.
	list := func(i v1.ImageIndex) name.Tag {
		return tag.Context().Tag(strings.Replace(must(i.Digest()).String(), ":", "-", 1))
	}
	if err := errors.Join(remote.WriteIndex(tag, other),
		remote.WriteIndex(list(other), must(remote.Index(list(index))))); err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(must(os.ReadFile("docs/upgrade.md"))), "## Verify a release")
	_, page, _ = strings.Cut(page, "```sh needs=registry\n")
	page, _, _ = strings.Cut(page, "```")
	page = strings.NewReplacer("registry.example.net/forcefence", b.push, "v1.2.3", b.version).Replace(page)
	if n := strings.Count(page, "cosign verify"); n != 5 {
		t.Errorf("docs/upgrade.md has %d commands, want 5", n)
	}
	t.Chdir(b.out)
	for line := range strings.Lines(strings.ReplaceAll(page, "cosign.pub", "../cosign.pub")) {
		if err := run(t, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		for what, changed := range map[string]string{"another key": strings.ReplaceAll(line, "cosign.pub", "other.pub"),
			"another image": strings.ReplaceAll(line, b.push+":"+b.version, tag.String())} {
			if changed != line && run(t, changed) == nil {
				t.Errorf("%s: verifies with %s", line, what)
			}
		}
		for _, file := range append(strings.Fields(line), "install.yaml") {
			whole, err := os.ReadFile(file)
			if err != nil || strings.HasPrefix(line, "cosign") != strings.Contains(line, file) {
				continue
			}
			changed := slices.Clone(whole)
			changed[len(changed)/2] ^= 1
			if err := os.WriteFile(file, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			if run(t, line) == nil {
				t.Errorf("%s: verifies with a changed byte in %s", line, file)
			}
			if err := os.WriteFile(file, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
