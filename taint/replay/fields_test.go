package replay

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
)

// No part of what is written as it is can be lost: JSON passes over a field that is not exported, or is left out by its tag.
func TestNoFieldIsLost(t *testing.T) {
	elsewhere := map[string]string{ // written by other means, and why it may be
		"fence.Facts.Nobody": "facts.Nobody", "fence.Facts.Mode": "facts.Mode", "fence.Facts.NewID": "line.NewID", "policy.Policy.Nodes": "rule.NodesSelected", "policy.Policy.Pods": "rule.PodsSelected",
	}
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type, string)
	walk = func(of reflect.Type, at string) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(of.Elem(), at)
			return
		case reflect.Map:
			walk(of.Key(), at)
			walk(of.Elem(), at)
			return
		case reflect.Interface, reflect.Func, reflect.Chan:
			t.Errorf("%s is of type %s, which does not come back", at, of)
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[of] || of == reflect.TypeFor[time.Time]() || !strings.Contains(of.PkgPath(), "/forcefence/") {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			f := of.Field(i)
			name := of.String() + "." + f.Name
			if elsewhere[name] != "" {
				continue
			}
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.IsExported() && !f.Anonymous || tag == "-" {
				t.Errorf("%s is not written", name)
			}
			walk(f.Type, name)
		}
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[facts](), reflect.TypeFor[fleet.View](), reflect.TypeFor[action.Pod](), reflect.TypeFor[action.Attachment](), reflect.TypeFor[action.Owner](),
		reflect.TypeFor[storage.Health](), reflect.TypeFor[storageSays](), reflect.TypeFor[answer](), reflect.TypeFor[outcome](), reflect.TypeFor[Step](),
	} {
		walk(of, of.String())
	}
	if len(seen) < 15 {
		t.Errorf("%d types were looked at: too few", len(seen))
	}
}

// However long and odd what a device says: what is written of it decides the same.
func TestErrorsOfAnyForm(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("long ", 1000), "\x00\x1b  a   b\n", strings.Repeat("é", 150), "https://admin:pw@bmc/" + strings.Repeat("x", 300), strings.Repeat("y", 190) + "https://a:longer@bmc/x",
	} {
		err := providers.WithClass(providers.ErrDenied, errors.New(text))
		for name, set := range map[string]func(*world){
			"nobody":    func(w *world) { w.facts.Nobody = fmt.Errorf("asking: %w", err) },
			"answer":    func(w *world) { w.err = err },
			"power-off": func(w *world) { w.offErr = err },
			"excluded":  func(w *world) { w.facts.Excluded = text },
		} {
			w := newWorld(fence.Fence)
			set(w)
			w.run(2 * time.Minute)
			if r := play(t, w.tape.String(), nil); r.Differ != 0 || r.Compared < 5 || r.Broken > 0 {
				t.Errorf("%s %.20q: %d of %d differ: %+v", name, text, r.Differ, r.Compared, r.Decisions[len(r.Decisions)-1])
			}
		}
	}
}

// A course that is not recorded allocates what the node's own does.
func TestNothingRecordedCostsNothing(t *testing.T) {
	w := newWorld(fence.Fence)
	refused := errors.New("503")
	l := taint.See(w.node, nil, taint.DefaultKey, epoch, epoch)
	all := []providers.Answer{{Err: refused}}
	plain, course := &decide.Node{}, &Course{Name: "n1"}
	both := func(o decide.Observation) [2]func() {
		return [2]func(){func() { plain.Apply(epoch, &w.fleet, o) }, func() { course.Apply(epoch, &w.fleet, o) }}
	}
	for name, of := range map[string][2]func(){
		"Life":        both(decide.NodeRead{Look: l, Facts: w.facts, Node: w.node}),
		"Pods":        both(decide.PodsListed{Pods: w.pods}),
		"Volumes":     both(decide.VolumesRead{}),
		"Owners":      both(decide.OwnersRead{}),
		"Rival":       both(decide.RivalRead{Why: "why"}),
		"Members":     both(decide.MembersRead{}),
		"Waiting":     both(decide.WaitingRead{}),
		"Claims":      both(decide.ClaimsRead{}),
		"Attachments": both(decide.AttachmentsListed{Live: true}),
		"Storage":     {func() { plain.SawStorage(nil, nil, epoch) }, func() { course.SawStorage(nil, nil, epoch) }},
		"Answered":    both(decide.DevicesAnswered{Answers: all}),
		"Did":         both(decide.ActionDone{Err: refused}),
		"Next":        {func() { plain.Next(epoch, &w.fleet) }, func() { course.Next(epoch, &w.fleet) }},
		"Rest":        {func() { plain.Rest(l) }, func() { course.Rest(l) }},
	} {
		if want, got := testing.AllocsPerRun(200, of[0]), testing.AllocsPerRun(200, of[1]); got > want {
			t.Errorf("%s: %v allocations, want %v", name, got, want)
		}
	}
}
