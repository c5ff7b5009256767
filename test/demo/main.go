// Command demo shows forcefence to a newcomer: it is what make demo runs. It builds (once) and starts a real Kubernetes
// control plane on loopback, with six simulated nodes whose machines have BMCs that speak Redfish (or are QEMU guests
// of a real libvirtd, or QEMUs behind a real simulator of IPMI's BMCs), runs the real forcefence program with a
// configuration file like a user's, and plays three rounds: a power cut; a node that falls silent while its machine is
// on; a machine that comes back in the middle of its eviction.
//
// It promises that nothing on the screen is made up: lines are what the API server and the machines' power tell, and
// what forcefence's own commands print. It exits with 0 only if after each round every pod runs exactly once, by the
// machines' own account, every old VolumeAttachment is gone and the mark is off. It ends after every process that it
// started has.
//
// What it leaves behind is in the folder of -out: config.yaml, forcefence.log, and the control plane's logs under
// cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

type options struct {
	forcefence, out, power string
	keep, asks             bool
}

func main() { os.Exit(run()) }

func run() int {
	log.SetLogger(logr.Discard()) // controller-runtime would print that there is none, in the middle of the screen
	o, err := parse(os.Args[1:])
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, err)
		}
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends us at once, and with us, on Linux, our children
	s := NewScreen(os.Stdout)
	switch err := show(ctx, o, s); {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		s.Say("\nInterrupted; everything that was started has ended.")
		return 130
	default:
		s.Say("\n%s", s.paint(red, "FAILED: "+err.Error()))
		s.Say("What forcefence did: %s. The control plane's logs: %s. What it knew in the end: %s.",
			filepath.Join(o.out, "forcefence.log"), filepath.Join(o.out, "cluster", "*.log"),
			filepath.Join(o.out, "objects.json"))
		return 1
	}
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.StringVar(&o.forcefence, "forcefence", "bin/forcefence", "the program to show")
	f.StringVar(&o.out, "out", "out/demo", "folder for the configuration and the logs; what an earlier demo left "+
		"there is replaced")
	f.StringVar(&o.power, "power", "redfish", "where the machines' power comes from: redfish; or libvirt or ipmi, "+
		"which take programs that must be installed")
	f.Func("interop", "another project's controller beside forcefence: nhc, NodeHealthCheck, asks for power-offs",
		func(name string) error {
			if o.asks = name == "nhc"; !o.asks {
				return errors.New("must be nhc")
			}
			return nil
		})
	f.BoolVar(&o.keep, "keep", false, "stay after the last round, or one that failed, until Ctrl-C")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, nil
}

// show plays the demo and returns after everything that it started has ended.
func show(ctx context.Context, o options, s *Screen) error {
	s.Say("%s", s.paint(bold, "forcefence: a Kubernetes node dies, and seconds later its pods run on other nodes. No "+
		"pod runs twice at once."))
	s.Say(`
When a node falls silent, Kubernetes cannot know whether its machine is dead or only out of reach. So it does not start
the pods of a StatefulSet elsewhere: they stay stuck until a person steps in. forcefence asks the machine's own device,
its management controller (BMC) or its hypervisor, and moves the pods only when the device says that it is off.`)
	s.Say("The demo takes 2 minutes on two idle cores, and up to 4 if they are busy.")
	s.Title("Starting")
	w, err := begin(ctx, o.out, o.power)
	if err != nil {
		return err
	}
	w.asks = o.asks
	defer func() {
		if ctx.Err() != nil {
			s.Say("\nStopping ...")
		}
		w.stop()
	}()
	if err := start(ctx, o, w, s); err != nil {
		return err
	}
	d := &Demo{w: w, s: s}
	rounds := newRounds()
	if w.asks {
		rounds = newRequestRounds()
	}
	for i, r := range rounds {
		r.node = nodeName(i)
		err := d.playRound(ctx, r)
		if err != nil {
			w.dump()
		}
		if err != nil && o.keep && ctx.Err() == nil {
			s.Say("\n%s", s.paint(red, fmt.Sprintf("FAILED: %s: %v", r.title, err)))
			err = errors.Join(err, keep(ctx, w, s))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.title, err)
		}
	}
	s.Title("Summary")
	s.Say("  %s\n", strings.Join(d.times, "\n  "))
	s.Say(`  Stock Kubernetes, for comparison: NotReady after about 50 s, eviction 5 minutes later, and then the pods of
  StatefulSets stay in Terminating until a person deletes them by force. Their volumes are detached 6 minutes after
  that.
  Here etcd, Kubernetes, %d nodes and forcefence share %d cores, so the times above include the demo's own work. On two
  quiet cores %d pods, 20 with volumes, are gone %s after Off (README.md).
  In a cluster forcefence keeps a connection to each kubelet, a line. By a line it hears of a power cut after about 3 s,
  by heartbeats alone after about 24 s. The demo's kubelets are simulated. They have no lines, and send heartbeats ten
  times as often. The machines are simulated, too, unless they are QEMUs. The control plane, the calls to the devices
  and forcefence are real.`,
		nodeCount, runtime.NumCPU(), movable, readmeGone)
	if !o.keep {
		s.Say("  To try its commands yourself: make demo KEEP=1 stays up.")
		return nil
	}
	return keep(ctx, w, s)
}

