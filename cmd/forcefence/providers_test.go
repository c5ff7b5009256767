package main

import (
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers/all"
)

func TestProviders(t *testing.T) {
	for _, tc := range []struct {
		name   string
		args   []string
		status int
		want   []string // words of the output, or of the error
		not    string
	}{
		{name: "all",
			want: []string{"TYPE ", "\nlibvirt ", "\nredfish ", " PowerState of the system is Off"}, not: "session"},
		{name: "one", args: []string{"libvirt"},
			want: []string{"libvirt\n", "the domain's UUID", "reports changes by itself: yes"}, not: "redfish\n"},
		{name: "as -o name prints it", args: []string{"provider/redfish"},
			want: []string{"redfish\n", "off means: PowerState of the system is Off", "auth", "session",
				"certificates that no trusted authority signed"}},
		{name: "a slip", args: []string{"redfisch"}, status: 2,
			want: []string{`no provider type "redfisch": did you mean "redfish"?`}},
		{name: "none such", args: []string{"abacus"}, status: 2,
			want: []string{`no provider type "abacus": known are `, "libvirt, "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, err strings.Builder
			status := run(append([]string{"providers"}, tc.args...), all.Types(), &out, &err)
			got := out.String() + err.String()
			if status != tc.status || tc.not != "" && strings.Contains(got, tc.not) {
				t.Errorf("got status %d, want %d, and no %q:\n%s", status, tc.status, tc.not, got)
			}
			for _, w := range tc.want {
				if !strings.Contains(got, w) {
					t.Errorf("got no %q in\n%s", w, got)
				}
			}
		})
	}
}
