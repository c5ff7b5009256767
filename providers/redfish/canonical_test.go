package redfish

import (
	"strings"
	"testing"
)

// One BMC has one ID, however it is written: what compares IDs sees no two.
func TestCanonical(t *testing.T) {
	const system = "/redfish/v1/Systems/"
	for _, tt := range []struct {
		want, host, fault string
		ids               []string
	}{
		{want: "https://bmc2.example.net", host: "bmc2.example.net", ids: []string{
			"https://bmc2.example.net", "https://bmc2.example.net/", "HTTPS://BMC2.Example.NET:443/",
			"https://bmc2.example.net:0443", "https://bmc2.example.net.", "https://bmc2.example.net.:443/",
			"https://bmc2.example.net#",
		}},
		{want: "https://bmc2:8443", host: "bmc2", ids: []string{"https://bmc2:8443", "https://BMC2:08443/"}},
		{want: "https://[2001:db8::7]", host: "2001:db8::7",
			ids: []string{"https://[2001:db8::7]", "https://[2001:0DB8:0:0::7]:443/"}},
		{want: "https://192.0.2.7", host: "192.0.2.7",
			ids: []string{"https://192.0.2.7", "https://[::ffff:192.0.2.7]/", "https://192.0.2.7:443"}},
		{want: "http://127.0.0.1", host: "127.0.0.1", ids: []string{"http://127.0.0.1:80/", "HTTP://127.0.0.1"}},
		{want: "https://bmc2" + system + "1", host: "bmc2",
			ids: []string{"https://bmc2" + system + "1", "https://bmc2" + system + "1/",
				"https://bmc2" + system + "%31"}},
		// a path keeps its case
		{want: "https://bmc2" + system + "A", host: "bmc2", ids: []string{"https://bmc2" + system + "A"}},
		{fault: "is no address: write https://host[:port]",
			ids: []string{"", "bmc2", "https://", "https://.", "https:///x", "https://[fe80::1%25eth0]",
				"https://bmc 2", "https:bmc2"}},
		{fault: "has an invalid port: write https://host[:port]",
			ids: []string{"https://bmc2:0", "https://bmc2:65536"}},
		{fault: "has a path that is not /redfish/v1/Systems/<Id>",
			ids: []string{"https://bmc2//", "https://bmc2" + system + "%2e%2e", "https://bmc2" + system + "1%2FBios"}},
		{fault: "holds credentials: use username and passwordFile",
			ids: []string{"https://u@bmc2", "https://u:p@bmc2"}},
	} {
		for _, id := range tt.ids {
			got, hosts, err := NewConfig().CanonicalID(id)
			host := strings.Join(hosts, " ")
			if got != tt.want || host != tt.host || (err == nil) != (tt.fault == "") ||
				err != nil && err.Error() != tt.fault {
				t.Errorf("%q: got %q, host %q, error %v, want %q, host %q, error %q", id, got, host, err, tt.want,
					tt.host, tt.fault)
			}
			if again, _, err := NewConfig().CanonicalID(got); tt.fault == "" && (again != got || err != nil) {
				t.Errorf("%q: its canonical form %q reads %q, error %v", id, got, again, err)
			}
		}
	}
}

// Behind one BMC an ID is no address: it is never read as one.
func TestCanonicalBehindOneBMC(t *testing.T) {
	c := &Config{Address: "https://enclosure.example.net"}
	for id, want := range map[string]string{
		"437XR1138R2": "437XR1138R2", "1": "1", "": "", "https://elsewhere": "https://elsewhere",
		"11223344-5566-7788-99AA-BBCCDDEEFF00": "11223344-5566-7788-99aa-bbccddeeff00",
		"112233445566778899aabbccddeeff00":     "11223344-5566-7788-99aa-bbccddeeff00",
	} {
		if got, hosts, err := c.CanonicalID(id); got != want || len(hosts) > 0 || err != nil {
			t.Errorf("%q: got %q, hosts %q, error %v, want %q", id, got, hosts, err, want)
		}
	}
	if c.HasAddressIDs() || !NewConfig().HasAddressIDs() {
		t.Error("IDs are addresses where each machine has a BMC of its own, and only there")
	}
}
