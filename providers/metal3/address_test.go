package metal3

import (
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	ipmi := func(id string) address { return address{ipmi: true, id: id, privilege: "operator"} }
	tests := []struct {
		text string
		want address
		err  string
	}{
		{"10.0.0.7", ipmi("ipmi://10.0.0.7"), ""},
		{"10.0.0.7:6230", ipmi("ipmi://10.0.0.7:6230"), ""},
		{"bmc7.example.net", ipmi("ipmi://bmc7.example.net"), ""},
		{"[fe80::1]:6230", ipmi("ipmi://[fe80::1]:6230"), ""},
		{"ipmi://10.0.0.7:6230", ipmi("ipmi://10.0.0.7:6230"), ""},
		{"ipmi:10.0.0.7", ipmi("ipmi://10.0.0.7"), ""},
		{"ipmi://10.0.0.7?privilegelevel=ADMINISTRATOR",
			address{ipmi: true, id: "ipmi://10.0.0.7", privilege: "administrator"}, ""},
		{"ipmi://10.0.0.7?privilegelevel=OEM", ipmi("ipmi://10.0.0.7"), ""},
		{"redfish://10.0.0.7/redfish/v1/Systems/1", address{id: "https://10.0.0.7/redfish/v1/Systems/1"}, ""},
		{"redfish://10.0.0.7/redfish/v1/Systems/1/", address{id: "https://10.0.0.7/redfish/v1/Systems/1"}, ""},
		{"redfish+http://10.0.0.7:8000", address{id: "http://10.0.0.7:8000"}, ""},
		{"redfish+https://10.0.0.7/redfish/v1/", address{id: "https://10.0.0.7"}, ""},
		{"redfish-virtualmedia+http://10.0.0.7/redfish/v1/Systems/a",
			address{id: "http://10.0.0.7/redfish/v1/Systems/a"}, ""},
		{"idrac-virtualmedia://[fe80::1]/redfish/v1/Systems/System.Embedded.1",
			address{id: "https://[fe80::1]/redfish/v1/Systems/System.Embedded.1"}, ""},
		{"ilo5-virtualmedia://10.0.0.7/redfish/v1/Systems/1", address{id: "https://10.0.0.7/redfish/v1/Systems/1"}, ""},
		{"redfish-uefihttp://10.0.0.7", address{id: "https://10.0.0.7"}, ""},

		{"", address{}, "is missing"},
		{"redfish+ftp://10.0.0.7", address{}, "does not speak"},
		{"ipmi+http://10.0.0.7", address{}, "does not speak"},
		{"irmc://10.0.0.7", address{}, "does not speak"},
		{"ilo5://10.0.0.7", address{}, "does not speak"},
		{"libvirt://10.0.0.7:6230", address{}, "does not speak"},
		{"https://10.0.0.7", address{}, "does not speak"},
		{"redfish://", address{}, "names no host"},
		{"redfish://user:secret@10.0.0.7", address{}, "holds credentials"},
		{"user:secret@10.0.0.7", address{}, "holds credentials"},
		{"redfish://10.0.0.7:x", address{}, "cannot be read"},
	}
	for _, tt := range tests {
		got, err := parseAddress(tt.text)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: got %+v, %v; want %+v, %q", tt.text, got, err, tt.want, tt.err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error repeats a password: %v", tt.text, err)
		}
	}
}