// readmeGone is README's median from Off until the last of as many pods is gone.
const readmeGone = "0.8 s"

func start(ctx context.Context, o options, w *World, s *Screen) error {
	done := s.Step("control plane (the real programs, built from their Go modules)")
	if err := w.startControlPlane(ctx); err != nil {
		return err
	}
	done("etcd, kube-apiserver, kube-controller-manager, kube-scheduler")
	done = s.Step("%d machines, %s", nodeCount, w.Power.Machines())
	if err := w.addNodes(ctx); err != nil {
		return err
	}
	done("%s to %s, all Ready", nodeName(0), nodeName(nodeCount-1))
	if w.asks {
		done = s.Step("NodeHealthCheck (the real controller, built from its Go module)")
		if err := w.startHealthCheck(ctx); err != nil {
			return err
		}
		done("process %d", w.healthCheck.PID())
	}
	done = s.Step("forcefence, with a user's config.yaml (mode: %s)", w.firstMode())
	if err := w.startForcefence(ctx, o.forcefence); err != nil {
		return err
	}
	done("process %d", w.fence.PID())
	s.Say(`
  The workloads: db, a StatefulSet of %d pods that start one after another, each with a volume that one machine may
  write; queue, a StatefulSet of %d; web, a Deployment of %d; agent, a DaemonSet. Each round begins with all of them on
  one node. Detaching a volume takes %.1f s, attaching it too, a container's start %.1f s.
  Each simulated node also has the hook: while the node is marked, ordinary pods do not start on it.
  config.yaml has one provider, racks. A timeline lists an answer under that name; an Event names the machine, too.`,
		dbPods, queuePods, webPods, attach.Seconds(), podStart.Seconds())
	return nil
}

// keep stays until Ctrl-C, which is how it is to end.
func keep(ctx context.Context, w *World, s *Screen) error {
	s.Title("Kept running")
	token, err := w.createPageToken(ctx)
	if err != nil {
		return err
	}
	s.Say("%s", w.Power.Help(w.out))
	s.Say(`
  Try it in another shell:
    export KUBECONFIG=%s
    %s status -w                # follows; Ctrl-C ends it
    %[2]s timeline %[3]s
    %[2]s explain %[4]s --config %[5]s
    %[2]s power off %[4]s --yes --config %[5]s
    %[2]s power on %[4]s --yes --config %[5]s     # once status says that its fence is done
  The status page, http://127.0.0.1:%[6]d, takes this token for an hour (over ssh: ssh -L %[6]d:127.0.0.1:%[6]d HOST):
    %[7]s
  For a new token: kubectl -n kube-system create token forcefence-status --audience forcefence.io/status --duration 1h
  The controller reads %[5]s again when it changes. Ctrl-C ends it all.`,
		w.file("kubeconfig"), w.bin, nodeName(0), nodeName(3), w.file("config.yaml"), w.page, token)
	<-ctx.Done()
	return nil
}
