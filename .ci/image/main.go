// Command image makes forcefence's container image for all platforms, and the files of a release. It needs neither
// Docker nor a registry. CONTRIBUTING.md says how to cut a release, and docs/upgrade.md how to verify one.
//
// ko builds programs, images and SBOMs, go-licenses finds and checks licences, cosign signs. This package does what
// they cannot: it makes a base without a registry, puts two programs into one image, and packs all files so that the
// same sources and the same version of Go give the same bytes.
//
// Run it in the folder of the sources, as the Makefile does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/klog/v2"
)

// project is where the sources are, and the name of their module.
const project = "github.com/forcefence/forcefence"

// hermetic replaces variables of the environment that would change what is built.
var hermetic = map[string]string{"CGO_ENABLED": "0", "GOFLAGS": "", "GOEXPERIMENT": "", "GOAMD64": "v1",
	"GOARM64": "v8.0", "GOFIPS140": "off"}

var (
	platforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
	// darwin is what the plugin is built for, too.
	darwin = []v1.Platform{{OS: "darwin", Architecture: "amd64"}, {OS: "darwin", Architecture: "arm64"}}
)

// builder builds from the sources in the process' folder.
type builder struct {
	out, version, push string
	agents             bool   // a second image, with fence agents
	agentsSources      string // file of apt's sources; empty: Debian's mirrors
	release, rehearsal bool
	plugins            []v1.Platform // of the plugin, beside the image's
	key                string        // file of the private key that signs; empty: nothing is signed

	revision string
	changed  bool // the sources have changes that are not committed
	created  time.Time
	tmp      string
	licences map[string][]string // names by module, such as golang.org/x/net@v0.56.0
}

func main() {
	b := builder{plugins: darwin}
	flag.StringVar(&b.out, "out", "out", "folder to write to; -release empties it")
	flag.StringVar(&b.version, "version", "", "the version; empty with -release: the tag of HEAD")
	flag.StringVar(&b.push, "push", "", "image to push to, such as registry.example.net/forcefence:v1, with the "+
		"password of docker login; the image with agents gets -agents behind it; with -release without a tag")
	flag.BoolVar(&b.agents, "agents", false, "make a second image, with Debian's fence agents")
	flag.StringVar(&b.agentsSources, "agents-sources", "", "file of apt's sources; empty: Debian's mirrors")
	flag.BoolVar(&b.release, "release", false, "make all files of a release")
	flag.BoolVar(&b.rehearsal, "rehearsal", false, "release from changed sources, or without a tag")
	flag.StringVar(&b.key, "key", "", "private key of cosign's, its password in COSIGN_PASSWORD; empty: sign nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run builds what is wanted.
func (b *builder) run(ctx context.Context) (err error) {
	log.SetOutput(io.Discard) // ko and go-licenses write what they do, and put what matters into errors
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if b.tmp, err = os.MkdirTemp("", "forcefence-image-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.tmp)
	for name, value := range hermetic {
		err = errors.Join(err, os.Setenv(name, value))
	}
	// In its cache ko leaves the programs for the release.
	if err = errors.Join(err, os.Setenv("KOCACHE", filepath.Join(b.tmp, "ko"))); err != nil {
		return err
	}
	// An archive of the sources has no history: its image has the time 0 and no revision.
	when, _ := output(ctx, "git", "log", "-1", "--format=%ct %H")
	when, b.revision, _ = strings.Cut(when, " ")
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		when = epoch
	}
	seconds, err := strconv.ParseInt("0"+when, 10, 64)
	if err != nil {
		return fmt.Errorf("read the time of the sources: %w", err)
	}
	b.created = time.Unix(seconds, 0).UTC()
	if b.release {
		if err = b.decideVersion(ctx); err == nil {
			err = os.RemoveAll(b.out)
		}
		if err != nil {
			return err
		}
	}
	images, err := b.writeImages(ctx)
	if err == nil && b.release {
		err = b.writeFiles(ctx)
	}
	for _, img := range images {
		if err == nil && b.push != "" {
			err = b.pushImage(ctx, img)
		}
	}
	if err == nil && b.release {
		err = b.writeSums(ctx)
	}
	return err
}

// pushImage pushes an image; that of a release with its signatures. The tag comes last: a client that sees it finds
// them.
func (b *builder) pushImage(ctx context.Context, img *image) error {
	to := b.push
	if b.release {
		to += ":" + b.version
	}
	tag, err := name.NewTag(to + img.suffix)
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	digest := tag.Digest(img.digest.String())
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	err = remote.WriteIndex(digest, img.index, options...)
	if err == nil && b.release {
		err = b.signImage(ctx, img, digest.String())
	}
	if err == nil {
		err = remote.Tag(tag, img.index, options...)
	}
	if err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	return nil
}

// output runs a command and returns what it printed, without the spaces around it.
func output(ctx context.Context, program string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", cmd, err, out, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}
