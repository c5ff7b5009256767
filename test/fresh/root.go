//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// host is what all runs take from this machine, and a folder for what they write.
type host struct {
	bare     string // a Debian root with nothing but what debian includes
	goRoot   string
	modCache string
	cache    string // Go's build cache
	work     string
}

// includes are the packages beside Debian's minimal set: what README asks for, and certificates for Go's downloads.
const includes = "ca-certificates,make,git"

// prepareHost makes the bare root, unless it is in the user's cache, and downloads the modules that README's commands
// need: they run without a network.
func prepareHost(ctx context.Context) (*host, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("it mounts folders and starts an account's processes: run it as root")
	}
	var h host
	for name, value := range map[string]*string{"GOROOT": &h.goRoot, "GOMODCACHE": &h.modCache, "GOCACHE": &h.cache} {
		out, err := exec.CommandContext(ctx, "go", "env", name).Output()
		if err != nil {
			return nil, fmt.Errorf("asking go for %s: %w", name, err)
		}
		*value = strings.TrimSpace(string(out))
	}
	for _, module := range []string{".", "test/controlplane", "test/gotestsum"} {
		if out, err := exec.CommandContext(ctx, "go", "-C", module, "mod", "download").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("downloading the modules of %s: %w: %s", module, err, out)
		}
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache := filepath.Join(user, "forcefence", "fresh")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	if h.bare, err = bareRoot(ctx, cache); err != nil {
		return nil, fmt.Errorf("making a bare root: %w", err)
	}
	h.work, err = os.MkdirTemp(cache, "work-")
	return &h, err
}

// bareRoot is a Debian root of this machine's release in the cache. It makes one that is not there yet.
func bareRoot(ctx context.Context, cache string) (string, error) {
	suite := "stable"
	if release, err := os.ReadFile("/etc/os-release"); err == nil {
		if m := regexp.MustCompile(`(?m)^VERSION_CODENAME=(\w+)$`).FindSubmatch(release); m != nil &&
			strings.Contains(string(release), "\nID=debian\n") {
			suite = string(m[1])
		}
	}
	sum := sha256.Sum256([]byte(suite + includes + userName))
	dir := filepath.Join(cache, suite+"-"+hex.EncodeToString(sum[:])[:12])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	making, err := os.MkdirTemp(cache, "making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(making) // gone after the rename
	for _, args := range [][]string{
		{"mmdebstrap", "--variant=minbase", "--include=" + includes, suite, making},
		{"chroot", making, "useradd", "--create-home", "--uid", fmt.Sprint(userID), "--shell", "/bin/sh", userName},
		// What mmdebstrap takes over from this machine.
		{"rm", "-f", making + "/etc/resolv.conf", making + "/etc/hosts", making + "/etc/hostname"},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return dir, os.Rename(making, dir)
}

// room is one account's bare root: what the process inside needs to know.
type room struct {
	Bare, GoRoot, ModCache, Cache string
	Work                          string // holds the layers that are written
	UID                           int
	User, Home, Clone             string // the account, its home and its clone of this repository, as seen inside
	Umask                         int
	IPv6                          bool
	Env                           []string // beside PATH and the account's
	Commands                      []string
}

const (
	userName = "newcomer"
	userID   = 1000
)

// longTmp leaves no room for a socket's name, whose path has 107 bytes at most.
var longTmp = "/tmp/" + strings.Repeat("a-long-name-for-a-temporary-folder/", 3)[:100]

// newRoom clones this repository's HEAD into a new layer over the bare root. An account is root or user.
func (h *host) newRoom(ctx context.Context, account string, cold bool) (*room, error) {
	r := &room{Bare: h.bare, GoRoot: h.goRoot, ModCache: h.modCache, Cache: h.cache,
		Work: filepath.Join(h.work, account)}
	switch account {
	case "root":
		r.User, r.Home, r.Umask, r.IPv6 = "root", "/root", 0o022, true
	case "user":
		// And what an ordinary user's machine may have or lack, all at once.
		r.UID, r.User, r.Home, r.Umask = userID, userName, "/home/"+userName, 0o077
		r.Env = []string{"TMPDIR=" + longTmp, "TZ=Pacific/Kiritimati", "LC_ALL=tr_TR.UTF-8"}
	default:
		return nil, fmt.Errorf("account %q is neither root nor user", account)
	}
	if cold {
		r.Cache = ""
	}
	r.Clone = r.Home + "/forcefence"
	for _, layer := range layers {
		for _, part := range []string{"upper", "work", "lower"} {
			if err := os.MkdirAll(filepath.Join(r.Work, layer, part), 0o755); err != nil {
				return nil, err
			}
		}
	}
	clone := filepath.Join(r.Work, "clone")
	if out, err := exec.CommandContext(ctx, "git", "clone", "--no-hardlinks", "--quiet", ".", clone).
		CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cloning: %w: %s", err, out)
	}
	return r, nil
}

// layers are the file systems that a run writes to: each an overlay over what the host has.
var layers = []string{"root", "modules", "cache"}
