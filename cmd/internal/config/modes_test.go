package config

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Two selectors are apart where no labels match both, and only there.
func TestApart(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"zone=a", "zone=b", true},
		{"zone=a", "zone!=a", true},
		{"zone=a", "zone=a", false},
		{"zone=a", "rack=b", false},
		{"zone", "!zone", true},
		{"zone", "zone!=a", false},
		{"!zone", "zone!=a", false},
		{"!zone", "zone=a", true},
		{"!zone", "zone in (a,b)", true},
		{"zone in (a,b)", "zone in (b,c)", false},
		{"zone in (a,b)", "zone in (c)", true},
		{"zone in (a,b)", "zone notin (a,b)", true},
		{"zone in (a,b)", "zone notin (a)", false},
		{"zone=a,rack=1", "zone=a,rack=2", true},
		{"zone=a,rack=1", "rack=1,row=3", false},
		{"cores>4", "cores<5", true},
		{"cores>4", "cores<6", false},
		{"cores>4", "cores<6,cores!=5", true},
		{"cores>4,cores!=5,cores!=6", "cores", false},
		{"cores>4,cores!=5,cores!=6", "cores<8", false},
		{"cores>4,cores!=5,cores!=6", "cores<7", true},
		{"cores>4", "cores=x", true},
		{"cores>4", "!cores", true},
	} {
		a, err := labels.Parse(tc.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := labels.Parse(tc.b)
		if err != nil {
			t.Fatal(err)
		}
		if apart(a, b) != tc.want || apart(b, a) != tc.want {
			t.Errorf("%q and %q: got %v, want %v", tc.a, tc.b, apart(a, b), tc.want)
		}
	}
}

// A node's mode is the matching item's, else its rule's, else the file's.
func TestModeOfNode(t *testing.T) {
	item := func(selector string, m Mode) ModeItem {
		s, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		return ModeItem{Selector: selector, Mode: m, PowerOffAfter: leastGrace, selector: s}
	}
	c := &Config{Mode: "observe", Modes: []ModeItem{item("zone=a", "fence"), item("zone=b", "shadow")},
		Nodes: []NodeRule{{Name: "racks", Mode: "disabled", selector: labels.SelectorFromSet(labels.Set{"rack": "1"})},
			{Name: "all", selector: labels.Everything()}}}
	for _, tc := range []struct {
		zone, rack string
		want       Mode
		by         string
	}{
		{"a", "", "fence", `modes, selector "zone=a"`},
		{"b", "1", "shadow", `modes, selector "zone=b"`},
		{"c", "1", "disabled", "mode of the rule racks"},
		{"c", "2", "observe", "mode of the configuration"},
	} {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": tc.zone, "rack": tc.rack}}}
		s := c.Settings("")
		limits, got := s.FenceFor(n)
		after := limits.PowerOffAfter
		if got.Mode.String() != string(tc.want) || got.By != tc.by || (after == leastGrace) != (tc.zone < "c") {
			t.Errorf("%+v: got %+v after %s", tc, got, after)
		}
	}
}
