package proof

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// ErrDisagree is the verdict of levels that contradict each other. It never becomes a proof, however long it lasts.
var ErrDisagree = fmt.Errorf("%w: its devices disagree", providers.ErrPermanent)

// verdictOf returns the combined verdict of the answers. For one device it is its answer, for one level the combination
// of all its devices. For several levels it is the first verdict with information, unless another level contradicts it.
func verdictOf(of []deviceAnswer) providers.Answer {
	if len(of) == 0 {
		return providers.Answer{}
	}
	if len(of) == 1 {
		return of[0].answer
	}
	var levels []deviceAnswer
	for _, s := range of { // a level with two devices is there twice, which changes nothing
		same := slices.DeleteFunc(slices.Clone(of), func(o deviceAnswer) bool {
			return o.device.Level != s.device.Level
		})
		levels = append(levels, deviceAnswer{
			device: Device{
				Level: s.device.Level,
				Feeds: !slices.ContainsFunc(same, func(o deviceAnswer) bool { return !o.device.Feeds }),
			},
			answer: verdictOfLevel(same),
		})
	}
	out := verdictOfLevels(levels)
	var raw []string
	for _, s := range of {
		raw = append(raw, s.device.Name+": "+answerText(s.answer))
		if s.answer.Got.After(out.Got) {
			out.Got = s.answer.Got
		}
	}
	out.Raw = strings.Join(raw, ", ")
	if errors.Is(out.Err, ErrDisagree) {
		out.Err = fmt.Errorf("%w: %s", ErrDisagree, out.Raw)
	}
	return out
}

// answerText returns a device's answer in words, for a person.
func answerText(a providers.Answer) string {
	switch {
	case a.Err != nil:
		return providers.ErrorClass(a.Err)
	case a.Raw != "":
		return a.Raw
	default:
		return a.State.String()
	}
}

// verdictOfLevels returns the verdict over levels: the first with information, unless one answers Off and another On,
// which is a disagreement. If one answers Off and another that the machine is changing, it is changing. On of a device
// that feeds the machine counts only while no other level has information: a machine that was shut down has power.
func verdictOfLevels(levels []deviceAnswer) providers.Answer {
	known := slices.DeleteFunc(slices.Clone(levels), func(s deviceAnswer) bool {
		return s.answer.State == providers.PowerUnknown
	})
	if len(known) == 0 {
		return levels[0].answer
	}
	runs := slices.DeleteFunc(slices.Clone(known), func(s deviceAnswer) bool {
		return s.device.Feeds && s.answer.State == providers.PowerOn
	})
	if len(runs) == 0 {
		return known[0].answer
	}
	off, on, changing := indexOfState(runs, providers.PowerOff), indexOfState(runs, providers.PowerOn),
		indexOfState(runs, providers.PowerChanging)
	switch {
	case off >= 0 && on >= 0:
		out := runs[off].answer
		out.State, out.Err = providers.PowerUnknown, ErrDisagree
		return out
	case off >= 0 && changing >= 0:
		return runs[changing].answer
	default:
		return runs[0].answer
	}
}

// IsDecided reports whether the answers so far decide the verdict, so that the missing ones (zero Answers) need not be
// awaited. An Off decides: it grows old, and most of TTL must be left to act on it. A disagreement decides, because no
// further answer settles it. So does what a device knows of the machine itself. The On of a device that feeds the
// machine does not, because another device may still answer Off. On proves nothing, so nothing is lost by waiting. Part
// of a level does not decide either.
func IsDecided(devices []Device, answers []providers.Answer) bool {
	var a Answers
	a.SetDevices(devices...)
	a.ApplyAnswers(answers...)
	switch a.Answer.State {
	case providers.PowerOff:
		return true
	case providers.PowerOn, providers.PowerChanging:
		return slices.ContainsFunc(a.lastAnswers, deviceAnswer.knowsMachine)
	default:
		return a.HasDisagreement()
	}
}

// indexOfState returns the index of the first answer with that state; negative if there is none.
func indexOfState(all []deviceAnswer, what providers.PowerState) int {
	return slices.IndexFunc(all, func(s deviceAnswer) bool { return s.answer.State == what })
}

// verdictOfLevel returns the verdict over one level. Its age counts from when the first question was sent. It proves
// nothing until every device has answered. Off requires all devices. They speak of different parts, such as the two
// outlets that feed a server, so one Off does not contradict one On.
func verdictOfLevel(of []deviceAnswer) providers.Answer {
	out := of[0].answer
	if len(of) == 1 {
		return out
	}
	count := map[providers.PowerState]int{}
	for _, s := range of {
		count[s.answer.State]++
		if s.answer.At.Before(out.At) {
			out.At = s.answer.At
		}
		if out.Err == nil {
			out.Err = s.answer.Err
		}
	}
	out.State = providers.PowerUnknown
	switch {
	case count[providers.PowerOff] == len(of):
		out.State = providers.PowerOff
	case count[providers.PowerOn] > 0:
		out.State, out.Err = providers.PowerOn, nil
	case count[providers.PowerUnknown] == 0:
		out.State = providers.PowerChanging
	}
	return out
}
