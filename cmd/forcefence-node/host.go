package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/forcefence/forcefence/kubelet-admit/install"
	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/taint"
)

// hostFlags says where the host's root is mounted, and what install does not find there.
type hostFlags struct {
	root string
	site install.Site
}

func (h *hostFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&h.root, "root", "/", "where the host's root is mounted; every other path is below it")
	f.StringVar(&h.site.Command, "runtime-command", "",
		"the runtime's command line, such as \"/opt/bin/containerd --config /etc/c.toml\" (default: that of the "+
			"process which serves the kubelet)")
}

// enterRoot changes this process's root to the host's, and PATH to path. Then every path is the host's, links included,
// and the host's programs run: the runtime, and a kubeconfig's exec credential. It needs CAP_SYS_CHROOT, and cannot be
// undone. It opens its own executable before, because the host does not have it.
func (h *hostFlags) enterRoot(path string) (self *os.File, err error) {
	if self, err = os.Open("/proc/self/exe"); err != nil {
		return nil, fmt.Errorf("opening this program's own file: %w", err)
	}
	if filepath.Clean(h.root) != "/" {
		if err = syscall.Chroot(h.root); err == nil {
			err = os.Chdir("/")
		}
		if err != nil {
			return nil, fmt.Errorf("changing the root to %s: %w", h.root, err)
		}
	}
	return self, os.Setenv("PATH", path)
}

// configFlags adds the flags of the hook's configuration.
func configFlags(f *pflag.FlagSet, c *nri.Config) {
	f.StringVar(&c.NodeName, "node-name", os.Getenv("NODE_NAME"), "the Node's name (default: $NODE_NAME)")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "the kubelet's own kubeconfig (default: the kubelet's --kubeconfig)")
	f.StringVar(&c.TaintKey, "taint-key", taint.DefaultKey, "key of the mark, as in the controller's configuration")
	f.StringVar(&c.StateDir, "state-dir", nri.DefaultStateDir, "folder for state of this boot: on a tmpfs")
	f.StringVar(&c.DataDir, "data-dir", nri.DefaultDataDir, "folder for state that outlives a boot: on a disk")
	f.StringVar(&c.LogFile, "log-file", nri.DefaultLogFile, "the hook's log file, rotated at 5 MB; none: no file")
	f.StringVar(&c.Path, "path", nri.DefaultPath, "PATH for host programs and the kubeconfig's exec credential")
}
