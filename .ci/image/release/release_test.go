package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	cosignlayout "github.com/sigstore/cosign/v3/pkg/oci/layout"
	ociremote "github.com/sigstore/cosign/v3/pkg/oci/remote"
	"github.com/sigstore/cosign/v3/pkg/types"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/forcefence/forcefence/.ci/image/internal/linked"
	"github.com/forcefence/forcefence/.ci/image/internal/oci"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newKey is a key pair as cosign makes it: the private one in a file, which only its password opens, and what verifies
// with the public one.
func newKey(t *testing.T) (*key, *cosign.CheckOpts) {
	t.Helper()
	pair, err := cosign.GenerateKeyPair(func(bool) ([]byte, error) { return []byte("secret"), nil })
	must(t, err)
	file := filepath.Join(t.TempDir(), "cosign.key")
	must(t, os.WriteFile(file, pair.PrivateBytes, 0o600))
	if _, err := readKey(file, "other"); err == nil {
		t.Error("the key opens with another password")
	}
	k, err := readKey(file, "secret")
	must(t, err)
	public, err := cryptoutils.UnmarshalPEMToPublicKey(pair.PublicBytes)
	must(t, err)
	verifier, err := signature.LoadVerifier(public, crypto.SHA256)
	must(t, err)
	return k,
		&cosign.CheckOpts{SigVerifier: verifier, IgnoreTlog: true, Offline: true, NewBundleFormat: true,
			ClaimVerifier: cosign.IntotoSubjectClaimVerifier}
}

// newRegistry is one on 127.0.0.1, with or without OCI's list of what refers to an image.
func newRegistry(t *testing.T, referrers bool) string {
	t.Helper()
	s := httptest.NewServer(
		registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(referrers)))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestRelease makes a release of the image that `make image` made, and is who verifies it: with cosign's library, from
// registries on 127.0.0.1 and from its archive. Only the plugin for darwin is not made.
func TestRelease(t *testing.T) {
	archive := os.Getenv("FORCEFENCE_IMAGE")
	if archive == "" {
		t.Skip("needs an image's archive: set FORCEFENCE_IMAGE, as make image-test does")
	}
	ctx := t.Context()
	signer, check := newKey(t)
	host := newRegistry(t, true)
	r := &release{source: "../../..", out: t.TempDir(), tmp: t.TempDir(), version: "v9.8.7", rehearsal: true,
		push: host + "/team/forcefence", key: signer,
		revision: strings.Repeat("0", 40), status: " M x"}
	p := &picture{}
	var err error
	r.helm, err = findHelm(ctx, r.source)
	must(t, err)
	must(t, r.read(p, archive))
	must(t, r.programs(ctx, p))
	must(t, r.chart(ctx))
	must(t, r.plain())
	provenance, err := r.provenance(ctx, []*picture{p})
	must(t, err)
	must(t, r.write("provenance.json", provenance))
	staging, stop, err := serve()
	must(t, err)
	defer stop()
	attached, err := r.attach(ctx, staging, p, provenance)
	must(t, err)
	must(t, oci.Pack(p.dir, filepath.Join(r.out, "forcefence-v9.8.7.oci.tar")))
	must(t, r.sums(ctx))

	t.Run("sbom", func(t *testing.T) { testSBOM(t, p) })
	t.Run("licences", func(t *testing.T) { testLicences(t, p) })
	t.Run("programs", func(t *testing.T) { testPrograms(t, r, p) })
	t.Run("chart", func(t *testing.T) { testChart(t, r) })
	t.Run("provenance", func(t *testing.T) { testProvenance(t, r, p, provenance) })
	t.Run("sums", func(t *testing.T) { testSums(t, r, check) })
	for _, referrers := range []bool{true, false} {
		host := newRegistry(t, referrers)
		must(t, pushAll(ctx, host+"/team/forcefence:v9.8.7", p.index, attached))
		testSigned(t, host+"/team/forcefence:v9.8.7", p, provenance, check)
	}
	t.Run("other image", func(t *testing.T) { testOtherImage(t, host, p, attached, check) })
	t.Run("changed", func(t *testing.T) { testChanged(t, p, attached, check) })
	t.Run("archive", func(t *testing.T) { testArchive(t, r, p, provenance, check) })
}

