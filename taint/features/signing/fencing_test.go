package signing

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
)

func TestCheckFencing(t *testing.T) {
	s := signer(1)
	whole := newFence()
	whole.evict(s)
	whole.write(s, taint.PhaseDone, taint.ResultEvicted, true)
	tests := []struct {
		name   string
		change func(f *api.Fencing)
		want   string // "": valid
	}{
		{name: "whole", change: func(*api.Fencing) {}},
		{"no proof", func(f *api.Fencing) { f.Status.Proof = "" }, "had no key"},
		{"another node", func(f *api.Fencing) { f.Spec.Node = "n2" }, `and not "n2"`},
		{"another id", func(f *api.Fencing) { f.Spec.ID = "f-2" }, "about fence"},
		{"another word", func(f *api.Fencing) { f.Status.Evidence[0].State = "On" }, `"racks/7" answered "On"`},
		{"another result", func(f *api.Fencing) { f.Status.Result = "Returned" }, `with result "Returned"`},
		{"no end", func(f *api.Fencing) { f.Status.Phase, f.Status.Result = "Evicting", "" }, `in phase "Evicting"`},
		{"the end is not signed", func(f *api.Fencing) {
			open := newFence()
			open.evict(s)
			f.Status.Proof = open.rec.Proof
		}, "the last signed link in Evicting"},
		{"a result before the end", func(f *api.Fencing) {
			open := newFence()
			open.evict(s)
			f.Status.Proof, f.Status.Phase = open.rec.Proof, "Evicting"
		}, `with result "Evicted"`},
		{"released by a person", func(f *api.Fencing) {
			open := newFence()
			open.evict(s)
			f.Status.Proof, f.Status.Result = open.rec.Proof, "Released"
		}, ""},
	}
	for _, tt := range tests {
		f := &api.Fencing{
			Spec: api.FencingSpec{Node: "n1", NodeUID: "uid", ID: whole.rec.ID, StartedAt: metav1.NewMicroTime(start)},
			Status: api.FencingStatus{Phase: "Done", Result: "Evicted", Proof: whole.rec.Proof, Evidence: []api.Answer{
				{At: metav1.NewMicroTime(start), From: "racks/7", State: "Off", Raw: "Off"},
			}},
		}
		tt.change(f)
		_, err := CheckFencing(f, s.Keys())
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}
