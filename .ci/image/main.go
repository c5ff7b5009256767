// Command image builds forcefence's container image for all platforms into one OCI archive, without a container runtime
// and without a registry. ko does the work; this command gives it a base and checks what it made.
//
// ko wants its base from a registry, and the program needs nothing of one: it is static and brings no shell, no users,
// no time zones. So the base is empty: an index with one image without layers per platform, served on 127.0.0.1 for as
// long as ko runs.
//
// There is no file of public authorities in it: the API server's comes with the ServiceAccount, a BMC's with caFile,
// and for a cloud's API the controller's program brings Mozilla's list (cmd/forcefence), which is as old as the build.
// Who wants another mounts it and sets SSL_CERT_FILE.
//
// Both programs are in one image, the controller's as its entrypoint: one name to set and one thing to push, and the
// node's side is never of another version than the controller. ko makes an image of each, and the layers of both are
// put together.
//
// The same sources and the same version of Go give the same bytes: times come from SOURCE_DATE_EPOCH, paths are
// trimmed, the archive's entries are sorted, and the environment's flags are not heard. TestReproducible builds it
// again elsewhere.
//
// -agents writes a second archive, which has Debian's fence agents and their Python below the two programs (agents.go).
//
//	cd .ci/image && go run . -source ../.. -out ../../out/forcefence.oci.tar
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/forcefence/forcefence/.ci/image/internal/linked"
	"github.com/forcefence/forcefence/.ci/image/internal/oci"
)

const (
	user       = "65532:65532"
	entrypoint = "/ko-app/forcefence"
)

const versionLabel = "org.opencontainers.image.version"

// programs are what the image holds, in /ko-app. The first one's configuration is the image's.
var programs = []string{"forcefence", "forcefence-node"}

