package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/features/explain"
	"github.com/forcefence/forcefence/taint/features/room"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// newExplain returns the command that predicts what would happen to a node that stops answering.
func newExplain(d *sessionFlags) *cobra.Command {
	var format outputFormat
	var silent bool
	cmd := &cobra.Command{
		Use:   "explain NODE",
		Short: "Predict what happens if a node stops answering now, without doing it",
		Long: `Predict what happens if a node stops answering now and its devices then say
Off, On, or nothing. The command applies the controller's rules to the
cluster's present state. It shows which devices are asked and whether they
answer, which pods move and when, which pods stay and why, which rule prevents
a fence, and which replacements find no room. It writes nothing and powers
nothing off. It asks the devices as drill does. -o wide lists what becomes of
each pod instead, and -o name the pods.

The room for replacements is an estimate by the scheduler's rules: requests,
taints, node selectors and affinity, pod affinity, topology spread, host ports,
volume topology and attach limits. It assumes no preemption. What could not be
checked for a pod is named beside it.

Exits with 0 if the prediction could be made, and with 1 otherwise.`,
		Example: `  # By the controller's configuration
  forcefence explain n3 --config config.yaml
  # Each pod of the node, without asking a device
  forcefence explain n3 --no-devices -o wide`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: d.completeNodes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := d.openAndExplain(cmd, args[0], !silent)
			if err != nil {
				return err
			}
			return format.print(cmd.OutOrStdout(), report{e, e.podTable(), func(out io.Writer, wide bool) error {
				if wide {
					return printTable(out, e.podTable(), wide)
				}
				e.printReport(out)
				return nil
			}})
		},
	}
	f := cmd.Flags()
	format.addFlag(cmd)
	f.BoolVar(&silent, "no-devices", false, "do not ask the devices")
	d.addFlags(cmd)
	return withRole(cmd, roleExplain)
}

// explanation is the prediction for one node, and its JSON form.
type explanation struct {
	explain.Report
	At            time.Time         `json:"at"`
	Ready         bool              `json:"ready"`
	Leaderless    bool              `json:"leaderless,omitempty"` // no controller leads now
	SilentSeconds float64           `json:"silentSeconds"`        // since its last heartbeat
	Fence         string            `json:"fence,omitempty"`
	Fenced        string            `json:"fenced,omitempty"` // how its fence ended, since which it has not been Ready
	Mode          string            `json:"mode"`
	ModeBy        string            `json:"modeBy,omitempty"`
	RequestedBy   string            `json:"requestedBy,omitempty"` // in mode onRequest: the request that counts
	StorageFences []string          `json:"storageFences,omitempty"`
	LeftAlone     string            `json:"leftAlone,omitempty"` // why no fence begins
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
	Feeds          bool    `json:"feeds,omitempty"` // it supplies the machine's power
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

// estimate describes how the room for replacements is estimated.
const estimate = "This is an estimate by the scheduler's rules: requests, taints, node selectors and affinity, pod " +
	"affinity, topology spread, host ports, volume topology and attach limits. It assumes no preemption."

func (d *sessionFlags) openAndExplain(cmd *cobra.Command, node string, ask bool) (explanation, error) {
	open, err := d.openSession(cmd, !ask)
	if err != nil {
		return explanation{}, err
	}
	defer open.Close()
	return explainNode(cmd.Context(), open, node, ask)
}

func explainNode(ctx context.Context, open *app.Session, node string, ask bool) (explanation, error) {
	s, m, unknown, err := open.ReadSnapshot(ctx, node, time.Now)
	if err != nil {
		return explanation{}, err
	}
	var seen drill.Facts
	if ask {
		if seen, err = open.DrillNode(ctx, node); err != nil {
			return explanation{}, err
		}
	}
	e := explanation{
		Report: explain.ReportOf(s), At: s.Now.Wall.UTC().Truncate(time.Second),
		SilentSeconds: s.LeaseAge[node].Round(time.Second).Seconds(), Mode: s.Facts.Mode.String(),
		ModeBy: s.Facts.ModeBy, RequestedBy: s.Facts.RequestedBy, LeftAlone: s.Facts.Excluded, KeptOn: s.Facts.KeptOn,
		Leaderless: open.LostLeader(ctx), Devices: []explainedDevice{},
		Unknown: append([]string{}, unknown...), Estimate: estimate,
		Ready: slices.ContainsFunc(s.Node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}),
	}
	switch r, err := taint.RecordOf(s.Node); {
	case err != nil:
		e.Fence = "its fence's record is unreadable"
	case r.IsOpen():
		e.Fence = fmt.Sprintf("fence %s is in phase %s", r.ID, r.Phase)
	default:
		if mark, marked := taint.FindMark(s.Node, s.Key, ""); marked {
			e.Fence = fmt.Sprintf("marked as shut down (%s)", mark.Value)
		}
	}
	if rec, err := taint.RecordOf(s.Node); err == nil {
		e.Fenced = describeEndedFence(rec, taint.Condition(s.Node, corev1.NodeReady))
	}
	if s.Facts.NoDeviceErr != nil {
		e.NoMachine = providers.ErrorText(s.Facts.NoDeviceErr)
	}
	e.StorageFences = describeStorageFences(s.Facts.StorageFences)
	e.Pinned = s.Node.Labels[taint.PinLabel] != "" && s.Node.Labels[taint.PinLabel] == m.Identity.Pin()
	for _, by := range m.Devices() {
		e.Devices = append(e.Devices, deviceOf(by, seen))
	}
	return e, nil
}

