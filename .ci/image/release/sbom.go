package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/forcefence/forcefence/.ci/image/internal/linked"
	"github.com/forcefence/forcefence/.ci/image/internal/oci"
)

const (
	none = "NOASSERTION"
	// Debian's packages in the image with fence agents: what each says of itself
	status  = "var/lib/dpkg/status.d/"
	sumsDeb = "usr/share/forcefence/packages" // and their checksums
	ours    = "ko-app/"                       // our programs
)

// sbom is an SPDX 2.3 document of one platform's image: its programs, what is linked into them by what they say
// themselves, and Debian's packages. The image's licences are what it calls the modules'. The same image gives the same
// bytes.
func sbom(index v1.ImageIndex, p v1.Platform, version string) ([]byte, error) {
	img, err := oci.Of(index, p)
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	files, err := oci.Files(img, ours, linked.Folder+"/", status, sumsDeb)
	if err != nil {
		return nil, err
	}
	d := &document{Document: spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      fmt.Sprintf("forcefence %s for %s", version, p),
		DocumentNamespace: fmt.Sprintf("https://%s/spdx/%s/%s-%s", project, version, p.Architecture, digest.Hex),
		CreationInfo: &spdx.CreationInfo{
			Created:  config.Created.UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: project + "/.ci/image/release"}},
		},
	}}
	image := d.add("", &spdx.Package{
		PackageName: "forcefence", PackageVersion: version, PrimaryPackagePurpose: "CONTAINER",
		PackageChecksums:       []common.Checksum{{Algorithm: common.SHA256, Value: digest.Hex}},
		PackageLicenseDeclared: "Apache-2.0",
		PackageExternalReferences: purl(
			fmt.Sprintf("pkg:oci/forcefence@%s?arch=%s", strings.Replace(digest.String(), ":", "%3A", 1),
				p.Architecture)),
	})
	d.relate("DOCUMENT", "DESCRIBES", image)
	for _, file := range sorted(files) {
		if !strings.HasPrefix(file, ours) {
			continue
		}
		if err := d.program(image, file, version, files); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := d.debian(image, files); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(&d.Document, "", " ")
	return append(text, '\n'), err
}

// document is one in the making.
type document struct {
	spdx.Document
	known map[string]common.ElementID // packages that several programs have
}

func (d *document) relate(from common.ElementID, how string, to common.ElementID) {
	d.Relationships = append(d.Relationships, &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, Relationship: how, RefB: common.DocElementID{ElementRefID: to},
	})
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// add adds a package once for each kind, name and version, and returns its identifier.
func (d *document) add(kind string, p *spdx.Package) common.ElementID {
	key := strings.Join([]string{kind, p.PackageName, p.PackageVersion}, " ")
	if id, ok := d.known[key]; ok {
		return id
	}
	// The identifier is for machines: a sum of the whole keeps a/b-c and a-b/c apart.
	sum := sha256.Sum256([]byte(key))
	p.PackageSPDXIdentifier = common.ElementID("Package-" + strings.Trim(unfit.ReplaceAllString(key, "-"), "-") + "-" +
		hex.EncodeToString(sum[:4]))
	p.PackageDownloadLocation = cmp.Or(p.PackageDownloadLocation, none)
	p.PackageLicenseDeclared = cmp.Or(p.PackageLicenseDeclared, none)
	p.PackageLicenseConcluded, p.PackageCopyrightText, p.IsFilesAnalyzedTagPresent = none, none, true
	d.Packages = append(d.Packages, p)
	if d.known == nil {
		d.known = map[string]common.ElementID{}
	}
	d.known[key] = p.PackageSPDXIdentifier
	return p.PackageSPDXIdentifier
}

// program adds one of our programs, and the modules that are linked into it.
func (d *document) program(image common.ElementID, file, version string, files map[string][]byte) error {
	modules, err := linked.In(bytes.NewReader(files[file]))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(files[file])
	program := d.add("program", &spdx.Package{
		PackageName: path.Base(file), PackageVersion: version, PackageFileName: "/" + file,
		PrimaryPackagePurpose:     "APPLICATION",
		PackageChecksums:          []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum[:])}},
		PackageLicenseDeclared:    "Apache-2.0",
		PackageExternalReferences: purl("pkg:golang/" + project + "@" + version + "#cmd/" + path.Base(file)),
	})
	d.relate(image, "CONTAINS", program)
	for _, m := range modules {
		terms, err := linked.TermsIn(files, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name(), err)
		}
		p := &spdx.Package{
			PackageName: m.Path, PackageVersion: m.Version, PrimaryPackagePurpose: "LIBRARY",
			PackageLicenseDeclared:    strings.Join(terms, " AND "),
			PackageExternalReferences: purl("pkg:golang/" + m.Name()),
		}
		if m.Path != linked.Std {
			sum, err := dirHash(m.Sum)
			if err != nil {
				return fmt.Errorf("%s: %w", m.Name(), err)
			}
			p.PackageDownloadLocation = "https://proxy.golang.org/" + escape(m.Path) + "/@v/" + escape(m.Version) +
				".zip"
			p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: sum}}
			p.PackageSourceInfo = "The checksum is go.sum's " + m.Sum +
				", over the module's files, and not over the archive."
		}
		d.relate(program, "DEPENDS_ON", d.add("module", p))
	}
	return nil
}

// debian adds the packages in dpkg's records of the image.
func (d *document) debian(image common.ElementID, files map[string][]byte) error {
	sums := map[string]string{} // by the archive's name
	for line := range strings.Lines(string(files[sumsDeb])) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			sums[name] = sum
		}
	}
	for _, file := range sorted(files) {
		if !strings.HasPrefix(file, status) {
			continue
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(files[file])) {
			if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") {
				fields[name] = strings.TrimSpace(value)
			}
		}
		name, version, arch := fields["Package"], fields["Version"], fields["Architecture"]
		archive := fmt.Sprintf("%s_%s_%s.deb", name, strings.ReplaceAll(version, ":", "%3a"), arch) // as apt calls it
		if name == "" || version == "" || sums[archive] == "" {
			return fmt.Errorf("%s: package %q of version %q has no checksum as %s", file, name, version, archive)
		}
		d.relate(image, "CONTAINS", d.add("deb", &spdx.Package{
			PackageName: name, PackageVersion: version, PackageFileName: archive,
			PackageChecksums:       []common.Checksum{{Algorithm: common.SHA256, Value: sums[archive]}},
			PackageLicenseComments: "/usr/share/doc/" + name + "/copyright",
			PackageExternalReferences: purl(
				fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", name,
					strings.NewReplacer(":", "%3A", "+", "%2B", "~", "~").Replace(version), arch)),
		}))
	}
	return nil
}

func purl(locator string) []*spdx.PackageExternalReference {
	return []*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: locator}}
}

// dirHash is a sum of go.sum in hexadecimal digits.
func dirHash(sum string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	if err != nil || len(b) != sha256.Size || !strings.HasPrefix(sum, "h1:") {
		return "", errors.New("its sum is " + sum + ", want one that begins with h1:")
	}
	return hex.EncodeToString(b), nil
}

// escape writes upper-case letters as Go's module proxies have them.
func escape(s string) string {
	return regexp.MustCompile(`[A-Z]`).
		ReplaceAllStringFunc(s, func(c string) string { return "!" + strings.ToLower(c) })
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
