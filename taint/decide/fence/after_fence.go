package fence

import (
	"fmt"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// AfterFence says what to do with a machine that a power-off of ours turned off, once its fence is done. The zero value
// leaves it off.
type AfterFence struct {
	PowerOn bool
	Delay   time.Duration // from the fence's end
	PerDay  int           // how many power-ons of one node may be announced within 24 h
	Again   time.Duration // a node that needs fencing again within this time after a power-on stays off; at most 24 h
}

// PowerOns is what one process remembers of the power-on that it announced. The zero value announced none.
type PowerOns struct {
	Announced time.Time         // the power-on that this process wrote down and has not sent yet; zero: none
	Err       error             // why a device did not accept the last power-on sent; nil: all did
	LastOn    providers.Instant // when the question behind the last On answer was sent; zero: none in this node life
}

// ApplySent folds in that the power-on was sent; err is why a device did not accept it, or nil.
func (p *PowerOns) ApplySent(err error) { p.Announced, p.Err = time.Time{}, err }

// bootTimeLeft returns how much boot time is left for a machine that we powered on; zero if there is none. Nothing new
// begins for its node in that time: its silence is explained, and its device's Off may be from before the power-on.
func (v View) bootTimeLeft() time.Duration {
	r := v.Look.Record
	if r == nil || r.AfterFence != taint.AfterFencePowerOn && r.AfterFence != taint.AfterFencePoweredOn {
		return 0
	}
	return max(v.Facts.Retry-v.ageOf(r.LastPowerOn()), 0)
}

// decideAfterFence decides what to do with the machine of a node whose fence is done, without a sign of life since and
// without work left. It is powered on only if a power-off of ours turned it off and it was not turned on since.
func (v View) decideAfterFence() action.Decision {
	rec := v.Look.Record
	rests := action.Decision{Action: action.Wait{}, Reason: reason.StaysDead, RequeueAfter: recheckEvery}
	if !v.Facts.AfterFence.PowerOn || v.Facts.EffectiveMode() != Fence || len(rec.OffBy) == 0 || rec.IsVouchedFor() {
		return rests
	}
	switch rec.AfterFence {
	case "", taint.AfterFencePowerOn:
	case taint.AfterFencePoweredOn:
		if left := v.bootTimeLeft(); left > 0 {
			return action.Decision{Action: action.Wait{}, Reason: reason.CameUp, RequeueAfter: left}
		}
		return action.Decision{Action: action.Wait{}, Reason: reason.NotBack, RequeueAfter: recheckEvery}
	default:
		return rests
	}
	last := rec.LastPowerOn()
	places, why := v.devicesToPowerOn()
	switch left := v.Facts.AfterFence.Delay - v.ageOf(rec.At); {
	case rec.AfterFence == "" && !last.IsZero() && rec.Since.Sub(last) < v.Facts.AfterFence.Again:
		return v.recordOutcome(taint.AfterFenceFencedAgain, reason.FencedAgain)
	case v.Facts.KeptOn != "":
		return action.Decision{
			Action: action.Wait{}, Reason: reason.PowerOnHeldUp, Detail: v.Facts.KeptOn, RequeueAfter: recheckEvery,
		}
	case left > 0:
		return action.Decision{Action: action.Wait{}, Reason: reason.PowerOnDelay, RequeueAfter: left}
	case why != "":
		return action.Decision{
			Action: action.Wait{}, Reason: reason.PowerOnHeldUp, Detail: why, RequeueAfter: recheckEvery,
		}
	case !v.Answers.Answer.At.After(v.instantOf(rec.At)), v.Fleet.OnAt.After(v.Answers.Answer.Got):
		return action.Decision{Action: action.AskDevices{}, Reason: reason.Asking}
	case v.Memory.PowerOns.LastOn.After(v.instantOf(rec.At)) && rec.AfterFence == "":
		return v.recordOutcome(taint.AfterFenceCameOn, reason.CameOn)
	case v.Memory.PowerOns.LastOn.After(v.instantOf(rec.At)):
		return v.recordOutcome(taint.AfterFencePoweredOn, reason.CameUp)
	}
	// It is off again.
	if now := v.Answers.RunNow(rec); rec.AfterFence == "" && rec.Run != "" && now != "" && now != rec.Run {
		return v.recordOutcome(taint.AfterFenceCameOn, reason.CameOn)
	}
	mine := !v.Memory.PowerOns.Announced.IsZero() && v.Memory.PowerOns.Announced.Equal(last) && v.bootTimeLeft() > 0
	switch {
	// It was sent by this process, or by a previous leader, which may have died in between. It is observed, and not
	// repeated.
	case v.bootTimeLeft() > 0 && !mine:
		d := v.askEvery(pollOn, reason.PoweringOn)
		if v.Memory.PowerOns.Err != nil {
			d.Reason, d.Detail = reason.PowerOnRefused, providers.ErrorCause(v.Memory.PowerOns.Err)
		}
		return d
	case v.powerState() == providers.PowerChanging:
		return v.askEvery(pollChanging, reason.Changing)
	case v.powerState() != providers.PowerOff:
		return v.askEvery(v.Answers.Backoff(), reason.Unknown)
	case len(places) == 0 && rec.AfterFence != "": // the device that turned it off reports On
		return v.askEvery(pollMax, reason.NotBack)
	case len(places) == 0:
		return v.askEvery(pollMax, reason.Unknown)
	case v.isOffTooOld():
		return action.Decision{Action: action.AskDevices{}, Reason: reason.Asking}
	}
	if !mine {
		of := rec.PowerOnsOf(v.Now.Wall)
		// By a clock that ran ahead, all of them would count for longer.
		if v.ageOf(last) >= taint.Day {
			of = nil
		}
		if len(of) >= v.Facts.AfterFence.PerDay {
			return action.Decision{
				Action: action.Wait{}, Reason: reason.PowerOnLimit, RequeueAfter: recheckEvery,
				Detail: fmt.Sprintf("%d times in the last 24 hours", len(of)),
			}
		}
		return action.Decision{Action: action.WriteRecord{Record: rec.AnnouncePowerOn(of, v.Now.Wall)},
			Reason: reason.PoweringOn}
	}
	if v.Look.Got.Age(v.Now) > proof.TTL || !v.Look.Sent.After(v.Answers.Answer.Got) {
		return v.lookAgain()
	}
	return action.Decision{Action: action.PowerOn{Devices: places}, Reason: reason.PoweringOn}
}

// recordOutcome writes down what became of the machine.
func (v View) recordOutcome(outcome taint.AfterFence, why reason.Reason) action.Decision {
	rec := *v.Look.Record
	rec.AfterFence = outcome
	return action.Decision{Action: action.WriteRecord{Record: rec}, Reason: why}
}

// devicesToPowerOn returns the indexes of the devices that turned the machine off and now answer Off, those that feed
// it first: a BMC may need that power itself. why is "" or the reason that forbids powering it on through them.
func (v View) devicesToPowerOn() (places []int, why string) {
	var others []int
	for _, by := range v.Look.Record.OffBy {
		i := slices.IndexFunc(v.Facts.Devices, func(d proof.Device) bool {
			return d.Name == by.Device && by.Machine != nil && d.Machine == *by.Machine
		})
		switch {
		case i < 0:
			return nil, fmt.Sprintf(
				"it was powered off through %s, which no longer speaks for the node's machine", by.Device)
		case v.Facts.Devices[i].NoPower != "":
			return nil, v.Facts.Devices[i].NoPower
		case v.Answers.State(i) != providers.PowerOff:
		case v.Facts.Devices[i].Feeds:
			places = append(places, i)
		default:
			others = append(others, i)
		}
	}
	return append(places, others...), ""
}
