package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// page is what the provenance says about the builder. That machine is not supervised: it is SLSA's build level 1.
const page = "https://" + project + "/blob/main/CONTRIBUTING.md"

// decideVersion finds the version, and refuses sources that are not those of it.
func (b *builder) decideVersion(ctx context.Context) error {
	status, err := output(ctx, "git", "status", "--porcelain")
	tags, err2 := output(ctx, "git", "tag", "--points-at", "HEAD")
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	b.changed = status != ""
	b.version, err = choose(b.version, strings.Fields(tags), b.changed, b.rehearsal)
	return err
}

// choose is the version of a release of sources at a commit with these tags; wanted is "" for the commit's own. A
// rehearsal needs neither a tag nor unchanged sources, but a version: it must not be taken for a release that there
// will be.
func choose(wanted string, tags []string, changed, rehearsal bool) (string, error) {
	is := func(v string) bool { return semver.IsValid(v) && semver.Canonical(v) == v }
	tags = slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return !is(t) })
	if wanted == "" && !rehearsal && len(tags) == 1 {
		wanted = tags[0]
	}
	switch {
	case wanted == "":
		return "", fmt.Errorf("HEAD has the tags %q, want one such as v1.2.3: git tag it, or set VERSION", tags)
	case !is(wanted): // no tag of an image has a +
		return "", fmt.Errorf("version %q: write v1.2.3, or v1.2.3-rc.1, and no +", wanted)
	case !rehearsal && changed:
		return "", errors.New("the sources are changed (git status): commit first, or set REHEARSAL=1")
	case !rehearsal && !slices.Contains(tags, wanted):
		return "", fmt.Errorf("HEAD has the tags %q, and not %s: git tag it, or set REHEARSAL=1", tags, wanted)
	}
	return wanted, nil
}

// writeFiles writes all files of a release but the images.
func (b *builder) writeFiles(ctx context.Context) error {
	return errors.Join(b.archivePrograms(ctx), b.packChart(), b.writeProvenance(ctx), edit("deploy/install.yaml",
		b.out+"/install.yaml", "image: forcefence:dev", "image: "+b.repository()+":"+b.version))
}

// repository is what manifests call the image.
func (b *builder) repository() string { return cmp.Or(b.push, "forcefence") }

// completion is the file with which kubectl completes the plugin's arguments.
const completion = "kubectl_complete-forcefence"

// archivePrograms writes archives of the programs, with their licences: those of Linux are the very files of the image,
// and kubectl-forcefence is forcefence by that name.
func (b *builder) archivePrograms(ctx context.Context) error {
	for _, p := range slices.Concat(platforms, b.plugins) {
		file := b.program("forcefence", p)
		archives := map[string][]string{"kubectl-forcefence": {file}}
		if p.OS == "linux" {
			archives["forcefence"] = []string{file, b.program("forcefence-node", p)}
		} else {
			args := slices.Concat([]string{"GOOS=" + p.OS, "GOARCH=" + p.Architecture, "go", "build"}, buildFlags,
				[]string{"-ldflags", b.ldflags(), "-o", file, "./cmd/forcefence"})
			if _, err := output(ctx, "env", args...); err != nil {
				return err
			}
		}
		for name, files := range archives {
			to := b.file(name, "-", p.OS, "-", p.Architecture, ".tar.gz")
			dir := filepath.Join(b.tmp, filepath.Base(to))
			err := os.CopyFS(dir, os.DirFS(filepath.Join(b.tmp, "legal", legalFolder)))
			for i, file := range files {
				err = errors.Join(err, os.Link(file, filepath.Join(dir, []string{name, "forcefence-node"}[i])))
			}
			if name == "kubectl-forcefence" {
				text, err2 := os.ReadFile("cmd/forcefence/" + completion)
				err = errors.Join(err, err2, os.WriteFile(filepath.Join(dir, completion), text, 0o755))
			}
			if err := errors.Join(err, packGz(to, dir)); err != nil {
				return err
			}
		}
	}
	return nil
}