// describeEndedFence says how the fence of a node ended that has not been Ready since; "" if there is none.
func describeEndedFence(rec *taint.Record, ready corev1.NodeCondition) string {
	if rec == nil || rec.IsOpen() || ready.Status == corev1.ConditionTrue ||
		rec.At.Before(ready.LastTransitionTime.Time) {
		return ""
	}
	text := fmt.Sprintf("its fence %s has ended as %s", rec.ID, rec.Result)
	if rec.Result == taint.ResultEvicted {
		text += ": its pods were freed"
	}
	return text
}

// deviceOf describes one of the node's devices, with the answer that it just gave if it was asked.
func deviceOf(by machine.Machine, seen drill.Facts) explainedDevice {
	out := explainedDevice{
		Level:          by.Level + 1,
		Device:         by.Device,
		Machine:        by.Identity.String(),
		Feeds:          by.Feeds,
		NoPower:        by.NoPower,
		DelaySeconds:   by.Limits.Delay.Seconds(),
		TimeoutSeconds: by.Limits.Timeout.Seconds(),
		Attempts:       by.Limits.Attempts,
	}
	for _, d := range seen.Devices {
		if d.Name == by.Device {
			out.Asked, out.Result, out.State, out.Identity, out.Seconds =
				true, d.Result(), d.Answer.State.String(), d.IdentityResult(), d.Duration.Seconds()
			if d.Answer.Err != nil {
				out.Error = providers.ErrorCause(d.Answer.Err)
			}
		}
	}
	return out
}

// describeRequest says which request permits a power-off; "" if none does.
func (e explanation) describeRequest() string {
	if e.RequestedBy == "" {
		return ""
	}
	return e.RequestedBy + " permits a power-off"
}

// describeStorageFences says, for each policy that needs it, whom the storage would cut off, or why it would not.
func describeStorageFences(fences map[string]policy.StorageFence) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(fences)) {
		switch f := fences[name]; f.State {
		case policy.FenceAbsent:
			out = append(out, fmt.Sprintf("Policy %s would have the storage cut off %s", name, f.Detail))
		case policy.FenceHolds:
			out = append(out, fmt.Sprintf("Policy %s: the storage has cut the node off", name))
		default:
			out = append(out, fmt.Sprintf("Policy %s: the storage does not cut the node off: %s", name, f.Detail))
		}
	}
	return out
}