func main() {
	source := flag.String("source", ".", "folder of the sources")
	out := flag.String("out", "out/forcefence.oci.tar", "the archive to write")
	version := flag.String("version", "dev", "label org.opencontainers.image.version")
	revision := flag.String("revision", "", "label org.opencontainers.image.revision")
	push := flag.String("push", "", "where to push it as well, such as registry.example.net/forcefence:v1, with the "+
		"password of docker login")
	withAgents := flag.String("agents", "", "the archive to write with Debian's fence agents; -push pushes it under "+
		"the tag with -agents behind it")
	sources := flag.String("agents-sources", "", "file of apt's sources to take Debian's packages from; empty: "+
		"Debian's mirrors")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	labels := map[string]string{
		"org.opencontainers.image.title":    "forcefence",
		"org.opencontainers.image.licenses": "Apache-2.0",
		versionLabel:                        *version,
		"org.opencontainers.image.revision": *revision,
	}
	err := run(ctx, *source, variants(*out, *withAgents), *sources, labels)
	if err == nil && *push != "" {
		for _, v := range variants(*out, *withAgents) {
			err = errors.Join(err, pushTo(ctx, v.out, *push+v.suffix))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// variant is one archive.
type variant struct {
	out    string
	suffix string // of its tag; "" for the image without agents
}

func (v variant) hasAgents() bool { return v.suffix != "" }

func variants(out, withAgents string) []variant {
	all := []variant{{out, ""}}
	if withAgents != "" {
		all = append(all, variant{withAgents, "-agents"})
	}
	return all
}

func run(ctx context.Context, source string, wanted []variant, sources string, labels map[string]string) error {
	tmp, err := os.MkdirTemp("", "forcefence-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	base, stop, err := serveBase()
	if err != nil {
		return fmt.Errorf("serve base image: %w", err)
	}
	defer stop()
	bin := filepath.Join(tmp, "ko")
	if said, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/google/ko").
		CombinedOutput(); err != nil {
		return fmt.Errorf("build ko: %w\n%s", err, said)
	}
	var layouts []string
	for _, program := range programs { // one after the other: the second finds most packages compiled
		dir := filepath.Join(tmp, "layout-"+program)
		if err := ko(ctx, bin, source, program, base, dir, labels); err != nil {
			return fmt.Errorf("build image: %s: %w", program, err)
		}
		layouts = append(layouts, dir)
	}
	terms, err := licences(ctx, source, tmp)
	if err != nil {
		return fmt.Errorf("add licences: %w", err)
	}
	for _, v := range wanted {
		if err := one(ctx, v, layouts, terms, tmp, sources, labels); err != nil {
			return err
		}
	}
	return nil
}

// one writes a variant and checks it.
func one(ctx context.Context, v variant, layouts []string, terms v1.Layer, tmp, sources string,
	labels map[string]string) error {
	below := map[string]v1.Layer{}
	if v.hasAgents() {
		var err error
		if below, err = agentsLayers(ctx, tmp, sources); err != nil {
			return fmt.Errorf("add fence agents: %w", err)
		}
	}
	clean := filepath.Join(tmp, "clean"+v.suffix)
	if err := merge(layouts, below, terms, clean); err != nil {
		return fmt.Errorf("build image: %w", err)
	}
	out, err := filepath.Abs(v.out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := oci.Pack(clean, out); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	if err := check(out, filepath.Join(tmp, "check"+v.suffix), labels, v.hasAgents()); err != nil {
		return fmt.Errorf("check %s: %w", out, err)
	}
	return nil
}

// serveBase serves the empty base and returns its reference.
func serveBase() (string, func(), error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // ends with Close
	}()
	stop := func() {
		_ = srv.Close()
		<-done
	}
	index, err := baseIndex()
	if err == nil {
		var ref name.Reference
		if ref, err = name.ParseReference(ln.Addr().String() + "/base:empty"); err == nil {
			if err = remote.WriteIndex(ref, index); err == nil {
				return ref.String(), stop, nil
			}
		}
	}
	stop()
	return "", nil, err
}

func baseIndex() (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range oci.Platforms {
		img, err := mutate.ConfigFile(emptyImage(), &v1.ConfigFile{
			OS: p.OS, Architecture: p.Architecture, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{}},
		})
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
	}
	return index, nil
}

func ko(ctx context.Context, bin, source, program, base, dir string, labels map[string]string) error {
	var wanted, list []string
	for _, p := range oci.Platforms {
		wanted = append(wanted, p.String())
	}
	for k, v := range labels {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	cmd := exec.CommandContext(ctx, bin, "build", "./cmd/"+program, "--push=false", "--oci-layout-path="+dir,
		"--platform="+strings.Join(wanted, ","),
		"--sbom=none", "--image-user="+user, "--image-label="+strings.Join(list, ","), "--bare")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "KO_DEFAULTBASEIMAGE="+base, "KO_DOCKER_REPO=forcefence", "KOCACHE=",
		"FORCEFENCE_VERSION="+labels[versionLabel])
	cmd.Env = append(cmd.Env, linked.Env...)
	if os.Getenv("SOURCE_DATE_EPOCH") == "" {
		when, err := lastCommit(ctx, source)
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, "SOURCE_DATE_EPOCH="+when)
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ko build: %w\n%s", err, said.String())
	}
	return nil
}

// merge puts what ko made of each program together, without the base's address: it was another port each time. below
// has the lowest layer of each platform, if there is one; top is that of all.
func merge(from []string, below map[string]v1.Layer, top v1.Layer, to string) error {
	var made []v1.ImageIndex
	for _, dir := range from {
		index, err := oci.Open(dir)
		if err != nil {
			return err
		}
		made = append(made, index)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range oci.Platforms {
		img, err := together(made, below[p.String()], top, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
	}
	path, err := layout.Write(to, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index)
}

// together is the image of one platform: the layers of all programs, and the configuration of the first. lowest may be
// nil.
func together(made []v1.ImageIndex, lowest, top v1.Layer, p v1.Platform) (v1.Image, error) {
	img, seen := emptyImage(), map[v1.Hash]bool{}
	if lowest != nil {
		var err error
		if img, err = mutate.AppendLayers(img, lowest); err != nil {
			return nil, err
		}
	}
	var config *v1.ConfigFile
	for _, index := range made {
		one, err := oci.Of(index, p)
		if err != nil {
			return nil, err
		}
		layers, err := one.Layers()
		if err != nil {
			return nil, err
		}
		for _, layer := range layers {
			digest, err := layer.Digest()
			if err != nil {
				return nil, err
			}
			if seen[digest] { // an empty folder for data, which ko gives to each
				continue
			}
			seen[digest] = true
			if img, err = mutate.AppendLayers(img, layer); err != nil {
				return nil, err
			}
		}
		if config == nil {
			if config, err = one.ConfigFile(); err != nil {
				return nil, err
			}
		}
	}
	img, err := mutate.AppendLayers(img, top)
	if err != nil {
		return nil, err
	}
	whole, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.RootFS, config.History = whole.RootFS, nil // it would list the first one's layers only
	config.Created.Time = config.Created.UTC()        // ko writes it in the builder's time zone
	if lowest != nil {
		config.Config.Env = append(
			slices.DeleteFunc(config.Config.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }),
			agentsPath)
	}
	return mutate.ConfigFile(img, config)
}

func emptyImage() v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// lastCommit is when the sources were last committed, in seconds; "0" where they are in no repository.
func lastCommit(ctx context.Context, source string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", source, "log", "-1", "--format=%ct").Output()
	if err != nil {
		return "0", nil //nolint:nilerr // an archive of the sources has no history
	}
	when := strings.TrimSpace(string(out))
	if _, err := strconv.ParseInt(when, 10, 64); err != nil {
		return "", fmt.Errorf("reading the last commit's time: %w", err)
	}
	return when, nil
}

// check opens the archive again, as its importer will, and compares it with what the manifests rely on.
func check(archive, dir string, labels map[string]string, hasAgents bool) error {
	if err := oci.Unpack(archive, dir); err != nil {
		return err
	}
	index, err := oci.Open(dir)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if got, want := len(manifest.Manifests), len(oci.Platforms); got != want {
		return fmt.Errorf("%d platforms, want %d", got, want)
	}
	for i, want := range oci.Platforms {
		m := manifest.Manifests[i]
		if m.Platform == nil || !m.Platform.Equals(want) {
			return fmt.Errorf("platform %v, want %s", m.Platform, want)
		}
		img, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		if err := checkImage(img, want, labels, hasAgents); err != nil {
			return fmt.Errorf("%s: %w", want, err)
		}
	}
	info, err := os.Stat(archive)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d bytes, %v, %s\n", archive, info.Size(), oci.Platforms, digest)
	return nil
}

// pushTo sends the archive to a registry.
func pushTo(ctx context.Context, archive, to string) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return fmt.Errorf("push %s: %w", to, err)
	}
	dir, err := os.MkdirTemp("", "forcefence-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := oci.Unpack(archive, dir); err != nil {
		return fmt.Errorf("read %s: %w", archive, err)
	}
	index, err := oci.Open(dir)
	if err == nil {
		err = remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	if err != nil {
		return fmt.Errorf("push %s: %w", to, err)
	}
	return nil
}

func checkImage(img v1.Image, want v1.Platform, labels map[string]string, hasAgents bool) error {
	c, err := img.ConfigFile()
	if err != nil {
		return err
	}
	switch {
	case c.OS != want.OS || c.Architecture != want.Architecture:
		return fmt.Errorf("config is of %s/%s", c.OS, c.Architecture)
	case !slices.Equal(c.Config.Entrypoint, []string{entrypoint}):
		return fmt.Errorf("entrypoint %q, want %q", c.Config.Entrypoint, entrypoint)
	case c.Config.User != user:
		return fmt.Errorf("user %q, want %q", c.Config.User, user)
	}
	if hasAgents && !slices.Contains(c.Config.Env, agentsPath) {
		return fmt.Errorf("environment %q, want %q", c.Config.Env, agentsPath)
	}
	for k, v := range labels {
		if c.Config.Labels[k] != v {
			return fmt.Errorf("label %s: %q, want %q", k, c.Config.Labels[k], v)
		}
	}
	missing := map[string]bool{}
	if hasAgents {
		missing = agentsNeed()
	}
	for _, program := range programs {
		missing["/ko-app/"+program] = true
	}
	r := mutate.Extract(img)
	defer r.Close()
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		file := "/" + strings.Trim(h.Name, "/")
		if err := checkFile(t, h, file, want); err != nil {
			return err
		}
		if hasAgents {
			if err := checkRights(h, file); err != nil {
				return err
			}
		}
		if h.Typeflag != tar.TypeReg || h.Size > 0 {
			delete(missing, file)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not in it: %v", slices.Sorted(maps.Keys(missing)))
	}
	return checkLicences(img)
}

// checkFile holds what is a program or a library to be of the image's machine, and ours to be programs.
func checkFile(t io.Reader, h *tar.Header, file string, want v1.Platform) error {
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	head := make([]byte, 20)
	if _, err := io.ReadFull(t, head); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return err
	}
	// An ELF file's e_machine is 62 for amd64 and 183 for arm64.
	machine := map[string]byte{"amd64": 62, "arm64": 183}[want.Architecture]
	isELF, ours := bytes.HasPrefix(head, []byte("\x7fELF")), strings.HasPrefix(file, "/ko-app/")
	if isELF && head[18] != machine || ours && (!isELF || h.Mode&0o111 != 0o111) {
		return fmt.Errorf("%s (mode %o) is no program for %s", file, h.Mode, want)
	}
	return nil
}
