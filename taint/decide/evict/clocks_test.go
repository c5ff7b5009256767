package evict

import (
	"reflect"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// clocks is now after the process's machine was suspended for so long, or after its wall clock was set by so much.
func clocks(d time.Duration) with { return func(v *View) { v.Now.Wall = v.Now.Wall.Add(d) } }

// What must be fresh is as old as the older of both clocks says: a process that was suspended asks again before it goes
// on.
func TestFreshByBothClocks(t *testing.T) {
	const long = 10 * time.Minute
	listed := func(v *View) { v.Live, v.Memory.ListedAt = false, ago(time.Second) }
	for _, tt := range []struct {
		name string
		view View
		act  action.Action
	}{
		{"confirmed", armed(proven), action.WriteRecord{}},
		{"confirmed before a suspension", armed(proven, clocks(long)), action.AskDevices{}},
		{"confirmed, and the wall clock was set back", armed(proven, clocks(-long)), action.WriteRecord{}},
		{"Ready is stale", armed(ready, proven), action.ExpireReady{}},
		{"Ready is stale, by an Off of before a suspension", armed(ready, proven, clocks(long)), action.AskDevices{}},
		{"pods to end", evicting(proven, pods(pod("p"))), action.EndPods{}},
		{"pods to end after a suspension", evicting(proven, pods(pod("p")), clocks(long)), action.AskDevices{}},
		{"a person's word", evicting(person, noDevice, pods(pod("p"))), action.EndPods{}},
		{"a person's word before a suspension", evicting(person, noDevice, pods(pod("p")), clocks(long)),
			action.Wait{}},
		{"on lately", evicting(saying(on, 100*time.Millisecond), pods(pod("p"))), action.SparePods{}},
		{"on before a suspension", evicting(saying(on, 100*time.Millisecond), pods(pod("p")), clocks(long)),
			action.AskDevices{}},
		{"volumes, listed lately", evicting(proven, attached("a"), listed), action.Wait{}},
		{"volumes, listed before a suspension", evicting(attached("a"), listed, clocks(long)),
			action.ListAttachments{Live: true}},
	} {
		if d := Step(tt.view); brief(d.Action) != brief(tt.act) {
			t.Errorf("%s: got %s (%s), want %s", tt.name, brief(d.Action), d.Reason, brief(tt.act))
		}
	}
	v := evicting(person, saying(unknown, 0))
	if now := (providers.Instant{Wall: now.Wall.Add(time.Second), Mono: now.Mono}); v.MayEndPods(now) {
		t.Error("a person's word holds beside an answer that is due again by the wall clock")
	}
	first, second := armed().Look, armed().Look
	second.Sent.Wall, second.Got.Wall = first.Got.Wall.Add(long), first.Got.Wall.Add(long)
	looks := Looks{}.WithLook(first)
	if want := (Looks{TaintTimes: looks.TaintTimes, Last: first.Got}); !reflect.DeepEqual(looks, want) {
		t.Errorf("the first look: got %+v, want %+v: there was no gap", looks, want)
	}
	looks = looks.WithLook(second)
	want := Looks{TaintTimes: looks.TaintTimes, Last: second.Got, Resumed: second.Got, LastBeforeGap: first.Got}
	if !reflect.DeepEqual(looks, want) {
		t.Errorf("a process that was suspended saw nothing meanwhile: got %+v, want %+v", looks, want)
	}
}