// testSigned verifies all that is attached to an image, and that another key does not.
func testSigned(t *testing.T, image string, p *picture, provenance []byte, check *cosign.CheckOpts) {
	t.Helper()
	ref, err := name.ParseReference(image)
	must(t, err)
	found, verified, err := cosign.VerifyImageAttestations(t.Context(), ref, check)
	if err != nil || !verified {
		t.Fatalf("%s: %v, verified %v", image, err, verified)
	}
	got := map[string]int{}
	for _, a := range found {
		envelope, err := a.Payload()
		must(t, err)
		var e struct{ Payload []byte }
		must(t, json.Unmarshal(envelope, &e))
		var s intoto.Statement
		must(t, protojson.Unmarshal(e.Payload, &s))
		must(t, s.Validate())
		got[s.GetPredicateType()]++
		switch s.GetPredicateType() {
		case predicateSLSA:
			if !bytes.Equal(e.Payload, provenance) {
				t.Error("the provenance that is attached is not the one in the file")
			}
		case predicateSPDX:
			var of struct{ Predicate json.RawMessage }
			must(t, json.Unmarshal(e.Payload, &of))
			if !slices.ContainsFunc(slices.Collect(maps.Values(p.documents)), func(d []byte) bool {
				var compact bytes.Buffer
				return json.Compact(&compact, d) == nil && bytes.Equal(compact.Bytes(), of.Predicate)
			}) {
				t.Error("an SBOM that is attached is none of the files")
			}
		}
	}
	if want := map[string]int{
		types.CosignSignPredicateType: 1, predicateSLSA: 1, predicateSPDX: 2}; !maps.Equal(got, want) {
		t.Errorf("%s: attached are %v, want %v", image, got, want)
	}
	_, other := newKey(t)
	if found, _, err := cosign.VerifyImageAttestations(t.Context(), ref, other); err == nil {
		t.Errorf("%s: another key verifies %d attachments", image, len(found))
	}
}

// testOtherImage attaches what was signed for one image to another: it is refused there.
func testOtherImage(t *testing.T, host string, p *picture, attached []v1.Image, check *cosign.CheckOpts) {
	other := mutate.Annotations(p.index, map[string]string{"other": "image"}).(v1.ImageIndex)
	tag, err := name.NewTag(host + "/team/other:v1")
	must(t, err)
	must(t, remote.WriteIndex(tag, other))
	digest, err := other.Digest()
	must(t, err)
	for _, b := range bundles(t, attached) {
		must(t, ociremote.WriteAttestationNewBundleFormat(tag.Digest(digest.String()), b, predicateSPDX))
	}
	if found, _, err := cosign.VerifyImageAttestations(t.Context(), tag, check); err == nil {
		t.Errorf("another image has %d attachments that verify", len(found))
	}
}

// bundles are the signatures of what is attached.
func bundles(t *testing.T, attached []v1.Image) (all [][]byte) {
	t.Helper()
	for _, img := range attached {
		layers, err := img.Layers()
		must(t, err)
		for _, l := range layers {
			c, err := l.Compressed()
			must(t, err)
			b, err := io.ReadAll(c)
			must(t, errors.Join(err, c.Close()))
			all = append(all, b)
		}
	}
	if len(all) != 4 {
		t.Fatalf("%d bundles are attached, want 4", len(all))
	}
	return all
}

