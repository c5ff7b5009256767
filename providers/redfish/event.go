package redfish

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// eventReport is the part of a Redfish Event, or of what a BMC sends instead, that is read.
type eventReport struct {
	Events       eventRecords
	MetricValues present // a MetricReport's, which reports no change
}

// eventRecords are a report's events, up to eventBurst; a longer report counts as unknown.
type eventRecords []eventRecord

// UnmarshalJSON skips parts with an unexpected shape.
func (r *eventRecords) UnmarshalJSON(b []byte) error {
	if !bytes.HasPrefix(b, []byte("[")) {
		return nil
	}
	if err := eachOf(b, func(e json.RawMessage) bool {
		var one eventRecord
		_ = json.Unmarshal(e, &one)
		*r = append(*r, one)
		return len(*r) <= eventBurst
	}); err != nil || len(*r) > eventBurst {
		*r = nil // as no event that is known
	}
	return nil
}

// present reports that a property exists, whatever it holds.
type present bool

// UnmarshalJSON implements json.Unmarshaler.
func (p *present) UnmarshalJSON([]byte) error {
	*p = true
	return nil
}

type eventRecord struct {
	MessageId         string //nolint:revive // Redfish's name
	OriginOfCondition links
}

// parseEvent parses what a BMC sent, without parts of an unexpected shape. ok is false if it is no JSON object.
func parseEvent(data []byte) (r eventReport, ok bool) {
	err := json.Unmarshal(data, &r)
	var shape *json.UnmarshalTypeError // the other parts were read
	return r, err == nil || errors.As(err, &shape)
}

// messageName returns a message's name in its registry, without the registry's name and version.
func (r eventRecord) messageName() string {
	return r.MessageId[strings.LastIndexByte(r.MessageId, '.')+1:]
}

// powerState returns what a message's name means for a system's power. known is false for all other messages: then the
// BMC is asked. whole is true if the message can only be about a system, not a part that OriginOfCondition names.
func (r eventRecord) powerState() (state providers.PowerState, whole, known bool) {
	switch r.messageName() {
	case "ResourcePoweredOff": // ResourceEvent, of the DMTF
		return providers.PowerOff, false, true
	case "ResourcePoweringOff":
		return providers.PowerChanging, false, true
	case "ResourcePoweredOn":
		return providers.PowerOn, false, true
	case "DCPowerOff", // OpenBMC
		"ServerPoweredOff": // iLOEvents, of HPE
		return providers.PowerOff, true, true
	case "SYS1001": // IDRAC, of Dell: System is turning off
		return providers.PowerChanging, true, true
	case "DCPowerOn", "ServerPoweredOn":
		return providers.PowerOn, true, true
	}
	return providers.PowerUnknown, false, false
}

// isHeartbeat reports whether the message only says that events work.
func (r eventRecord) isHeartbeat() bool { return r.messageName() == "RedfishServiceFunctional" }
