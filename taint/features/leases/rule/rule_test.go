package rule

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
)

var (
	asked  = providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 10, 0, time.UTC))
	listed = asked.Add(-time.Second)
)

func TestRefusal(t *testing.T) {
	const (
		unnamed = "no rule names it"
		other   = "its holder is neither the node nor a pod of the node"
		written = "it was written after the node's pods were listed, or after the devices were asked"
		renewed = "its holder renewed it after the proof, by the holder's clock"
	)
	held := func(holder string) func(*Lease) { return func(l *Lease) { l.Holder = holder } }
	for _, tc := range []struct {
		name   string
		edit   func(*Lease) // nil: db-1 of the node holds the Lease primary
		others Others
		want   string
	}{
		{"a pod's name", nil, Others{}, ""},
		{"a pod's name and a random text", held("db-1_0b0f"), Others{}, ""},
		{"two underscores", held("db-1_0b0f_1"), Others{}, ""},
		{"the node's name", held("n1"), Others{}, ""},
		{"the node's name and a random text", held("n1_0b0f"), Others{}, ""},
		{"a pod that stays", held("agent_0b0f"), Others{}, ""},
		{"another name by pattern", func(l *Lease) { l.Name = "shard-2" }, Others{}, ""},

		{"another namespace", func(l *Lease) { l.Namespace = "shop" }, Others{}, unnamed},
		{"another name", func(l *Lease) { l.Name = "primary-2" }, Others{}, unnamed},
		{"a name around the pattern", func(l *Lease) { l.Name = "my-shard-2" }, Others{}, unnamed},
		{"no holder", held(""), Others{}, "it has no holder"},
		{"a random text alone", held("_0b0f"), Others{}, "it has no holder"},
		{"a longer name", held("db-10_0b0f"), Others{}, other},
		{"a shorter name", held("db_0b0f"), Others{}, other},
		{"a longer node's name", held("n10"), Others{}, other},
		{"a name and a hyphen", held("db-1-0b0f"), Others{}, other},
		{"a name behind", held("x_db-1"), Others{}, other},
		{"a pod of another namespace", held("web-1"), Others{}, other},
		{"the mirror of a static pod", held("static-n1_0b0f"), Others{}, other},

		{"written while the pods were listed", func(l *Lease) { l.Seen = listed }, Others{}, written},
		{"written before that alone", func(l *Lease) { l.Seen = listed.Add(-1) }, Others{}, ""},
		{"written after the proof", func(l *Lease) { l.Seen = asked.Add(time.Second) }, Others{}, written},
		{"renewed after the proof", func(l *Lease) { l.Renewed = asked.Wall.Add(1) }, Others{}, renewed},
		{"renewed when the devices were asked", func(l *Lease) { l.Renewed = asked.Wall }, Others{}, ""},
		{"never renewed", func(l *Lease) { l.Renewed = time.Time{} }, Others{}, renewed},
		{"another Node of that name", nil, Others{Node: true}, "another Node has the holder's name"},
		{"a pod elsewhere of that name", held("n1"), Others{Pod: true}, "a pod of another node has the holder's name"},
	} {
		l := Lease{Namespace: "db", Name: "primary", Holder: "db-1", Renewed: asked.Wall.Add(-time.Minute),
			Seen: listed.Add(-time.Second)}
		if tc.edit != nil {
			tc.edit(&l)
		}
		p := decide.Proof{Node: "n1", Asked: asked, Since: listed, Pods: []action.Pod{
			{Namespace: "db", Name: "db-1"}, {Namespace: "shop", Name: "web-1"},
			{Namespace: "db", Name: "agent", Exempt: taint.ExemptDaemon},
			{Namespace: "db", Name: "static-n1", Exempt: taint.ExemptStatic},
		}}
		rules := []Rule{{"other", []string{"*"}}, {"db", []string{"primary", "shard-*"}}}
		if got := Refusal(l, p, rules, tc.others); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A pattern that does not parse matches nothing. The configuration refuses it.
func TestBadPattern(t *testing.T) {
	if isNamed(Lease{Namespace: "db", Name: "["}, []Rule{{"db", []string{"["}}}) {
		t.Error("got a match of a pattern that does not parse")
	}
}
