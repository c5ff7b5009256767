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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/view"
)

// newTimeline is the story of one fence.
func newTimeline() *cobra.Command {
	var at reach
	var format string
	cmd := &cobra.Command{
		Use:   "timeline NODE|ID",
		Short: "Tell a fence's story: its phases, what the devices said, the Events, pods and volumes, in the order of their times",
		Long: "Tell the story of a node's last fence, or of one by its id or the name of its Fencing: its phases, what the devices answered, what\n" +
			"forcefence told in Events, which pods were ended and which volumes detached. Fencings stay as long as the configuration keeps them\n" +
			"(records); the API server keeps Events for an hour, unless it was told otherwise. It changes nothing.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "json" {
				return fmt.Errorf("--output: %q is neither table nor json", format)
			}
			c, err := at.client()
			if err != nil {
				return err
			}
			s, err := storyOf(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), s, "  ")
			}
			s.print(cmd.OutOrStdout(), time.Now())
			return nil
		},
	}
	at.flags(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return needs(cmd, "forcefence-look")
}

// story is a fence as JSON has it.
type story struct {
	Fencing string      `json:"fencing"`
	Node    string      `json:"node"`
	ID      string      `json:"id,omitempty"`
	Why     string      `json:"why,omitempty"`
	By      string      `json:"by"`
	Shadow  bool        `json:"shadow,omitempty"` // nothing was touched
	Begun   time.Time   `json:"begun"`
	Phase   string      `json:"phase"`
	Result  string      `json:"result,omitempty"`
	Took    string      `json:"took,omitempty"`
	Outcome string      `json:"outcome,omitempty"`
	Person  string      `json:"needsPerson,omitempty"` // why somebody should look
	Proven  string      `json:"proven,omitempty"`
	Entries []entry     `json:"entries"`
	Pods    api.Pods    `json:"pods"`
	Volumes api.Volumes `json:"volumes"`
	Others  []string    `json:"others,omitempty"`  // further Fencings of the node, newest first
	Newer   []string    `json:"newer,omitempty"`   // what a newer version wrote and this one does not know
	Unknown []string    `json:"unknown,omitempty"` // what could not be read, and why
}

