package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/taint/view/explain"
)

// newExplain tells what would become of a node.
func newExplain(types providers.Registry) *cobra.Command {
	return explainCommand(&desk{types: types})
}

func explainCommand(d *desk) *cobra.Command {
	var format string
	var silent bool
	cmd := &cobra.Command{
		Use:   "explain NODE",
		Short: "Tell what would happen if a node stopped answering now: who says so, what would stop it, which pods move and which stay",
		Long: "Tell what would happen if a node stopped answering now, if its devices then said Off, On, or nothing: by the controller's own rules, on\n" +
			"what the API server says now. Which devices speak for it and whether they answer, which pods would be moved and when, which stay and why,\n" +
			"which rule would stop that, and which replacements would find no room. Nothing is written, and nothing is powered off; the devices\n" +
			"are asked as by drill.\n\n" +
			"Whether replacements find room is an estimate: nothing is preempted, and pod affinity, topology spread, host ports and resource\n" +
			"claims are not looked at.\n\n" +
			"Exit status: 0 if it could be told, whatever would happen; 1 for any error.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "json" {
				return fmt.Errorf("--output: %q is neither table nor json", format)
			}
			e, err := d.explained(cmd, args[0], !silent)
			if err != nil {
				return err
			}
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), e, "  ")
			}
			e.print(cmd.OutOrStdout())
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&format, "output", "o", "table", "table or json")
	f.BoolVar(&silent, "no-devices", false, "do not ask the devices whether they answer now")
	d.flags(cmd)
	return needs(cmd, "forcefence-explain")
}

// explained is what would happen, as JSON has it.
type explained struct {
	explain.Report
	At            time.Time         `json:"at"`
	Ready         bool              `json:"ready"`
	SilentSeconds float64           `json:"silentSeconds"` // since its last heartbeat
	Fence         string            `json:"fence,omitempty"`
	Mode          string            `json:"mode"`
	ModeBy        string            `json:"modeBy,omitempty"`
	LeftAlone     string            `json:"leftAlone,omitempty"` // why nothing is begun
	KeptOn        string            `json:"keptOn,omitempty"`    // why its machine is not powered off
	NoMachine     string            `json:"noMachine,omitempty"` // why no device speaks for it
	Pinned        bool              `json:"pinned"`
	Devices       []explainedDevice `json:"devices"`
	Unknown       []string          `json:"unknown"` // what is left out, and why
	Estimate      string            `json:"estimate"`
}

type explainedDevice struct {
	Level          int     `json:"level"` // from 1
	Device         string  `json:"device"`
	Machine        string  `json:"machine"`
	Feeds          bool    `json:"feeds,omitempty"` // it gives the machine power
	DelaySeconds   float64 `json:"delaySeconds,omitempty"`
	TimeoutSeconds float64 `json:"timeoutSeconds,omitempty"`
	Attempts       int     `json:"attempts,omitempty"`
	NoPower        string  `json:"noPower,omitempty"`
	Asked          bool    `json:"asked"`
	Result         string  `json:"result,omitempty"` // "ok", or what is wrong
	State          string  `json:"state,omitempty"`
	Identity       string  `json:"identity,omitempty"`
	Seconds        float64 `json:"seconds,omitempty"`
	Error          string  `json:"error,omitempty"`
}

// estimate is what is said of replacements.
const estimate = "An estimate: requests against what is allocatable, node selectors and affinity, taints, volumes' reach and attach slots." +
	" Nothing is preempted; pod affinity, topology spread, host ports and resource claims are not looked at."

func (d *desk) explained(cmd *cobra.Command, node string, ask bool) (explained, error) {
	open, err := d.open(cmd)
	if err != nil {
		return explained{}, err
	}
	defer open.Close()
	return explainNode(cmd.Context(), open, node, ask)
}

