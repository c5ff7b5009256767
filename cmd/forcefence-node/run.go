package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/kubelet-admit/install"
	"github.com/forcefence/forcefence/kubelet-admit/nri"
)

// pluginMain runs the process that the runtime starts itself, from NRI's folder and without arguments.
func pluginMain(ctx context.Context) error {
	keepSmall()
	return nri.Run(ctx, nri.Options{Version: version.String()})
}

func newRun() *cobra.Command {
	var host hostFlags
	var config, socket string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the hook beside the one that the runtime starts",
		Long: "Run the hook as a second plugin of the runtime. It backs up the one that the runtime started itself:\n" +
			"nothing restarts that one after a crash, and an upgrade does not replace it. It reads the\n" +
			"configuration that install wrote, connects again when the runtime restarts, and reports the node's\n" +
			"protection on the Node (condition ForcefenceGuard).",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := host.enterRoot(nri.DefaultPath)
			if err != nil {
				return err
			}
			runInstalled(self, config)
			self.Close()
			keepSmall()
			var latest atomic.Int64 // the registration that is valid
			return nri.Run(cmd.Context(), nri.Options{
				Version: version.String(), Log: cmd.ErrOrStderr(), ConfigFile: config, Socket: socket,
				Registered: func(ctx context.Context, c nri.Config, log *slog.Logger) {
					site, mine := host.site, latest.Add(1)
					site.StateDir = c.StateDir
					keepReporting(ctx, site, c, log, func() bool { return latest.Load() == mine })
				},
			})
		},
	}
	host.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&config, "config", nri.DefaultStateDir+"/"+nri.ConfigFile,
		"the hook's configuration, as install wrote it")
	cmd.Flags().StringVar(&socket, "nri-socket", "/var/run/nri/nri.sock", "NRI's socket")
	return cmd
}

// runInstalled replaces this process by the runtime's plugin, if the configuration names it and it is the same program:
// two processes that run one file share its pages, which are most of their memory. It returns if that cannot be.
func runInstalled(self *os.File, config string) {
	text, _ := os.ReadFile(config) // nri.Run reports what is wrong with it
	c, _ := nri.ParseConfig(string(text))
	installed, err := os.Open(c.Program)
	if err != nil {
		return
	}
	defer installed.Close()
	if isCopy(self, installed) {
		_ = syscall.Exec(c.Program, append(os.Args, "--root=/"), os.Environ()) // a folder that is mounted noexec
	}
}

// isCopy reports whether two files have the same content, and are not one file.
func isCopy(a, b *os.File) bool {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	if errA != nil || errB != nil || os.SameFile(infoA, infoB) {
		return false
	}
	bufA, bufB := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, end := io.ReadFull(a, bufA)
		m, _ := io.ReadFull(b, bufB)
		if !bytes.Equal(bufA[:n], bufB[:m]) {
			return false
		}
		if end != nil {
			return errors.Is(end, io.EOF) || errors.Is(end, io.ErrUnexpectedEOF)
		}
	}
}

// keepReporting reports the node's protection when the plugin has registered, and again whenever the plugin that the
// runtime started comes or goes. What the runtime has read depends on when its processes started, so each registration
// begins it again, and ends the former. It blocks until then, or until ctx ends.
func keepReporting(ctx context.Context, site install.Site, c nri.Config, log *slog.Logger, valid func() bool) {
	registered, reported, was := time.Now(), false, false
	connection := install.Connection{StateDir: c.StateDir}
	// The plugin of the runtime registers first, and writes its status a moment later.
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		connected := connection.IsConnected()
		if !reported && !connected && time.Since(registered) < connectWait || reported && connected == was {
			return !valid(), nil
		}
		reported, was = true, connected
		reportProtection(ctx, site, c, log)
		debug.FreeOSMemory() // the runtime's whole configuration was read
		return !valid(), nil
	})
}

// reportProtection writes the node's protection on the Node. It blocks until the Node is written or ctx ends.
func reportProtection(ctx context.Context, site install.Site, c nri.Config, log *slog.Logger) {
	p, err := install.ReadProtection(ctx, site)
	if err != nil {
		log.Error("Cannot determine the node's protection", "err", err)
		return
	}
	log.Info("Protection", "level", p.Level, "reason", p.Sentence())
	// The API server may be unavailable for a while. An error means that ctx ended.
	_ = wait.PollUntilContextCancel(ctx, reportEvery, true, func(ctx context.Context) (bool, error) {
		err := reportToNode(ctx, c, p)
		if err != nil {
			log.Warn("Cannot report the protection on the Node", "err", err)
		}
		return err == nil, nil
	})
}

func reportToNode(ctx context.Context, c nri.Config, p install.Protection) error {
	client, closeIdle, err := nri.NewClient(c.Kubeconfig, version.String())
	if err != nil {
		return err
	}
	defer closeIdle()
	return install.ReportProtection(ctx, client, c.NodeName, p)
}

const (
	reportEvery = 15 * time.Second
	connectWait = 10 * time.Second
)

// keepSmall keeps the process small. The hook runs on every node, twice. Only its answers are urgent, and these
// allocate nothing. Go keeps memory for each processor that it uses: 2 MB more on a machine with 64.
func keepSmall() {
	debug.SetGCPercent(25)
	runtime.GOMAXPROCS(min(2, runtime.GOMAXPROCS(0)))
}
