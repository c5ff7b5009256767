package observe

import (
	"strconv"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/reason"
)

// answers reports what devices answered.
type answers struct {
	*subject
	fences *fences

	text  string // the last answers that were logged, for the fence
	fence string // that was open then; "": none was
	power string // as reported of a node that another client took out of service; "": nothing was
}

// reportAnswers reports what the devices answered.
func (n *answers) reportAnswers(all []providers.Answer) {
	n.reportChanges(all)
	n.reportFirstSignal()
}

// reportChanges reports answers that differ from those before, and the first ones after a fence. A fence's first step
// is the last question before its mark.
func (n *answers) reportChanges(all []providers.Answer) {
	id := ""
	if rec := n.course.Look().Record; rec.IsOpen() {
		id = rec.ID
	}
	if id == "" {
		n.fences.asked = questionOf(all)
		if n.fence != "" {
			n.text = ""
		}
	}
	n.fence = id
	text := ""
	for _, a := range all {
		text += a.State.String() + " " + a.Raw + " " + providers.ErrorClass(a.Err) + "\n"
	}
	if n.text == text {
		return
	}
	n.text = text
	n.fences.reportQuestion(questionOf(all))
	for i, d := range n.course.Devices() {
		a := all[i]
		args := []any{"node", n.name, "fence", id, "device", d.Name, "state", a.State.String(), "raw", a.Raw}
		if a.Err != nil {
			args = append(args, "error", a.Err)
		}
		n.Log.Info("Machine answered", args...)
	}
}

// reportOutOfService warns that another client took the node out of service while no device reports its machine off. It
// reports this once, and again if the machine's power changes.
func (n *answers) reportOutOfService() {
	if n.node == nil {
		return // healthy at the last look
	}
	client, found := taint.OutOfServiceByOther(n.node)
	answer := n.course.Answer()
	if found && answer.Got.IsZero() {
		return // the devices have not been asked yet
	}
	power := ""
	switch {
	case !found, answer.State == providers.PowerOff:
	case answer.State == providers.PowerOn:
		power = "its machine is on"
	default:
		power = "no device says that its machine is off"
	}
	before := n.power
	if n.power = power; power == "" || power == before {
		return
	}
	by := "a client that its managed fields no longer show set it"
	if client != "" {
		by = strconv.Quote(client) + " set it"
	}
	n.Log.Warn("Another client took a node out of service", "node", n.name, "client", client, "power", power)
	n.sendEvent(n.at, n.node, nil, reason.OutByOther, "Ask", "{detail}", by+", and "+power)
}

// reportFirstSignal records which signal first made the node suspect, if its machine is off. It reports once per node
// life, and not if a fence of that life, which may be ours, already exists.
func (n *answers) reportFirstSignal() {
	l := n.course.Look()
	if n.course.Answer().State != providers.PowerOff || l.Mark != nil || l.Record != nil && !l.IsAliveSince(l.Record) {
		return
	}
	var by fleet.Source
	var silent time.Duration
	n.Fleet(func(f *fleet.Fleet) { by, silent = f.FirstSuspicion(n.name, n.Now.Instant()) })
	if by == "" {
		return
	}
	n.Metrics.noticed.WithLabelValues(string(by)).Inc()
	if silent > 0 {
		n.Metrics.noticedAfter.Observe(silent.Seconds())
	}
	n.Log.Info("Noticed that a machine is off", "node", n.name, "by", string(by),
		"silent", silent.Round(time.Millisecond).String())
}
