package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// newPower returns the commands with which a person changes the power of a node's machine.
func newPower(d *sessionFlags) *cobra.Command {
	root := &cobra.Command{
		Use:   "power",
		Short: "Power a node's machine off or on",
		Long: `Power a node's machine off or on. The commands use the configuration's rules,
identity checks and limits, as the controller does. They read Nodes and Leases,
and write nothing to the API server. "forcefence drill NODE" only asks.

They exit with 0 if the devices report the wanted state, and with 1 otherwise: if
the devices disagree, if an answer proves nothing, or without --yes.`,
		Example: `  # Off, and on again
  forcefence power off n3 --yes
  forcefence power on n3 --yes`,
	}
	root.AddCommand(d.newOnOffCommand(false), d.newOnOffCommand(true))
	return root
}

// newOnOffCommand returns the command power on, or power off.
func (d *sessionFlags) newOnOffCommand(on bool) *cobra.Command {
	var yes bool
	var wait time.Duration
	want, cmd := providers.PowerOff, &cobra.Command{
		Use: "off NODE", Short: "Power the node's machine off without a shutdown", Args: cobra.ExactArgs(1),
		Long: `Power the node's machine off without a shutdown, through the first device that
accepts the request, and wait until the devices say Off. Your request overrides
the configuration's mode: excluded and control-plane nodes are powered off, too.
The pods of a running node end as in a power cut. A fence in progress does not
prevent it.`,
	}
	if on {
		want, cmd = providers.PowerOn, &cobra.Command{
			Use: "on NODE", Short: "Power the node's machine on", Args: cobra.ExactArgs(1),
			Long: `Power the node's machine on, through the first device that accepts the request,
and wait until the devices say On. The command refuses while the node is marked
or its fence is not done: a machine that boots then could run its pods beside
their replacements.`,
		}
	}
	cmd.ValidArgsFunction = d.completeNodes(1)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if wait < 0 {
			return fmt.Errorf("--wait: %s is negative", wait)
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return d.withMachine(cmd, args[0],
			func(ctx context.Context, out io.Writer, p *app.NodePower, now providers.PowerState) error {
				if on && p.Fence != "" {
					return p.FencedError()
				}
				if now == want {
					return nil // the machine is already in that state
				}
				if !yes {
					if !on && p.Ready {
						fmt.Fprintf(out, "node %s is Ready: its pods will end as in a power cut\n", p.Node)
					}
					return fmt.Errorf(
						"nothing was sent: add --yes to power the machine of node %s %s", p.Node,
						map[bool]string{true: "on", false: "off"}[on],
					)
				}
				sent, err := p.SendPower(ctx, on)
				for _, s := range sent {
					fmt.Fprintf(out, "%s: %s\n", s.Device, cmp.Or(providers.ErrorText(s.Err), "accepted"))
				}
				if err != nil {
					return err
				}
				return waitForState(ctx, out, p, want, cmp.Or(wait, p.Timeout))
			})
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.Flags().DurationVar(
		&wait, "wait", 0, "how long to wait for the wanted state (default: the configuration's powerOffTimeout)",
	)
	d.addFlags(cmd)
	return withRole(cmd, roleExplain)
}

// askInterval is the time between two questions while a machine changes its power state.
const askInterval = 500 * time.Millisecond

// waitForState asks the devices until the machine is in the wanted state. It blocks for at most within; after that it
// returns an error.
func waitForState(
	ctx context.Context,
	out io.Writer,
	p *app.NodePower,
	want providers.PowerState,
	within time.Duration,
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within,
		fmt.Errorf("the machine of node %s was not %s within %s", p.Node, want, within))
	defer cancel()
	for {
		all, v := p.AskDevices(ctx)
		if v.State == want {
			err := printTable(out, deviceTable(p.Node, all), false)
			fmt.Fprintf(out, "the machine is %s\n", want)
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(printTable(out, deviceTable(p.Node, all), false), context.Cause(ctx))
		case <-time.After(askInterval):
		}
	}
}

// printVerdict prints what the devices said, the common verdict, and why the node's fence is not over.
func printVerdict(out io.Writer, p *app.NodePower, all []drill.Device, verdict providers.Answer) error {
	if err := printTable(out, deviceTable(p.Node, all), false); err != nil {
		return err
	}
	fmt.Fprintf(out, "the machine is %s\n", verdict.State)
	inTable := func(d drill.Device) bool { return errorText(d.Answer.Err) == providers.ErrorCause(verdict.Err) }
	if verdict.Err != nil && !slices.ContainsFunc(all, inTable) {
		fmt.Fprintf(out, "verdict: %s\n", providers.ErrorCause(verdict.Err))
	}
	if p.Fence != "" {
		fmt.Fprintf(out, "node %s: %s\n", p.Node, p.Fence)
	}
	return nil
}

// withMachine opens a session and prints what each device says about a node's machine, and their verdict. Then it calls
// f.
func (d *sessionFlags) withMachine(
	cmd *cobra.Command,
	node string,
	f func(context.Context, io.Writer, *app.NodePower, providers.PowerState) error,
) error {
	open, err := d.openSession(cmd, false)
	if err != nil {
		return err
	}
	defer open.Close()
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	p, err := open.ReadNodePower(ctx, node)
	if err != nil {
		return err
	}
	all, v := p.AskDevices(ctx)
	if err := printVerdict(out, p, all, v); err != nil {
		return err
	}
	return f(ctx, out, p, v.State)
}