// packChart packs the chart with this version: its own without the v, and the image's tag with it.
func (b *builder) packChart() error {
	version, dir := strings.TrimPrefix(b.version, "v"), filepath.Join(b.tmp, "chart")
	chart, values := dir+"/forcefence/Chart.yaml", dir+"/forcefence/values.yaml"
	return errors.Join(os.CopyFS(dir, os.DirFS("deploy/helm")),
		edit(chart, chart, "\nversion: 0.0.0\n", "\nversion: "+version+"\n"),
		edit(chart, chart, "\nappVersion: dev\n", "\nappVersion: "+b.version+"\n"),
		edit(chart, chart, `prerelease: "true"`, fmt.Sprintf(`prerelease: "%t"`, semver.Prerelease(b.version) != "")),
		edit(values, values, "\n  repository: \"\"\n", "\n  repository: "+b.repository()+"\n"),
		packGz(b.out+"/forcefence-"+version+".tgz", dir))
}

// edit writes a file with other words, which must be there.
func edit(from, to, before, after string) error {
	text, err := os.ReadFile(from)
	if err == nil && !bytes.Contains(text, []byte(before)) {
		err = fmt.Errorf("%s: there is no %q", from, before)
	}
	return errors.Join(err, os.WriteFile(to, bytes.ReplaceAll(text, []byte(before), []byte(after)), 0o644))
}

// writeProvenance writes in SLSA's words of what the files are made: the modules are those of go.sum, and the SBOMs
// list them. It has no time and no machine's name: the same sources give the same bytes.
func (b *builder) writeProvenance(ctx context.Context) error {
	source := map[string]any{"uri": "git+https://" + project, "digest": map[string]string{"gitCommit": b.revision},
		"annotations": map[string]bool{"changed": b.changed}}
	if !b.rehearsal {
		source["uri"] = "git+https://" + project + "@refs/tags/" + b.version
	}
	ko, err := output(ctx, "go", "-C", ".ci/image", "list", "-m", "-f", "{{.Path}}@{{.Version}}",
		"github.com/google/ko")
	text, err2 := json.MarshalIndent(map[string]any{
		"buildDefinition": map[string]any{
			"buildType": page + "#cut-a-release",
			"externalParameters": map[string]any{"version": b.version, "repository": b.repository(),
				"rehearsal": b.rehearsal, "agents": b.agents},
			"resolvedDependencies": []any{source, map[string]any{"uri": "pkg:golang/std@" + runtime.Version()},
				map[string]any{"uri": "pkg:golang/" + ko}},
		},
		"runDetails": map[string]any{"builder": map[string]any{"id": page + "#the-holder-of-the-key"}},
	}, "", " ")
	return errors.Join(err, err2, os.WriteFile(b.out+"/provenance.json", append(text, '\n'), 0o644))
}

// writeSums writes SHA256SUMS of all files, and signs them, and the provenance for them.
func (b *builder) writeSums(ctx context.Context) error {
	entries, err := os.ReadDir(b.out)
	var sums bytes.Buffer
	for _, e := range entries {
		text, err2 := os.ReadFile(filepath.Join(b.out, e.Name()))
		err = errors.Join(err, err2)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), e.Name())
	}
	file := filepath.Join(b.out, "SHA256SUMS")
	return errors.Join(err, os.WriteFile(file, sums.Bytes(), 0o644),
		b.cosign(ctx, "sign-blob", "--bundle="+file+".sigstore.json", file),
		b.cosign(ctx, "attest-blob", "--type=slsaprovenance1", "--predicate="+b.out+"/provenance.json",
			"--bundle="+b.out+"/provenance.sigstore.json", file))
}

// signImage signs an image in its registry, and attaches the provenance and its SBOMs.
func (b *builder) signImage(ctx context.Context, img *image, digest string) error {
	err := errors.Join(b.cosign(ctx, "sign", digest),
		b.cosign(ctx, "attest", "--type=slsaprovenance1", "--predicate="+b.out+"/provenance.json", digest))
	for _, sbom := range img.sboms {
		err = errors.Join(err, b.cosign(ctx, "attest", "--type=spdxjson", "--predicate="+sbom, digest))
	}
	return err
}

// cosign signs with the key, if there is one, in no transparency log and without asking a service.
func (b *builder) cosign(ctx context.Context, args ...string) error {
	if b.key == "" {
		return nil
	}
	program, err := output(ctx, "go", "-C", ".ci/image", "tool", "-n", "cosign")
	services := filepath.Join(b.tmp, "services.json")
	err = errors.Join(err, os.WriteFile(services,
		[]byte(`{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}`), 0o600))
	if err == nil {
		_, err = output(ctx, program, append(args, "--yes", "--key="+b.key, "--signing-config="+services)...)
	}
	return err
}