// podTable has a row for each pod of the node, with what becomes of it in each scenario.
func (e explanation) podTable() *metav1.Table {
	columns, notes, pods := []string{"Pod"}, map[string]string{}, []string{}
	for _, r := range e.Replacements {
		notes[r.Pod] = describeReplacement(r)
		pods = append(pods, r.Pod)
	}
	for _, c := range e.Scenarios {
		columns = append(columns, "If-"+c.DeviceState)
		pods = append(pods, c.Moved...)
		for _, p := range c.Policy {
			pods = append(pods, p.Pods...)
		}
	}
	for _, s := range e.Stay {
		notes[s.Pod] = s.Why
		pods = append(pods, s.Pod)
	}
	slices.Sort(pods)
	t := newTable(append(columns, "Note")...)
	for _, pod := range slices.Compact(pods) {
		cells := []any{pod}
		for _, c := range e.Scenarios {
			word := "stays"
			for _, p := range c.Policy {
				if slices.Contains(p.Pods, pod) {
					word = "ended by policy " + p.Policy
				}
			}
			if slices.Contains(c.Moved, pod) {
				word = "moves"
			}
			cells = append(cells, word)
		}
		namespace, name, _ := strings.Cut(pod, "/")
		addRow(t, objectNamed("", "Pod", namespace, name), append(cells, notes[pod])...)
	}
	return t
}

// printReport prints the explanation as sentences.
func (e explanation) printReport(out io.Writer) {
	word := "not Ready"
	if e.Ready {
		word = "Ready"
	}
	printText(out, "", "Node %s: %s, last heartbeat %s ago.", e.Node, word, formatSeconds(e.SilentSeconds))
	if e.Leaderless {
		printText(out, "", "No controller leads: what follows waits until one does.")
	}
	printText(out, "", "Mode %s (%s).", e.Mode, cmp.Or(e.ModeBy, "configuration"))
	if e.Mode == fence.OnRequest.String() {
		printText(out, "", "%s.", cmp.Or(e.describeRequest(), "Without a request its machine is not powered off"))
	}
	for _, text := range []struct{ what, why string }{
		{"", e.Fence},
		{"not fenced: ", e.LeftAlone},
		{"not powered off: ", e.KeptOn},
		{"without a device: ", e.NoMachine},
	} {
		if text.why != "" {
			printText(out, "", "It is %s%s.", text.what, text.why)
		}
	}
	for _, text := range e.StorageFences {
		printText(out, "", "%s.", text)
	}
	for i, d := range e.Devices {
		if i == 0 {
			fmt.Fprintf(out, "\nDEVICES\n")
		}
		d.printDevice(out)
	}
	if len(e.Devices) > 0 && e.Pinned {
		printText(out, "  ", "The node is pinned to its machine.")
	}
	e.printScenarios(out)
	if len(e.Stay) > 0 {
		fmt.Fprintf(out, "\nPODS THAT STAY: %d\n", len(e.Stay))
	}
	for i := 0; i < len(e.Stay); {
		var pods []string
		why := e.Stay[i].Why
		for ; i < len(e.Stay) && e.Stay[i].Why == why; i++ {
			pods = append(pods, e.Stay[i].Pod)
		}
		printText(out, "  ", "%s: %s", why, strings.Join(pods, ", "))
	}
	moves := slices.ContainsFunc(e.Scenarios, func(c explain.Scenario) bool {
		return c.Outcome != explain.Nothing || len(c.Policy) > 0
	})
	if len(e.Replacements) > 0 && moves {
		fits := 0
		for _, r := range e.Replacements {
			if r.Fits {
				fits++
			}
		}
		fmt.Fprintf(out, "\nREPLACEMENTS: %d of %d have room elsewhere\n", fits, len(e.Replacements))
		for _, r := range e.Replacements {
			printText(out, "  ", "%s: %s", r.Pod, describeReplacement(r))
		}
		printText(out, "  ", "%s", e.Estimate)
	}
	if len(e.Unknown) > 0 {
		fmt.Fprintf(out, "\nUNKNOWN AND LEFT OUT\n")
		for _, what := range e.Unknown {
			printText(out, "  ", "%s", what)
		}
	}
}

