package metal3

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// address is a BMC's, in the words of the type that asks it.
type address struct {
	ipmi      bool   // of the type ipmi, else redfish
	id        string // a target's ID there
	privilege string // of ipmi
}

// redfishDrivers are the drivers of the baremetal-operator that speak Redfish.
var redfishDrivers = []string{
	"redfish", "redfish-virtualmedia", "redfish-uefihttp", "ilo5-redfish", "ilo5-virtualmedia", "idrac-redfish",
	"idrac-virtualmedia",
}

// parseAddress reads spec.bmc.address as the baremetal-operator does (pkg/hardwareutils/bmc): the scheme is the driver,
// and without a scheme it is ipmi. Its errors do not repeat the address, which may hold a password.
func parseAddress(text string) (address, error) {
	fail := func(why string) (address, error) {
		return address{}, providers.Errorf(providers.ErrPermanent, "the BareMetalHost's spec.bmc.address %s", why)
	}
	u, err := url.Parse(text)
	switch {
	case text == "":
		return fail("is missing")
	case err == nil && u.Opaque != "": // ipmi:10.0.0.7
		u, err = url.Parse(strings.Replace(text, ":", "://", 1))
	case err != nil && strings.Contains(text, "://"):
	case err != nil || u.Scheme == "" && u.Host == "": // 10.0.0.7:623, or a host alone
		u, err = url.Parse("ipmi://" + text)
	}
	if err != nil {
		return fail("cannot be read")
	}
	if u.User != nil {
		return fail("holds credentials: Metal3 reads them from the Secret")
	}
	driver, plain, _ := strings.Cut(cmp.Or(u.Scheme, "ipmi"), "+")
	switch {
	case u.Host == "":
		return fail("names no host")
	case driver == "ipmi" && plain == "":
		privilege := strings.ToLower(u.Query().Get("privilegelevel"))
		if !slices.Contains([]string{"user", "operator", "administrator"}, privilege) {
			privilege = "operator" // enough to change the power
		}
		return address{ipmi: true, id: "ipmi://" + u.Host, privilege: privilege}, nil
	case slices.Contains(redfishDrivers, driver) && slices.Contains([]string{"", "http", "https"}, plain):
		path := strings.TrimSuffix(u.EscapedPath(), "/")
		if path == "/redfish/v1" { // the service, and no system
			path = ""
		}
		return address{id: cmp.Or(plain, "https") + "://" + u.Host + path}, nil
	}
	return fail("has a driver that forcefence does not speak: use ipmi, " + strings.Join(redfishDrivers, ", ") +
		", or give the node another device")
}
