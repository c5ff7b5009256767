package main

import (
	"fmt"
	"os"

	"github.com/forcefence/forcefence/test/datacenter"
)

// devices are what forcefence asks about the machines, and may be told by. Each kind is one type here; a lab is made with one.
type devices interface {
	// add puts a device in front of a machine and returns its name for the annotation bmcAnnotation of the machine's Node. What the
	// machine does later the device learns from its OnChange.
	add(m *datacenter.Machine) (name string, err error)
	// config are the keys providers and nodes of the configuration file.
	config() (string, error)
	// close ends what add began, and waits.
	close()
}

// redfish gives each machine a BMC of its own, which is only ever asked.
type redfish struct {
	dc     *datacenter.DataCenter
	folder string // for the password and the authority's certificate
}

func (d redfish) add(m *datacenter.Machine) (string, error) { return d.dc.AddBMC(m).URL(), nil }

func (d redfish) config() (string, error) {
	password, ca := d.folder+"/bmc-password", d.folder+"/bmc-ca.pem"
	if err := os.WriteFile(password, []byte(d.dc.Password()+"\n"), 0o600); err != nil {
		return "", err
	}
	if err := d.dc.WriteCA(ca); err != nil {
		return "", err
	}
	return fmt.Sprintf(`providers:
- name: racks
  timeout: 2s
  redfish: {username: %s, passwordFile: %q, caFile: %q}
nodes:
- name: workers
  provider: racks
  machine: {from: annotation, annotation: %s}
`, d.dc.Username(), password, ca, bmcAnnotation), nil
}

func (redfish) close() {} // the data centre's Close does it
