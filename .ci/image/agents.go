package main

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/forcefence/forcefence/.ci/image/internal/oci"
)

// Debian's release, and the version of its fence agents that providers/fenceagent has read: another one may guess at
// off where that did not, so apt fails where it is not to be had.
const (
	release = "bookworm"
	agents  = "fence-agents=4.12.1-*"
)

// packages are what the variant holds beside what these depend on: Python and its modules come with the agents; ssh,
// telnet, snmpget and ipmitool are what agents call.
var packages = []string{agents, "ipmitool", "openssh-client", "snmp", "telnet", "ca-certificates", "base-files", "dash"}

// python is the interpreter of that release, with its folder of modules.
const (
	python    = "usr/bin/python3.11"
	pythonLib = "usr/lib/python3.11"
)

// agentsPath finds the agents, and what they call.
const agentsPath = "PATH=/usr/sbin:/usr/bin:/ko-app"

// setUp merges /bin, /sbin and /lib into /usr before anything is unpacked, as the release wants it.
const setUp = `cd "$1" && for d in bin sbin lib lib64; do mkdir -p usr/$d && ln -s usr/$d $d; done`

// record keeps what each package says about itself, in the place where scanners of images look for it. It also keeps
// the packages' checksums, so that a later build can be compared with this one. The image has no other list of its
// packages, because dpkg installed none of them.
const record = `set -e
cd "$1/var/cache/apt/archives"
mkdir -p "$1/var/lib/dpkg/status.d" "$1/usr/share/forcefence"
for deb in *.deb; do dpkg-deb --field "$deb" >"$1/var/lib/dpkg/status.d/$(dpkg-deb --field "$deb" Package)"; done
sha256sum *.deb >"$1/usr/share/forcefence/packages"`

// dropped lists what no agent reads: files for a machine with an init and a package manager, and traces of the building
// machine. Licences stay: usr/share/doc/*/copyright.
var dropped = []string{
	"boot", "dev", "proc", "run", "sys", "tmp", "etc/apt", "etc/fstab", "etc/hostname", "etc/hosts", "etc/mtab",
	"etc/resolv.conf",
	"usr/share/info", "usr/share/lintian", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt",
	"var/log", "var/run",
	"var/lock",
}

// written are the files that packages' scripts would have made. Without its line in passwd ssh does not start; its home
// is the one folder that can be written, if any.
var written = map[string]string{
	"etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nforcefence:x:65532:65532:forcefence:/tmp:/bin/sh\n",
	"etc/group":         "root:x:0:\nforcefence:x:65532:\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
}

// links are the same that are links.
var links = map[string]string{
	"usr/bin/telnet": "inetutils-telnet", // an alternative
	"var/run":        "/run",
}

// agentsLayers makes a layer of Debian's fence agents for each platform. sources is a file of apt's sources, "" for
// Debian's mirrors.
//
// mmdebstrap resolves, fetches, verifies and unpacks the packages; it runs none of their scripts. So this needs no
// root, and makes what is for a machine that this one is not. What the scripts would have done, and is needed, is done
// here.
func agentsLayers(ctx context.Context, tmp, sources string) (map[string]v1.Layer, error) {
	ordered := slices.Clone(oci.Platforms)
	ours := slices.IndexFunc(ordered, func(p v1.Platform) bool { return p.Architecture == runtime.GOARCH })
	if ours < 0 {
		return nil,
			fmt.Errorf("the image's own Python compiles its modules: none of %v runs on %s", oci.Platforms,
				runtime.GOARCH)
	}
	ordered[0], ordered[ours] = ordered[ours], ordered[0] // the one that runs here compiles for all
	layers, interpreter := map[string]v1.Layer{}, filepath.Join(tmp, "agents-"+runtime.GOARCH)
	for _, p := range ordered {
		root := filepath.Join(tmp, "agents-"+p.Architecture)
		if err := unpackDebian(ctx, root, sources, p); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		if err := furnish(root); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		if err := compile(ctx, interpreter, root); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		archive := root + ".tar"
		if err := layerOf(root, archive); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		layer, err := tarball.LayerFromFile(archive, tarball.WithMediaType(types.OCILayer),
			tarball.WithCompressedCaching)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		layers[p.String()] = layer
	}
	return layers, nil
}

func unpackDebian(ctx context.Context, root, sources string, p v1.Platform) error {
	args := []string{
		"--variant=extract", "--mode=chrootless", "--format=directory", "--architectures=" + p.Architecture,
		"--include=" + strings.Join(packages, ","),
		`--aptopt=APT::Install-Recommends "false"`, "--setup-hook=" + setUp, "--extract-hook=" + record, release, root,
	}
	if sources != "" {
		args = append(args, sources)
	}
	cmd := exec.CommandContext(ctx, "mmdebstrap", args...)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=0")
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("unpacking Debian's packages: %w: install Debian's package mmdebstrap", err)
	} else if err != nil {
		return fmt.Errorf("unpacking Debian's packages: %w\n%s", err, out)
	}
	return nil
}