func (e explanation) printScenarios(out io.Writer) {
	ifs := map[string]string{
		providers.PowerOff.String(): "AND ITS MACHINE IS OFF", providers.PowerOn.String(): "AND ITS MACHINE IS ON",
		providers.PowerUnknown.String(): "AND NO DEVICE ANSWERS",
	}
	same := !slices.ContainsFunc(e.Scenarios, func(c explain.Scenario) bool {
		return c.Outcome != explain.Nothing || c.Text != e.Scenarios[0].Text || len(c.Policy) > 0
	})
	silent := "IF IT STOPS ANSWERING NOW"
	if !e.Ready {
		silent = "IF IT STAYS NOT READY"
	}
	for _, c := range e.Scenarios {
		when := silent + ", " + ifs[c.DeviceState]
		if same {
			when = silent + ", AND ITS DEVICES SAY ANYTHING"
		}
		fmt.Fprintln(out)
		printText(out, "", "%s: %s%s", when, outcomeSummary(c), e.whyNothing(c))
		for _, s := range c.Steps {
			printText(out, fmt.Sprintf("  %6s  ", formatSeconds(s.Seconds)), "%s: %s", s.Reason, s.Text)
		}
		for _, p := range c.Policy {
			printText(out, "  ", "Without proof, after %s, by %s: %s", formatSeconds(p.Seconds), p.Policy,
				strings.Join(p.Pods, ", "))
		}
		if len(c.Moved) > 0 {
			printText(out, "  ", "Pods: %s", strings.Join(c.Moved, ", "))
		}
		if len(c.Detach) > 0 {
			printText(out, "  ", "Volumes to detach: %s", strings.Join(c.Detach, ", "))
		}
		if same {
			return
		}
	}
}

// whyNothing says why nothing happens in a scenario; "" if what it reports on the way says why.
func (e explanation) whyNothing(c explain.Scenario) string {
	switch {
	case c.Outcome != explain.Nothing || len(c.Policy) > 0:
	case e.Fenced != "":
		return ", because " + e.Fenced
	case len(c.Steps) == 0 && e.LeftAlone != "":
		return ", because it is not fenced: " + e.LeftAlone
	}
	return ""
}

// outcomeSummary returns a scenario's outcome in a few words.
func outcomeSummary(c explain.Scenario) string {
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
	case explain.ShadowOnly:
		return "reported only (mode shadow)"
	case explain.Hangs:
		return first + "a fence begins and does not end by itself"
	case explain.Nothing:
	}
	if len(c.Policy) > 0 {
		return "policies end pods without proof"
	}
	return "nothing happens"
}

func (d explainedDevice) printDevice(out io.Writer) {
	answer := "not asked"
	switch {
	case d.Asked && d.Result == "ok":
		answer = fmt.Sprintf("answers %s in %.1f s, identity %s", d.State, d.Seconds, d.Identity)
	case d.Asked:
		answer = "cannot be used: " + cmp.Or(d.Error, d.Result)
	}
	printText(out, fmt.Sprintf("  level %d  ", d.Level), "%s: %s", d.Device, answer)
	var more []string
	for _, m := range []struct {
		text string
		has  bool
	}{
		{"waits " + formatSeconds(d.DelaySeconds) + " before a power-off", d.DelaySeconds > 0},
		{"next device after " + formatSeconds(d.TimeoutSeconds), d.TimeoutSeconds > 0},
		{fmt.Sprintf("%d attempts", d.Attempts), d.Attempts > 1}, {"feeds the machine", d.Feeds},
		{"never powers off: " + d.NoPower, d.NoPower != ""},
	} {
		if m.has {
			more = append(more, m.text)
		}
	}
	printText(out, "           ", "%s", strings.Join(append([]string{"machine " + d.Machine}, more...), "; "))
}

// describeReplacement says where the replacement of a pod fits, or why it finds no room.
func describeReplacement(r room.Replacement) string {
	text := r.Why
	if r.Fits {
		text = "fits, for example on " + r.Node
	}
	if len(r.Unchecked) > 0 {
		text += " (" + strings.Join(r.Unchecked, ", ") + " not checked)"
	}
	return text
}