func explainNode(ctx context.Context, open *app.Desk, node string, ask bool) (explained, error) {
	s, m, unknown, err := open.Snapshot(ctx, node, time.Now)
	if err != nil {
		return explained{}, err
	}
	var seen drill.Seen
	if ask {
		if seen, err = open.Drill(ctx, node); err != nil {
			return explained{}, err
		}
	}
	e := explained{
		Report: explain.Of(s), At: s.Now.Wall.UTC().Truncate(time.Second),
		SilentSeconds: s.Silent[node].Round(time.Second).Seconds(), Mode: s.Facts.Mode.String(),
		ModeBy: s.Facts.ModeBy, LeftAlone: s.Facts.Excluded, KeptOn: s.Facts.KeptOn, Devices: []explainedDevice{},
		Unknown: append([]string{}, unknown...), Estimate: estimate,
		Ready: slices.ContainsFunc(s.Node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}),
	}
	switch r, err := taint.RecordOf(s.Node); {
	case err != nil:
		e.Fence = "the record of its fence cannot be read"
	case r.Open():
		e.Fence = fmt.Sprintf("fence %s is in phase %s", r.ID, r.Phase)
	default:
		if mark, marked := taint.Find(s.Node, s.Key, ""); marked {
			e.Fence = fmt.Sprintf("marked as shut down (%s)", mark.Value)
		}
	}
	if s.Facts.Nobody != nil {
		e.NoMachine = providers.Text(s.Facts.Nobody)
	}
	e.Pinned = s.Node.Labels[taint.PinLabel] != "" && s.Node.Labels[taint.PinLabel] == m.Identity.Pin()
	for _, by := range m.Devices() {
		e.Devices = append(e.Devices, deviceOf(by, seen))
	}
	return e, nil
}

// deviceOf is one of the node's devices, and what it answered just now, if it was asked.
func deviceOf(by machine.Machine, seen drill.Seen) explainedDevice {
	out := explainedDevice{
		Level: by.Level + 1, Device: by.Device, Machine: by.Identity.String(), Feeds: by.Feeds, NoPower: by.NoPower,
		DelaySeconds: by.Limits.Delay.Seconds(), TimeoutSeconds: by.Limits.Timeout.Seconds(), Attempts: by.Limits.Attempts,
	}
	for _, d := range seen.Devices {
		if d.Name == by.Device {
			out.Asked, out.Result, out.State, out.Identity, out.Seconds = true, d.Result(), d.Answer.State.String(), d.Identity(), d.Took.Seconds()
			if d.Answer.Err != nil {
				out.Error = providers.Cause(d.Answer.Err)
			}
		}
	}
	return out
}

// print writes for a terminal of 80 columns.
func (e explained) print(out io.Writer) {
	word := "not Ready"
	if e.Ready {
		word = "Ready"
	}
	say(out, "", "Node %s: %s, last heartbeat %s ago.", e.Node, word, seconds(e.SilentSeconds))
	say(out, "", "Mode %s (%s).", e.Mode, cmp.Or(e.ModeBy, "of the configuration"))
	for _, text := range []struct{ what, why string }{{"", e.Fence}, {"left alone: ", e.LeftAlone}, {"not powered off: ", e.KeptOn}, {"no device speaks for it: ", e.NoMachine}} {
		if text.why != "" {
			say(out, "", "It is %s%s.", text.what, text.why)
		}
	}
	for i, d := range e.Devices {
		if i == 0 {
			fmt.Fprintf(out, "\nDEVICES\n")
		}
		d.print(out)
	}
	if len(e.Devices) > 0 && e.Pinned {
		say(out, "  ", "The node is pinned to its machine.")
	}
	e.printCourses(out)
	if len(e.Stay) > 0 {
		fmt.Fprintf(out, "\nPODS THAT STAY: %d\n", len(e.Stay))
	}
	for i := 0; i < len(e.Stay); {
		var pods []string
		why := e.Stay[i].Why
		for ; i < len(e.Stay) && e.Stay[i].Why == why; i++ {
			pods = append(pods, e.Stay[i].Pod)
		}
		say(out, "  ", "%s: %s", why, strings.Join(pods, ", "))
	}
	if len(e.Replacements) > 0 {
		short := 0
		for _, r := range e.Replacements {
			if !r.Fits {
				short++
			}
		}
		fmt.Fprintf(out, "\nREPLACEMENTS: %d of %d find no room\n", short, len(e.Replacements))
		for _, r := range e.Replacements {
			printReplacement(out, r)
		}
		say(out, "  ", "%s", e.Estimate)
	}
	if len(e.Unknown) > 0 {
		fmt.Fprintf(out, "\nNOT KNOWN, AND LEFT OUT\n")
		for _, what := range e.Unknown {
			say(out, "  ", "%s", what)
		}
	}
}