// testChanged: a changed byte of signature, provenance, SBOM or image is found.
func testChanged(t *testing.T, p *picture, attached []v1.Image, check *cosign.CheckOpts) {
	digest, err := hex.DecodeString(p.digest.Hex)
	must(t, err)
	verified := func(b *bundle.Bundle) error {
		_, err := cosign.VerifyNewBundle(t.Context(), check, verify.WithArtifactDigest(p.digest.Algorithm, digest), b)
		return err
	}
	for i, text := range bundles(t, attached) {
		var b bundle.Bundle
		must(t, b.UnmarshalJSON(text))
		must(t, verified(&b))
		envelope := b.GetContent().(*protobundle.Bundle_DsseEnvelope).DsseEnvelope
		for what, bytes := range map[string][]byte{
			"payload": envelope.GetPayload(), "signature": envelope.GetSignatures()[0].GetSig()} {
			for _, at := range []int{0, len(bytes) / 2, len(bytes) - 1} {
				bytes[at] ^= 1
				if verified(&b) == nil {
					t.Errorf("bundle %d verifies with byte %d of its %s changed", i, at, what)
				}
				bytes[at] ^= 1
			}
		}
		must(t, verified(&b))
		other := slices.Clone(digest)
		other[0] ^= 1
		if _, err := cosign.VerifyNewBundle(t.Context(), check, verify.WithArtifactDigest(p.digest.Algorithm, other),
			&b); err == nil {
			t.Errorf("bundle %d verifies for another digest", i)
		}
	}
	must(t, validate.Index(p.index))
	manifest, err := p.index.IndexManifest()
	must(t, err)
	img, err := p.index.Image(manifest.Manifests[0].Digest)
	must(t, err)
	layers, err := img.Layers()
	must(t, err)
	last, err := layers[len(layers)-1].Digest()
	must(t, err)
	for _, blob := range []v1.Hash{last, manifest.Manifests[1].Digest} {
		file := filepath.Join(p.dir, "blobs", blob.Algorithm, blob.Hex)
		whole, err := os.ReadFile(file)
		must(t, err)
		changed := slices.Clone(whole)
		changed[len(changed)/2] ^= 1
		must(t, os.WriteFile(file, changed, 0o600))
		index, err := oci.Open(p.dir)
		if err == nil {
			err = pushAll(t.Context(), newRegistry(t, true)+"/changed/forcefence:v1", index, nil)
		}
		if err == nil {
			t.Errorf("a registry takes the image with a byte of %s changed", blob)
		}
		must(t, os.WriteFile(file, whole, 0o600))
	}
}

// testArchive: from the archive alone cosign pushes image and attachments to a registry, as `cosign load` does.
func testArchive(t *testing.T, r *release, p *picture, provenance []byte, check *cosign.CheckOpts) {
	dir := t.TempDir()
	must(t, oci.Unpack(filepath.Join(r.out, "forcefence-v9.8.7.oci.tar"), dir))
	top, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	list, err := top.IndexManifest()
	must(t, err)
	if len(list.Manifests) != 1 || list.Manifests[0].Digest != p.digest {
		t.Errorf("the archive lists %v, want the image alone: what loads it takes no second", list.Manifests)
	}
	to := newRegistry(t, true) + "/loaded/forcefence:v1"
	ref, err := name.ParseReference(to)
	must(t, err)
	whole, err := cosignlayout.SignedImageIndex(dir)
	must(t, err)
	must(t, ociremote.WriteSignedImageIndexImages(ref, whole, dir))
	testSigned(t, to, p, provenance, check)
}

