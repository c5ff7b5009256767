// Package all is the single list of provider types. It imports every type. Only the readers of the configuration import
// it.
package all

import (
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/cloudtaint"
	"github.com/forcefence/forcefence/providers/confirm"
	"github.com/forcefence/forcefence/providers/container"
	"github.com/forcefence/forcefence/providers/ec2"
	"github.com/forcefence/forcefence/providers/fenceagent"
	"github.com/forcefence/forcefence/providers/ipmi"
	"github.com/forcefence/forcefence/providers/kubevirt"
	"github.com/forcefence/forcefence/providers/libvirt"
	"github.com/forcefence/forcefence/providers/metal3"
	"github.com/forcefence/forcefence/providers/pdu"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/providers/rest"
	"github.com/forcefence/forcefence/providers/vsphere"
)

// Types returns all provider types.
func Types() providers.Registry {
	return append(rest.Types(), providers.Registry{
		cloudtaint.Type(),
		confirm.Type(),
		container.Type(),
		ec2.Type(),
		fenceagent.Type(),
		ipmi.Type(),
		kubevirt.Type(),
		libvirt.Type(),
		metal3.Type(),
		pdu.Type(),
		redfish.Type(),
		vsphere.Type(),
	}...)
}