// entry is one moment.
type entry struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`           // phase, answer or event
	From string    `json:"from,omitempty"` // the device of an answer, the reason of an Event
	Text string    `json:"text"`
}

// The window of Events that belong to a fence: what made the node suspect is told before it, what came of the machine after.
const (
	eventsBefore = 10 * time.Minute
	eventsAfter  = 30 * time.Minute
)

func storyOf(ctx context.Context, c client.Client, what string) (*story, error) {
	found, err := findFencings(ctx, c, what)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no fence of a node %[1]s, and none with the id %[1]s, is recorded (kubectl get fcg lists them)", what)
	}
	slices.SortFunc(found, func(a, b view.Record) int {
		return cmp.Or(b.Fencing.Spec.StartedAt.Compare(a.Fencing.Spec.StartedAt.Time), cmp.Compare(b.Fencing.Name, a.Fencing.Name))
	})
	f := found[0]
	s := tell(f)
	for _, other := range found[1:] {
		s.Others = append(s.Others, other.Fencing.Name)
	}
	events, err := eventsOf(ctx, c, s.Node)
	if err != nil {
		text := err.Error()
		if right := missing(err); right != "" {
			text = "Events: you lack the right: " + right
		}
		s.Unknown = append(s.Unknown, text)
	}
	until := time.Time{}
	if f.Fencing.Status.FinishedAt != nil {
		until = f.Fencing.Status.FinishedAt.Add(eventsAfter)
	}
	for _, newer := range found[1:] { // an earlier fence's Events are not this one's
		if end := newer.Fencing.Status.FinishedAt; end != nil && end.After(s.Begun.Add(-eventsBefore)) && end.Time.Before(s.Begun) {
			events[s.Node] = slices.DeleteFunc(events[s.Node], func(e view.OwnEvent) bool { return !e.At.After(end.Time) })
		}
	}
	s.add(events[s.Node], until)
	return s, nil
}

// add tells the Events of the fence's time, and puts all in its order. until is zero for a fence that is not over.
func (s *story) add(events []view.OwnEvent, until time.Time) {
	for _, e := range events {
		if e.At.After(s.Begun.Add(-eventsBefore)) && (until.IsZero() || e.At.Before(until)) {
			s.Entries = append(s.Entries, entry{e.At, "event", e.Reason, e.Text})
		}
	}
	slices.SortStableFunc(s.Entries, func(a, b entry) int { return a.At.Compare(b.At) })
}

// findFencings are the Fencings of a node, or the one of that id or name.
func findFencings(ctx context.Context, c client.Client, what string) (out []view.Record, _ error) {
	if strings.Contains(what, ".") && len(validation.IsDNS1123Subdomain(what)) == 0 {
		u := newFencing()
		switch err := c.Get(ctx, client.ObjectKey{Name: what}, u); {
		case err == nil:
			f, err := view.ReadRecord(u.Object)
			return []view.Record{f}, err
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading Fencing %s: %w", what, unread(c, err))
		}
	}
	opts := []client.ListOption{}
	take := func(f view.Record) bool { return f.Fencing.Spec.Node == what || f.Fencing.Spec.ID == what }
	labels := []string{api.NodeLabel, api.FenceLabel}
	if len(validation.IsValidLabelValue(what)) > 0 {
		labels = labels[:1] // it stands in no label: all are read
	}
	for _, label := range labels {
		if len(labels) > 1 {
			opts = []client.ListOption{client.MatchingLabels{label: what}}
		}
		err := each(ctx, c, newFencings, func(o runtime.Object) error {
			f, err := view.ReadRecord(o.(*unstructured.Unstructured).Object)
			if err == nil && take(f) {
				out = append(out, f)
			}
			return err
		}, opts...)
		if err != nil {
			return nil, fmt.Errorf("listing Fencings: %w", unread(c, err))
		}
		if len(out) > 0 {
			break
		}
	}
	return out, nil
}

// tell is what a Fencing says.
func tell(r view.Record) *story {
	f := r.Fencing
	s := &story{
		Fencing: f.Name, Node: f.Spec.Node, ID: f.Spec.ID, Why: f.Spec.Why, By: f.Spec.By, Shadow: f.Spec.Shadow, Begun: f.Spec.StartedAt.UTC(), Phase: f.Status.Phase,
		Result: f.Status.Result, Took: f.Status.Duration, Pods: f.Status.Pods, Volumes: f.Status.Volumes, Newer: r.Strange, Entries: []entry{},
	}
	for _, c := range f.Status.Conditions {
		switch {
		case c.Type == api.Finished && c.Status == metav1.ConditionTrue:
			s.Outcome = c.Message
		case c.Type == api.Proven:
			s.Proven = c.Message
		case c.Type == api.NeedsPerson && c.Status == metav1.ConditionTrue:
			s.Person = c.Message
		}
	}
	for _, p := range f.Status.Timeline {
		s.Entries = append(s.Entries, entry{p.At.UTC(), "phase", "", strings.TrimSuffix(p.Phase+" "+p.Result, " ")})
	}
	for _, a := range f.Status.Evidence {
		text := fmt.Sprintf("%s says %s", a.From, a.State)
		switch {
		case a.State == "None":
			text = a.From + ": no device can say"
		case a.Raw != "" && a.Raw != a.State:
			text += ` ("` + a.Raw + `")`
		}
		s.Entries = append(s.Entries, entry{a.At.UTC(), "answer", a.From, text})
	}
	return s
}

func (s *story) print(out io.Writer, now time.Time) {
	what := "Fence " + s.ID
	if s.Shadow {
		what = "Mode shadow: what would have been done"
	}
	say(out, "", "%s of node %s, begun %s (%s ago) by %s. Why: %s.", what, s.Node, s.Begun.Format(time.RFC3339), age(&s.Begun, now), s.By, cmp.Or(s.Why, "not known"))
	switch {
	case s.Phase != string(taint.PhaseDone):
		say(out, "", "It is in phase %s.", cmp.Or(s.Phase, "none"))
	default:
		say(out, "", "It ended as %s after %s: %s.", s.Result, cmp.Or(s.Took, "no time"), cmp.Or(s.Outcome, "-"))
	}
	if s.Proven != "" {
		say(out, "", "Proof: %s.", s.Proven)
	}
	if s.Person != "" {
		say(out, "", "A PERSON SHOULD LOOK: %s", s.Person)
	}
	if len(s.Newer) > 0 {
		say(out, "", "A newer version wrote this Fencing, or somebody edited it. It says what this version does not know: %s.", strings.Join(s.Newer, "; "))
	}
	for _, what := range s.Unknown {
		say(out, "", "Not known: %s.", what)
	}
	fmt.Fprintln(out)
	for _, e := range s.Entries {
		text := e.Text
		switch e.Kind {
		case "phase":
			text = "PHASE " + text
		case "event":
			text = e.From + ": " + text
		}
		say(out, fmt.Sprintf("%s %8s  ", e.At.Format(time.TimeOnly), offset(e.At.Sub(s.Begun))), "%s", text)
	}
	if p := s.Pods; p.Ended+p.Spared+p.Left+p.Would > 0 {
		fmt.Fprintln(out)
		text := fmt.Sprintf("%d ended, %d spared, %d left behind", p.Ended, p.Spared, p.Left)
		if s.Shadow {
			text = fmt.Sprintf("%d would have been ended", p.Would)
		}
		var names []string
		for _, n := range p.Names {
			names = append(names, n.Namespace+"/"+n.Name)
		}
		say(out, "Pods: ", "%s%s", text, named(names, int(max(p.Ended, p.Would))))
	}
	if v := s.Volumes; v.Attached > 0 {
		say(out, "Volumes: ", "%d attached, %d of them detached by now%s", v.Attached, v.Detached, named(v.Names, int(v.Attached)))
		if len(v.Left) > 0 {
			say(out, "Volumes: ", "still attached: %s", strings.Join(v.Left, ", "))
		}
	}
	if len(s.Others) > 0 {
		fmt.Fprintln(out)
		say(out, "", "Earlier fences of the node: %s.", strings.Join(s.Others, ", "))
	}
}

// named lists names of which there are so many.
func named(names []string, all int) string {
	if len(names) == 0 {
		return ""
	}
	text := ": " + strings.Join(names, ", ")
	if more := all - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// offset is when something was, from a fence's begin.
func offset(d time.Duration) string {
	sign := "+"
	if d < 0 {
		sign, d = "-", -d
	}
	if d < time.Minute {
		return fmt.Sprintf("%s%.1fs", sign, d.Seconds())
	}
	return sign + d.Round(time.Second).String()
}