// testSBOM compares the SBOMs with what the programs of the image say of themselves.
func testSBOM(t *testing.T, p *picture) {
	for _, platform := range oci.Platforms {
		doc, err := spdxjson.Read(bytes.NewReader(p.documents[platform.String()]))
		must(t, err)
		must(t, spdxlib.ValidateDocument(doc))
		img, err := oci.Of(p.index, platform)
		must(t, err)
		files, err := oci.Files(img, ours)
		must(t, err)
		byID, want := map[common.ElementID]*spdx.Package{}, map[string]bool{}
		for _, pkg := range doc.Packages {
			byID[pkg.PackageSPDXIdentifier] = pkg
		}
		got := map[string]bool{}
		for _, rel := range doc.Relationships {
			if rel.Relationship != "DEPENDS_ON" {
				continue
			}
			program, module := byID[rel.RefA.ElementRefID], byID[rel.RefB.ElementRefID]
			sum := ""
			for _, c := range module.PackageChecksums {
				sum = c.Value
			}
			got[strings.Join([]string{program.PackageFileName, module.PackageName, module.PackageVersion, sum},
				" ")] = true
			if module.PackageLicenseDeclared == "" || module.PackageLicenseDeclared == none {
				t.Errorf("%s: %s has no licence", platform, module.PackageName)
			}
		}
		for name, program := range files {
			info, err := buildinfo.Read(bytes.NewReader(program))
			must(t, err)
			want[strings.Join([]string{"/" + name, "std", info.GoVersion, ""}, " ")] = true
			for _, dep := range info.Deps {
				sum, err := dirHash(dep.Sum)
				must(t, err)
				want[strings.Join([]string{"/" + name, dep.Path, dep.Version, sum}, " ")] = true
			}
		}
		if !maps.Equal(got, want) || len(files) != 2 || len(want) < 100 {
			t.Errorf("%s: the SBOM has %d linked modules, the %d programs %d: only there %v, only here %v", platform,
				len(got), len(files), len(want), without(got, want), without(want, got))
		}
	}
}

func without(a, b map[string]bool) []string {
	return slices.DeleteFunc(sorted(a), func(s string) bool { return b[s] })
}

// testLicences: a module without a licence in the image is found, and so is one under a licence that is not allowed.
func testLicences(t *testing.T, p *picture) {
	img, err := oci.Of(p.index, oci.Platforms[0])
	must(t, err)
	files, err := oci.Files(img, ours, linked.Folder+"/")
	must(t, err)
	modules, err := linked.In(bytes.NewReader(files[ours+"forcefence"]))
	must(t, err)
	gpl := []byte("This program is free software; you can redistribute it and/or modify it under the terms of the " +
		"GNU General Public License as " +
		"published by the Free Software Foundation; either version 2 of the License, or (at your option) any later " +
		"version.")
	if _, err := linked.Terms(map[string][]byte{"COPYING": gpl}); err == nil ||
		!strings.Contains(err.Error(), "is under GPL-2.0-or-later") {
		t.Errorf("the GPL: got %v", err)
	}
	for begin, want := range map[string]string{
		"/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-or-later */\n":       "BSD-3-Clause",
		"/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */\n":  "",
		"/* SPDX-License-Identifier: BSD-3-Clause AND GPL-2.0-or-later */\n":      "",
		"Of a part:\nSPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-or-later\n": "",
	} {
		terms, err := linked.Terms(map[string][]byte{"COPYING": append([]byte(begin), gpl...)})
		if got := strings.Join(terms, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("the GPL behind %q: got %q, %v, want %q", begin, got, err, want)
		}
	}
	for _, m := range modules {
		if _, err := linked.TermsIn(files, m); err != nil {
			t.Errorf("%s: %v", m.Name(), err)
		}
		poor, foreign, strange := maps.Clone(files), maps.Clone(files), maps.Clone(files)
		maps.DeleteFunc(poor,
			func(name string, _ []byte) bool { return strings.HasPrefix(name, linked.Folder+"/"+m.Name()+"/") })
		foreign[linked.Folder+"/"+m.Name()+"/sub/LICENSE"] = gpl
		strange[linked.Folder+"/"+m.Name()+"/COPYING.txt"] = []byte("Do with this what you like, but only on " +
			"Sundays, and never in the house of a goat.")
		for what, files := range map[string]map[string][]byte{
			"no licence": poor, "the GPL": foreign, "words of its own": strange} {
			if terms, err := linked.TermsIn(files, m); err == nil {
				t.Errorf("%s with %s: got %v", m.Name(), what, terms)
			}
		}
	}
}

// unpacked are the files of an archive that may be run.
func unpacked(t *testing.T, file string) (files map[string][]byte, programs []string) {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	files = map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, programs
		}
		must(t, err)
		files[h.Name], err = io.ReadAll(r)
		must(t, err)
		if h.Mode&0o111 != 0 {
			programs = append(programs, h.Name)
		}
	}
}