func (e explained) printCourses(out io.Writer) {
	ifs := map[string]string{
		providers.PowerOff.String(): "AND ITS MACHINE IS OFF", providers.PowerOn.String(): "AND ITS MACHINE IS ON",
		providers.PowerUnknown.String(): "AND NO DEVICE ANSWERS",
	}
	same := !slices.ContainsFunc(e.Courses, func(c explain.Course) bool {
		return c.Outcome != explain.Nothing || c.Text != e.Courses[0].Text || len(c.Policy) > 0
	})
	for _, c := range e.Courses {
		when := ifs[c.Says]
		if same {
			when = "WHATEVER ITS DEVICES SAY"
		}
		fmt.Fprintln(out)
		say(out, "", "IF IT FALLS SILENT NOW, %s: %s", when, summary(c))
		for _, s := range c.Steps {
			say(out, fmt.Sprintf("  %6s  ", seconds(s.Seconds)), "%s: %s", s.Reason, s.Text)
		}
		for _, p := range c.Policy {
			say(out, "  ", "Without proof, after %s, by %s: %s", seconds(p.Seconds), p.Policy, strings.Join(p.Pods, ", "))
		}
		if len(c.Moved) > 0 {
			say(out, "  ", "Pods: %s", strings.Join(c.Moved, ", "))
		}
		if len(c.Detach) > 0 {
			say(out, "  ", "Volumes to be detached: %s", strings.Join(c.Detach, ", "))
		}
		if same {
			return
		}
	}
}

// summary is a course in a few words.
func summary(c explain.Course) string {
	first := ""
	if len(c.Through) > 0 {
		first = "powered off, "
	}
	switch c.Outcome {
	case explain.Moves:
		if len(c.Moved) == 1 {
			return first + "1 pod moves"
		}
		return fmt.Sprintf("%s%d pods move", first, len(c.Moved))
	case explain.Tells:
		return "it is told, and nothing is done"
	case explain.Hangs:
		return first + "it begins, and does not end by itself"
	case explain.Nothing:
	}
	if len(c.Policy) > 0 {
		return "policies end pods without proof"
	}
	return "nothing is done"
}

func (d explainedDevice) print(out io.Writer) {
	said := "not asked"
	switch {
	case d.Asked && d.Result == "ok":
		said = fmt.Sprintf("answers %s in %.1f s, identity %s", d.State, d.Seconds, d.Identity)
	case d.Asked:
		said = "does not serve: " + cmp.Or(d.Error, d.Result)
	}
	say(out, fmt.Sprintf("  level %d  ", d.Level), "%s: %s", d.Device, said)
	var more []string
	for _, m := range []struct {
		text string
		has  bool
	}{
		{"waits " + seconds(d.DelaySeconds) + " before a power-off", d.DelaySeconds > 0}, {"gives way after " + seconds(d.TimeoutSeconds), d.TimeoutSeconds > 0},
		{fmt.Sprintf("%d attempts", d.Attempts), d.Attempts > 1}, {"gives the machine its power", d.Feeds},
		{"powers nothing off: " + d.NoPower, d.NoPower != ""},
	} {
		if m.has {
			more = append(more, m.text)
		}
	}
	say(out, "           ", "%s", strings.Join(append([]string{"machine " + d.Machine}, more...), "; "))
}

func printReplacement(out io.Writer, r explain.Replacement) {
	text := r.Why
	if r.Fits {
		text = "fits, on " + r.Node + " for one"
	}
	if len(r.Unchecked) > 0 {
		text += " (its " + strings.Join(r.Unchecked, ", ") + " was not looked at)"
	}
	say(out, "  ", "%s: %s", r.Pod, text)
}

// seconds is a time for a person.
func seconds(n float64) string {
	return time.Duration(n * float64(time.Second)).Round(time.Second).String()
}
