package redfish

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// eventReport is an Event of Redfish, or what a BMC sends in its place, as far as it is looked at.
type eventReport struct {
	Events       eventRecords
	MetricValues present // a MetricReport's: it tells of no change
}

// eventRecords are as many of a report's events as are read at once. Of more than that nobody knows what they are.
type eventRecords []eventRecord

// UnmarshalJSON passes over parts of a shape that is not expected.
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

// present tells that a property is there, whatever it holds.
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

// parseEvent reads what a BMC sent. ok is false where it is no JSON object: something happened, nobody knows what. Parts of a shape that
// is not expected are passed over.
func parseEvent(data []byte) (r eventReport, ok bool) {
	err := json.Unmarshal(data, &r)
	var shape *json.UnmarshalTypeError // the other parts were read
	return r, err == nil || errors.As(err, &shape)
}

// messageName is the message's in its registry, whose maker and version come before it.
func (r eventRecord) messageName() string {
	return r.MessageId[strings.LastIndexByte(r.MessageId, '.')+1:]
}

// powerState is what a message says of a system's power by its name. known is false of
// all others: the BMC is asked. whole is true where the message can be of nothing but a system, and false where OriginOfCondition says what
// it is of.
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

// isHeartbeat tells whether the message only says that events work.
func (r eventRecord) isHeartbeat() bool { return r.messageName() == "RedfishServiceFunctional" }
