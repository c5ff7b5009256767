package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

// sshd is a Debian's sshd on a port of 127.0.0.1 into which only its own key logs in, as the user that we are.
type sshd struct {
	dir, port, user, key string
	options              string // for ssh: it knows and keeps nothing of ours
	cmd                  *exec.Cmd
}

// startSSHD returns once it answers. env is a variable that sessions get. It ends with stop, and with this process.
func startSSHD(ctx context.Context, env string) (_ *sshd, err error) {
	dir, err := os.MkdirTemp("", "sshd")
	if err != nil {
		return nil, err
	}
	s := &sshd{dir: dir, key: filepath.Join(dir, "key"), options: "-F /dev/null -o IdentitiesOnly=yes -o " +
		"StrictHostKeyChecking=yes -o UserKnownHostsFile=" + dir + "/known"}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	s.user = me.Username
	var port int
	if err := kit.FreePorts(&port); err != nil {
		return nil, err
	}
	s.port = strconv.Itoa(port)
	for _, name := range []string{"key", "host"} {
		out, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
			filepath.Join(dir, name)).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("making a key: %w: %s", err, out)
		}
	}
	host, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		return nil, err
	}
	config := strings.Join([]string{
		"ListenAddress 127.0.0.1:" + s.port, "HostKey " + dir + "/host", "AuthorizedKeysFile " + dir + "/key.pub",
		"PidFile none",
		"AuthenticationMethods publickey", "PermitRootLogin yes", "StrictModes no", "UsePAM no", "SetEnv " + env, "",
	}, "\n")
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "known"), []byte("[127.0.0.1]:"+s.port+" "+string(host)), 0o600),
		os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600),
	); err != nil {
		return nil, err
	}
	command := []string{"/usr/sbin/sshd", "-D", "-e", "-f", filepath.Join(dir, "config")}
	if me.Uid == "0" { // then it wants an empty folder below /run, which is to be no trace of ours
		command = append(
			[]string{"unshare", "--mount", "--", "/bin/sh", "-c",
				`mount -t tmpfs none /run && mkdir /run/sshd && exec "$@"`, "sh"}, command...)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := kit.StartChild(cmd); err != nil {
		return nil, fmt.Errorf("starting sshd: %w", err)
	}
	s.cmd = cmd
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+s.port)
		if err == nil {
			return s, c.Close()
		}
		if !wait(ctx, 20*time.Millisecond) {
			said, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("starting sshd: %w: %s", err, said)
		}
	}
}

// stop ends it, and removes its files.
func (s *sshd) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // it was killed
	}
	_ = os.RemoveAll(s.dir)
}
