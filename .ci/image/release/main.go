// Command release makes all files of a release from one commit: the image with its SBOMs, provenance and signature,
// programs, the plugin, the chart, install.yaml, and the sums of all of them. docs/release.md says how to cut one and
// how to verify one.
//
// It signs with a key of cosign's, without a transparency log, and uses the network only for Go's modules, Debian's
// packages where the image with fence agents is wanted, and the registry that it pushes to.
//
//	cd .ci/image && go run ./release -source ../.. -out ../../out/release
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/forcefence/forcefence/.ci/image/internal/oci"
)

// project is where the sources are, and the name of their module.
const project = "github.com/forcefence/forcefence"

func main() {
	r := release{abroad: darwin}
	flag.StringVar(&r.source, "source", "../..", "folder of the sources")
	flag.StringVar(&r.out, "out", "../../out/release", "folder to write; what was in it is removed")
	flag.StringVar(&r.version, "version", "", "such as v1.2.3; empty: the tag of HEAD")
	flag.BoolVar(&r.rehearsal, "rehearsal", false, "from sources that are changed or have no such tag; the "+
		"provenance says so")
	flag.BoolVar(&r.agents, "agents", false, "the image with fence agents, too")
	flag.StringVar(&r.agentsSources, "agents-sources", "", "file of apt's sources to take Debian's packages from; "+
		"empty: Debian's mirrors")
	flag.StringVar(&r.push, "push", "", "repository to push the images to, such as registry.example.net/forcefence; "+
		"chart and install.yaml name it")
	key := flag.String("key", "", "private key of cosign's to sign with, its password in COSIGN_PASSWORD; empty: "+
		"nothing is signed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := func() (err error) {
		if *key != "" {
			if r.key, err = readKey(*key, os.Getenv("COSIGN_PASSWORD")); err != nil {
				return err
			}
		}
		return r.run(ctx)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// release is what is wanted of one.
type release struct {
	source, out, version  string
	rehearsal, agents     bool
	agentsSources, push   string
	helm                  string        // the program
	abroad                []v1.Platform // of the plugin, beside the image's
	key                   *key          // nil: unsigned
	revision, tmp, status string        // status: what is changed in the sources
}

// picture is one image of all platforms.
type picture struct {
	suffix    string // of its tag and its files: "" or -agents
	dir       string // its layout
	index     v1.ImageIndex
	digest    v1.Hash
	documents map[string][]byte // SBOMs by platform
}

func (r *release) run(ctx context.Context) error {
	if err := r.decide(ctx); err != nil {
		return err
	}
	var err error
	if r.tmp, err = os.MkdirTemp("", "forcefence-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.tmp)
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	pictures, err := r.build(ctx)
	if err != nil {
		return err
	}
	if r.helm, err = findHelm(ctx, r.source); err != nil {
		return err
	}
	if err := errors.Join(r.programs(ctx, pictures[0]), r.chart(ctx), r.plain()); err != nil {
		return err
	}
	provenance, err := r.provenance(ctx, pictures)
	if err != nil {
		return fmt.Errorf("write provenance: %w", err)
	}
	if err := r.write("provenance.json", provenance); err != nil {
		return err
	}
	host, stop, err := serve()
	if err != nil {
		return err
	}
	defer stop()
	for _, p := range pictures {
		attached, err := r.attach(ctx, host, p, provenance)
		if err != nil {
			return fmt.Errorf("sign image%s: %w", p.suffix, err)
		}
		if err := oci.Pack(p.dir, filepath.Join(r.out, "forcefence-"+r.version+p.suffix+".oci.tar")); err != nil {
			return err
		}
		if r.push != "" {
			if err := pushAll(ctx, r.push+":"+r.version+p.suffix, p.index, attached); err != nil {
				return fmt.Errorf("push: %w", err)
			}
		}
		fmt.Printf("%s:%s%s@%s\n", r.repository(), r.version, p.suffix, p.digest)
	}
	return r.sums(ctx)
}

// repository is what manifests call the image.
func (r *release) repository() string {
	if r.push != "" {
		return r.push
	}
	return "forcefence"
}

func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// decide finds the version, and refuses sources that are not those of it.
func (r *release) decide(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", r.source}, args...)...)
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	var err, err2, err3 error
	r.revision, err = git("rev-parse", "HEAD")
	r.status, err2 = git("status", "--porcelain")
	tags, err3 := git("tag", "--points-at", "HEAD")
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	r.version, err = choose(r.version, strings.Fields(tags), r.status != "", r.rehearsal)
	return err
}

// build makes the images as `make image` does, and their SBOMs.
func (r *release) build(ctx context.Context) ([]*picture, error) {
	all := []*picture{{}}
	archive := func(p *picture) string { return filepath.Join(r.tmp, "image"+p.suffix+".oci.tar") }
	source, err := filepath.Abs(r.source)
	if err != nil {
		return nil, err
	}
	args := []string{"run", ".", "-source", source, "-out", archive(all[0]), "-version", r.version, "-revision",
		r.revision}
	if r.agents {
		all = append(all, &picture{suffix: "-agents"})
		args = append(args, "-agents", archive(all[1]), "-agents-sources", r.agentsSources)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(source, ".ci/image"), os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build images: %w", err)
	}
	for _, p := range all {
		if err := r.read(p, archive(p)); err != nil {
			return nil, fmt.Errorf("read image%s: %w", p.suffix, err)
		}
	}
	return all, nil
}

// read fills in what an archive has, and writes its SBOMs.
func (r *release) read(p *picture, archive string) (err error) {
	p.dir, p.documents = filepath.Join(r.tmp, "layout"+p.suffix), map[string][]byte{}
	if err := oci.Unpack(archive, p.dir); err != nil {
		return err
	}
	if p.index, err = oci.Open(p.dir); err != nil {
		return err
	}
	if p.digest, err = p.index.Digest(); err != nil {
		return err
	}
	for _, platform := range oci.Platforms {
		document, err := sbom(p.index, platform, r.version)
		if err != nil {
			return fmt.Errorf("SBOM of %s: %w", platform, err)
		}
		p.documents[platform.String()] = document
		if err := r.write(
			fmt.Sprintf("forcefence-%s%s-%s-%s.spdx.json", r.version, p.suffix, platform.OS, platform.Architecture),
			document); err != nil {
			return err
		}
	}
	return nil
}
