package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/taint/reason"
)

func TestBanners(t *testing.T) {
	ago := func(d time.Duration) *time.Time { return new(now.Add(-d)) }
	leads := Leader{
		Lease: "kube-system/forcefence", Namespace: "home", Holder: "ff-1", Renewed: ago(time.Second), Leads: true,
	}
	gone, stopped := leads, leads
	gone.Leads, gone.Renewed, gone.ConfigRejected = false, ago(3*time.Minute), "mode: missing"
	stopped.Leads, stopped.Holder, stopped.Renewed, stopped.Namespace = false, "", nil, ""
	rejects := leads
	rejects.ConfigRejected = "config.yaml:3: mode: missing."
	asks := leads
	asks.ConfigRejected = `config.yaml:3: nodes[0].provider: no such provider: did you mean "racks"?`
	const away = "Nothing is fenced, and what is shown may be stale."
	const pods = "Look at the controller's pods:"
	const describe = "kubectl -n home describe pods -l app.kubernetes.io/name=forcefence"
	for _, tt := range []struct {
		name string
		c    Cluster
		want []Banner
	}{
		{"nothing was read", Cluster{}, nil},
		{"all is well", Cluster{Controller: &leads}, nil},
		{"no controller was installed", Cluster{Controller: &Leader{}},
			[]Banner{{PartController, "No controller leads", "No controller has created its Lease in this cluster: " +
				"forcefence is not installed, or its pods do not start. Nothing is fenced.",
				"Look at the pods in its namespace. Before an installation: forcefence check --before-install.", ""}}},
		{"the leader is gone, and with it what it rejected", Cluster{Controller: &gone},
			[]Banner{{PartController, "No controller leads", "Lease kube-system/forcefence was renewed 3 min ago, by " +
				"ff-1. It belongs to the installation in namespace home. " + away, pods, describe}}},
		{"the leader has stopped, in an unknown namespace", Cluster{Controller: &stopped},
			[]Banner{{PartController, "No controller leads", "Lease kube-system/forcefence has no holder. " + away,
				pods, "kubectl describe pods -A -l app.kubernetes.io/name=forcefence"}}},
		{
			"paused, with a rejected configuration", Cluster{
				Controller: &rejects, Paused: `ConfigMap home/forcefence-pause: "switches"`,
			},
			[]Banner{
				{PartPause, "Fencing is paused for all nodes", `by ConfigMap home/forcefence-pause: "switches". ` +
					"No power-off, mark or policy action begins; a fence in progress continues.",
					"To end the pause:", "forcefence resume"},
				{PartConfiguration, "The changed configuration is rejected",
					"config.yaml:3: mode: missing. The previous file stays in force.",
					"forcefence check-config --skip-files FILE prints every fault with its line. Correct the file: forcefence " +
						"reads it again by itself.", ""},
			},
		},
		{"a rejected configuration, whose fault is a question", Cluster{Controller: &asks},
			[]Banner{{PartConfiguration, "The changed configuration is rejected",
				asks.ConfigRejected + " The previous file stays in force.",
				PlainRemedy(reason.ConfigRejected), ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.c.Banners(now)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestFormatAge(t *testing.T) {
	for age, want := range map[time.Duration]string{
		-time.Minute: "<1 min ago", 59 * time.Second: "<1 min ago", 119 * time.Second: "1 min ago",
		59 * time.Minute: "59 min ago", time.Hour: "1 h ago", 47 * time.Hour: "47 h ago", 48 * time.Hour: "2 days ago",
	} {
		if got := FormatAge(now.Add(-age), now); got != want {
			t.Errorf("%s: got %q, want %q", age, got, want)
		}
	}
}

// Of a Lease whose duration is over it is not said that its holder leads.
func TestDescribeLeader(t *testing.T) {
	renewed := now.Add(-17 * time.Second)
	late := &Leader{Lease: "kube-system/forcefence", Holder: "ff-1", Renewed: &renewed, Leads: true, Late: true,
		Until: new(renewed.Add(15 * time.Second))}
	inTime := *late
	inTime.Late = false
	for want, l := range map[string]*Leader{
		"Controller ff-1 led until 11:59:58 UTC (Lease kube-system/forcefence, renewed 17s ago): it may be gone, or " +
			"clocks differ": late,
		"Controller ff-1 leads (Lease kube-system/forcefence, renewed 17s ago)": &inTime,
		"Controller ff-1 leads": {Holder: "ff-1", Leads: true},
	} {
		if got := l.Describe(now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