// furnish drops, links and writes.
func furnish(root string) error {
	for _, name := range dropped {
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	docs, err := filepath.Glob(filepath.Join(root, "usr/share/doc/*/*"))
	if err != nil {
		return err
	}
	for _, doc := range docs {
		if filepath.Base(doc) != "copyright" {
			if err := os.RemoveAll(doc); err != nil {
				return err
			}
		}
	}
	for _, dir := range []string{"dev", "proc", "run", "sys", "tmp", "etc/ssl/certs"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for name, content := range written {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return authorities(root)
}

// authorities puts Mozilla's list into the one file that all read.
func authorities(root string) error {
	files, err := filepath.Glob(filepath.Join(root, "usr/share/ca-certificates/mozilla/*.crt"))
	if err != nil {
		return err
	}
	if len(files) < 100 {
		return fmt.Errorf("only %d public authorities in ca-certificates", len(files))
	}
	var all []byte
	for _, file := range files { // Glob's order is that of the names
		one, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		all = append(all, one...)
		if all[len(all)-1] != '\n' {
			all = append(all, '\n')
		}
	}
	return os.WriteFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"), all, 0o644)
}

// compile makes the byte code of all modules: the container cannot write any, and an agent that compiles its modules
// first takes twice as long. It is the same on all machines, so the interpreter of the platform that runs here compiles
// for the others. It is found valid by its place alone, not by times.
func compile(ctx context.Context, interpreter, root string) error {
	loaders, err := filepath.Glob(filepath.Join(interpreter, "usr/lib/*-linux-gnu/ld-linux-*.so.*"))
	if err != nil || len(loaders) != 1 {
		return fmt.Errorf("finding the loader of %s: %v, %w", interpreter, loaders, err)
	}
	libs, err := filepath.Glob(filepath.Join(interpreter, "usr/lib/*-linux-gnu"))
	if err != nil || len(libs) != 1 {
		return fmt.Errorf("finding the libraries of %s: %v, %w", interpreter, libs, err)
	}
	cmd := exec.CommandContext(ctx, loaders[0], "--library-path", libs[0], filepath.Join(interpreter, python), "-m",
		"compileall", "-qq",
		"--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/", filepath.Join(root, "usr/lib/python3"),
		filepath.Join(root, pythonLib),
		filepath.Join(root, "usr/share/fence"))
	cmd.Env = []string{"PYTHONHOME=" + filepath.Join(interpreter, "usr"), "PYTHONHASHSEED=0",
		"PYTHONDONTWRITEBYTECODE=1", "LC_ALL=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil // some tests' modules are not of this Python; check finds what has to be there
	}
	if err != nil {
		return fmt.Errorf("compiling Python's modules: %w\n%s", err, out)
	}
	return nil
}

// layerOf writes a folder as a layer: sorted, all root's, without times, and with no program that gives its user other
// rights.
func layerOf(root, archive string) (err error) {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buffered := bufio.NewWriter(f)
	w := tar.NewWriter(buffered)
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil || name == "." {
			return err
		}
		return entry(w, file, name, d)
	})
	return errors.Join(err, w.Close(), buffered.Flush())
}

func entry(w *tar.Writer, file, name string, d fs.DirEntry) error {
	h := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o755, Format: tar.FormatPAX}
	info, err := d.Info()
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		if name == "tmp" || name == "var/tmp" {
			h.Mode = 0o1777
		}
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
		if info.Mode()&0o111 == 0 {
			h.Mode = 0o644
		}
	default:
		return fmt.Errorf("%s is a %s", name, info.Mode().Type())
	}
	if err := w.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(w, in)
	return err
}

// checkRights finds what the user of the variant could gain rights by.
func checkRights(h *tar.Header, file string) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
	default:
		return fmt.Errorf("%s is of type %q", file, h.Typeflag)
	}
	sticky := h.Typeflag == tar.TypeDir && h.Mode&0o1000 != 0
	switch {
	case h.Uid != 0 || h.Gid != 0:
		return fmt.Errorf("%s belongs to %d:%d", file, h.Uid, h.Gid)
	case h.Mode&0o6000 != 0, h.Mode&0o022 != 0 && !sticky && h.Typeflag != tar.TypeSymlink:
		return fmt.Errorf("%s has mode %o", file, h.Mode)
	}
	return nil
}

// agentsNeed are files without which agents do not run, or not as fast.
func agentsNeed() map[string]bool {
	need := map[string]bool{}
	for _, name := range []string{
		python, "usr/bin/ipmitool", "usr/bin/ssh", "usr/bin/snmpget", "usr/bin/telnet", "usr/bin/dash", "bin", "sbin",
		"lib",
		"usr/sbin/fence_ipmilan", "usr/sbin/fence_apc", "usr/share/fence/fencing.py",
		"usr/share/fence/__pycache__/fencing.cpython-311.pyc",
		pythonLib + "/__pycache__/ssl.cpython-311.pyc",
		"usr/lib/python3/dist-packages/requests/__pycache__/__init__.cpython-311.pyc",
		"etc/passwd", "etc/ssl/certs/ca-certificates.crt", "usr/share/forcefence/packages",
		"var/lib/dpkg/status.d/fence-agents",
		"usr/share/doc/fence-agents/copyright", "tmp",
	} {
		need[path.Join("/", name)] = true
	}
	return need
}