// testPrograms: what is in the archives is what is in the image, with its licences.
func testPrograms(t *testing.T, r *release, p *picture) {
	for _, platform := range oci.Platforms {
		img, err := oci.Of(p.index, platform)
		must(t, err)
		image, err := oci.Files(img, "")
		must(t, err)
		at := "-v9.8.7-linux-" + platform.Architecture + ".tar.gz"
		own, programs := unpacked(t, filepath.Join(r.out, "forcefence"+at))
		if want := []string{"forcefence", "forcefence-node"}; !slices.Equal(programs, want) {
			t.Errorf("forcefence%s: programs %q, want %q", at, programs, want)
		}
		plugin, programs := unpacked(t, filepath.Join(r.out, "kubectl-forcefence"+at))
		if want := []string{"kubectl-forcefence"}; !slices.Equal(programs, want) {
			t.Errorf("kubectl-forcefence%s: programs %q, want %q", at, programs, want)
		}
		for name, text := range map[string][]byte{
			"forcefence": own["forcefence"], "forcefence-node": own["forcefence-node"]} {
			if !bytes.Equal(text, image[ours+name]) {
				t.Errorf("%s: %s is not that of the image", at, name)
			}
		}
		if !bytes.Equal(plugin["kubectl-forcefence"], image[ours+"forcefence"]) {
			t.Errorf("%s: the plugin is not the image's forcefence", at)
		}
		for _, licence := range []string{"LICENSE", "licences/std@" + goVersion(t, own["forcefence"]) + "/LICENSE"} {
			if len(own[licence]) == 0 || !bytes.Equal(own[licence], image["usr/share/doc/forcefence/"+licence]) {
				t.Errorf("%s: %s is not that of the image", at, licence)
			}
		}
	}
}

func goVersion(t *testing.T, program []byte) string {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	must(t, err)
	return info.GoVersion
}

// testChart: the chart has the version and the image, install.yaml the image; and once more, from files of other times
// and modes, the same bytes.
func testChart(t *testing.T, r *release) {
	file := "forcefence-9.8.7.tgz"
	files, _ := unpacked(t, filepath.Join(r.out, file))
	for name, want := range map[string]string{
		"Chart.yaml": "\nversion: 9.8.7\n", "values.yaml": "\n  repository: " + r.push + " "} {
		if !strings.Contains(string(files["forcefence/"+name]), want) {
			t.Errorf("%s: there is no %q in\n%s", name, want, files["forcefence/"+name])
		}
	}
	if text := string(files["forcefence/Chart.yaml"]); !strings.Contains(text, "\nappVersion: v9.8.7\n") ||
		!strings.Contains(text, `artifacthub.io/prerelease: "false"`) {
		t.Errorf("Chart.yaml: got\n%s", text)
	}
	plain, err := os.ReadFile(filepath.Join(r.out, "install.yaml"))
	must(t, err)
	if n := strings.Count(string(plain), "image: "+r.push+":v9.8.7\n"); n < 2 ||
		strings.Contains(string(plain), "forcefence:dev") {
		t.Errorf("install.yaml: names the image %d times", n)
	}

	again := &release{source: t.TempDir(), out: t.TempDir(), tmp: t.TempDir(), version: r.version, push: r.push,
		helm: r.helm}
	must(t, os.CopyFS(filepath.Join(again.source, "deploy/helm/forcefence"),
		os.DirFS(filepath.Join(r.source, "deploy/helm/forcefence"))))
	must(t, filepath.WalkDir(filepath.Join(again.source, "deploy"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return errors.Join(os.Chmod(path, 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(-1000*time.Hour)))
	}))
	must(t, again.chart(t.Context()))
	one, err := os.ReadFile(filepath.Join(r.out, file))
	must(t, err)
	two, err := os.ReadFile(filepath.Join(again.out, file))
	must(t, err)
	if !bytes.Equal(one, two) {
		t.Error("the chart has other bytes the second time")
	}
}

