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

// hostFlags says where the host's root is mounted, and which runtime the host has.
type hostFlags struct {
	root    string
	runtime string
	site    install.Site
}

func (h *hostFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&h.root, "root", "/", "where the host's root is mounted; every other path is below it")
	f.StringVar(&h.runtime, "runtime", "", "containerd or cri-o (default: the one that runs)")
	f.StringVar(&h.site.Containerd, "containerd", "containerd",
		"containerd's program; k3s has its own under /var/lib/rancher/k3s/data/current/bin")
	f.StringVar(&h.site.CRIO, "crio", "crio", "CRI-O's program")
	f.StringVar(&h.site.Config, "containerd-config", "",
		"the runtime's configuration (default: /etc/containerd/config.toml or /etc/crio/crio.conf)")
	f.StringVar(&h.site.ConfDir, "conf-dir", "",
		"folder of the runtime's drop-ins (default: /etc/containerd/conf.d or /etc/crio/crio.conf.d)")
	f.StringVar(&h.site.Unit, "runtime-unit", "", "the runtime's systemd unit (default: containerd or crio)")
}

// enterRoot changes this process's root to the host's, and PATH to path. Then every path is the host's, links included,
// and the host's programs run: the runtime, and a kubeconfig's exec credential. It needs CAP_SYS_CHROOT, and cannot be
// undone. It opens its own executable before, because the host does not have it.
func (h *hostFlags) enterRoot(path string) (self *os.File, err error) {
	h.site.Runtime = install.RuntimeName(h.runtime)
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
	f.StringVar(&c.Kubeconfig, "kubeconfig", "/etc/kubernetes/kubelet.conf", "the kubelet's own kubeconfig; "+
		"k3s: /var/lib/rancher/k3s/agent/kubelet.kubeconfig, EKS: /var/lib/kubelet/kubeconfig")
	f.StringVar(&c.TaintKey, "taint-key", taint.DefaultKey, "key of the mark, as in the controller's configuration")
	f.StringVar(&c.StateDir, "state-dir", nri.DefaultStateDir, "folder for state of this boot: on a tmpfs")
	f.StringVar(&c.DataDir, "data-dir", nri.DefaultDataDir, "folder for state that outlives a boot: on a disk")
	f.StringVar(&c.LogFile, "log-file", nri.DefaultLogFile, "the hook's log file, rotated at 5 MB; none: no file")
	f.StringVar(&c.Path, "path", nri.DefaultPath, "PATH for host programs and the kubeconfig's exec credential")
}
