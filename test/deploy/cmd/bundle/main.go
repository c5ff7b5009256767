// Command bundle writes a release's bundle for the Operator Lifecycle Manager, and the file with what OLM does not
// install: deploy/olm with a version and an image. It is run in the repository's root.
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

	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/deploy/olm"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	version := flag.String("version", "", "of the release, such as 1.2.3")
	image := flag.String("image", "", "with its digest, such as registry.example.net/forcefence@sha256:...")
	replaces := flag.String("replaces", "", "the version that it upgrades; none for the first one")
	out := flag.String("out", "out/olm", "the folder to write; it must not be there")
	flag.Parse()
	repository, digest, ok := olm.Image(*image)
	if *version == "" || !ok || flag.NArg() > 0 {
		return errors.New("want -version V -image NAME@sha256:DIGEST")
	}
	const chart = "deploy/helm/forcefence"
	bin, err := binaries.Build(ctx, binaries.Options{Names: []string{binaries.Helm}})
	if err != nil {
		return err
	}
	rendered, err := exec.CommandContext(ctx, filepath.Join(bin, binaries.Helm), "template", "forcefence", chart,
		"--namespace", olm.Namespace, "--no-hooks",
		"--set", "crds.keep=false", "--set-string", "image.repository="+repository, "--set-string",
		"image.digest="+digest).Output()
	if err != nil {
		return fmt.Errorf("rendering %s: %w", chart, err)
	}
	base, err := os.ReadFile("deploy/olm/base.yaml")
	if err != nil {
		return err
	}
	chartFile, err := os.ReadFile(chart + "/Chart.yaml")
	if err != nil {
		return err
	}
	files, err := olm.Files(olm.WithoutRelease(string(rendered)), string(chartFile), string(base),
		olm.Release{Version: *version, Replaces: *replaces})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*out), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(*out, 0o755); err != nil {
		return err // what an earlier one left could be taken for this one's
	}
	return olm.Write(*out, files)
}