// testProvenance: it names the image, every file, the revision and whether it is what it seems.
func testProvenance(t *testing.T, r *release, p *picture, text []byte) {
	again, err := r.provenance(t.Context(), []*picture{p})
	must(t, err)
	var s intoto.Statement
	must(t, protojson.Unmarshal(text, &s))
	must(t, s.Validate())
	subjects := map[string]string{}
	for _, of := range s.GetSubject() {
		subjects[of.GetName()] = of.GetDigest()["sha256"]
	}
	if subjects[r.push+":v9.8.7"] != p.digest.Hex {
		t.Errorf("its subjects are %v, want the image %s", subjects, p.digest)
	}
	for _, name := range []string{
		"forcefence-9.8.7.tgz", "install.yaml", "forcefence-v9.8.7-linux-arm64.tar.gz",
		"forcefence-v9.8.7-linux-amd64.spdx.json"} {
		if subjects[name] == "" {
			t.Errorf("it does not name %s", name)
		}
	}
	for _, want := range []string{
		r.revision, `"changed":true`, `"rehearsal":true`, `"dirHash"`, "pkg:golang/std@go1.",
		"pkg:golang/github.com/google/ko@v", builder, buildType} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("there is no %s in it", want)
		}
	}
	if bytes.Contains(text, []byte("refs/tags")) {
		t.Error("a rehearsal claims a tag")
	}
	if len(again) < len(text) { // the second has the files that came after the first, too
		t.Error("it is shorter the second time")
	}
}

// testSums: the signature of SHA256SUMS verifies, and not with a byte changed or by another key; and the sums are those
// of all files.
func testSums(t *testing.T, r *release, check *cosign.CheckOpts) {
	text, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	must(t, err)
	b, err := bundle.LoadJSONFromPath(filepath.Join(r.out, "SHA256SUMS.sigstore.json"))
	must(t, err)
	verified := func(text []byte, check *cosign.CheckOpts) error {
		_, err := cosign.VerifyNewBundle(t.Context(), check, verify.WithArtifact(bytes.NewReader(text)), b)
		return err
	}
	must(t, verified(text, check))
	if _, other := newKey(t); verified(text, other) == nil {
		t.Error("another key verifies SHA256SUMS")
	}
	changed := slices.Clone(text)
	changed[7] ^= 1
	if verified(changed, check) == nil {
		t.Error("SHA256SUMS verifies with a changed byte")
	}
	got, err := r.digests()
	must(t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if n++; got[name] != sum {
			t.Errorf("%s: sum %s, want %s", name, sum, got[name])
		}
	}
	if want := len(got) - 3; n != want { // the sums, their signature, the key
		t.Errorf("%d sums, want %d", n, want)
	}
}

// TestAgentsSBOM: the SBOMs of the image with fence agents name Debian's packages, each with the checksum that the
// build noted.
func TestAgentsSBOM(t *testing.T) {
	archive := os.Getenv("FORCEFENCE_IMAGE_AGENTS")
	if archive == "" {
		t.Skip("needs an image's archive: set FORCEFENCE_IMAGE_AGENTS, as make image-test does")
	}
	r, p := &release{out: t.TempDir(), tmp: t.TempDir(), version: "v9.8.7"}, &picture{suffix: "-agents"}
	must(t, r.read(p, archive))
	testSBOM(t, p)
	for _, platform := range oci.Platforms {
		doc, err := spdxjson.Read(bytes.NewReader(p.documents[platform.String()]))
		must(t, err)
		got, want := map[string]bool{}, map[string]bool{}
		for _, pkg := range doc.Packages {
			if strings.HasSuffix(pkg.PackageFileName, ".deb") {
				got[pkg.PackageChecksums[0].Value+"  "+pkg.PackageFileName] = true
			}
		}
		img, err := oci.Of(p.index, platform)
		must(t, err)
		files, err := oci.Files(img, sumsDeb)
		must(t, err)
		for line := range strings.Lines(string(files[sumsDeb])) {
			want[strings.TrimSpace(line)] = true
		}
		if !maps.Equal(got, want) || len(want) < 50 {
			t.Errorf("%s: %d packages of Debian, want %d: only there %v, only here %v", platform, len(got), len(want),
				without(got, want), without(want, got))
		}
	}
}
