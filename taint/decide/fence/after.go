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

// AfterFence says what becomes of a machine that a power-off of ours turned off, once its fence is done. The zero value leaves it off.
type AfterFence struct {
	PowerOn bool
	Delay   time.Duration // from the fence's end
	PerDay  int           // how many power-ons of one node may be announced within 24 h
	Again   time.Duration // a node that needs fencing again so soon after a power-on stays off. At most 24 h
}

// PowerOns is what one process remembers of the power-on that it announced. The zero value announced none.
type PowerOns struct {
	Announced time.Time         // the one that this process wrote down and has not sent yet; zero: there is none
	Err       error             // why a device did not accept the last one that was sent; nil: all did
	LastOn    providers.Instant // when the question was sent whose answer was the last On; zero: none in this node life
}

// SentOn folds in that the power-on was sent, and how the devices took it.
func (p *PowerOns) SentOn(err error) { p.Announced, p.Err = time.Time{}, err }

// booting is how much longer a machine that we powered on is left to boot: that long nothing new is begun about its node, whose silence is
// explained, and whose device's Off may be of the moment before. Zero: it is not.
func (v View) booting() time.Duration {
	r := v.Look.Record
	if r == nil || r.After != taint.AfterPowerOn && r.After != taint.AfterPoweredOn {
		return 0
	}
	return max(v.Facts.Retry-v.age(r.LastPowerOn()), 0)
}

// afterwards is what becomes of the machine of a node whose fence is done, that has shown no life since, and on which nothing is left to
// do. It is powered on only if a power-off of ours turned it off, and nobody has turned it on since.
func (v View) afterwards() action.Decision {
	rec := v.Look.Record
	rests := action.Decision{Action: action.Wait{}, Reason: reason.StaysDead, RequeueAfter: recheck}
	if !v.Facts.After.PowerOn || v.Facts.Mode != Fence || len(rec.OffBy) == 0 || rec.Vouched() {
		return rests
	}
	switch rec.After {
	case "", taint.AfterPowerOn:
	case taint.AfterPoweredOn:
		if left := v.booting(); left > 0 {
			return action.Decision{Action: action.Wait{}, Reason: reason.CameUp, RequeueAfter: left}
		}
		return action.Decision{Action: action.Wait{}, Reason: reason.NotBack, RequeueAfter: recheck}
	default:
		return rests
	}
	last := rec.LastPowerOn()
	places, why := v.turnedOff()
	switch left := v.Facts.After.Delay - v.age(rec.At); {
	case rec.After == "" && !last.IsZero() && rec.Since.Sub(last) < v.Facts.After.Again:
		return v.becomes(taint.AfterFencedAgain, reason.FencedAgain)
	case v.Facts.KeptOn != "":
		return action.Decision{
			Action: action.Wait{}, Reason: reason.PowerOnHeldUp, Detail: v.Facts.KeptOn, RequeueAfter: recheck,
		}
	case left > 0:
		return action.Decision{Action: action.Wait{}, Reason: reason.PowerOnDelay, RequeueAfter: left}
	case why != "":
		return action.Decision{Action: action.Wait{}, Reason: reason.PowerOnHeldUp, Detail: why, RequeueAfter: recheck}
	case !v.Answers.Answer.At.After(v.when(rec.At)), v.Fleet.OnAt.After(v.Answers.Answer.Got):
		return action.Decision{Action: action.Ask{}, Reason: reason.Asking}
	case v.Memory.PowerOns.LastOn.After(v.when(rec.At)) && rec.After == "":
		return v.becomes(taint.AfterCameOn, reason.CameOn)
	case v.Memory.PowerOns.LastOn.After(v.when(rec.At)):
		return v.becomes(taint.AfterPoweredOn, reason.CameUp)
	}
	if now := v.Answers.RunNow(rec); rec.After == "" && rec.Run != "" && now != "" && now != rec.Run { // off again
		return v.becomes(taint.AfterCameOn, reason.CameOn)
	}
	mine := !v.Memory.PowerOns.Announced.IsZero() && v.Memory.PowerOns.Announced.Equal(last) && v.booting() > 0
	switch {
	case v.booting() > 0 && !mine: // sent, by us or by a leader before, who may have died in between: it is looked at, and not repeated
		d := v.askEvery(pollOn, reason.PoweringOn)
		if v.Memory.PowerOns.Err != nil {
			d.Reason, d.Detail = reason.PowerOnRefused, providers.Cause(v.Memory.PowerOns.Err)
		}
		return d
	case v.state() == providers.PowerChanging:
		return v.askEvery(pollChanging, reason.Changing)
	case v.state() != providers.PowerOff:
		return v.askEvery(v.Answers.Backoff(), reason.Unknown)
	case len(places) == 0 && rec.After != "": // what it was turned off through is on
		return v.askEvery(pollMax, reason.NotBack)
	case len(places) == 0:
		return v.askEvery(pollMax, reason.Unknown)
	case v.tooOld():
		return action.Decision{Action: action.Ask{}, Reason: reason.Asking}
	}
	if !mine {
		of := rec.PowerOnsOf(v.Now.Wall)
		if v.age(last) >= taint.Day { // by a clock that ran ahead all of them would count for longer
			of = nil
		}
		if len(of) >= v.Facts.After.PerDay {
			return action.Decision{
				Action: action.Wait{}, Reason: reason.PowerOnLimit, RequeueAfter: recheck,
				Detail: fmt.Sprintf("%d times in the last 24 hours", len(of)),
			}
		}
		return action.Decision{Action: action.Write{Record: rec.AnnouncePowerOn(of, v.Now.Wall)},
			Reason: reason.PoweringOn}
	}
	if v.Look.Got.Age(v.Now) > proof.TTL || !v.Look.Sent.After(v.Answers.Answer.Got) {
		return v.lookAgain()
	}
	return action.Decision{Action: action.PowerOn{Devices: places}, Reason: reason.PoweringOn}
}

// becomes writes down what became of the machine.
func (v View) becomes(after taint.After, why reason.Reason) action.Decision {
	rec := *v.Look.Record
	rec.After = after
	return action.Decision{Action: action.Write{Record: rec}, Reason: why}
}

// turnedOff are the places of the devices that the machine was turned off through and that say Off, those that feed it first: a BMC may
// need that power itself. why is "" or what keeps it from being powered on through them.
func (v View) turnedOff() (places []int, why string) {
	for _, by := range v.Look.Record.OffBy {
		i := slices.IndexFunc(v.Facts.Devices, func(d proof.Device) bool {
			return d.Name == by.Device && by.Machine != nil && d.Machine == *by.Machine
		})
		switch {
		case i < 0:
			return nil, fmt.Sprintf("it was turned off through %s, which does not speak for the node's machine any more", by.Device)
		case v.Facts.Devices[i].NoPower != "":
			return nil, v.Facts.Devices[i].NoPower
		case v.Answers.State(i) == providers.PowerOff:
			places = append(places, i)
		}
	}
	slices.SortStableFunc(places, func(a, b int) int {
		switch {
		case v.Facts.Devices[a].Feeds == v.Facts.Devices[b].Feeds:
			return 0
		case v.Facts.Devices[a].Feeds:
			return -1
		default:
			return 1
		}
	})
	return places, ""
}
