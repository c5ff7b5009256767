package walls

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestWalls holds the repository against its rules.
func TestWalls(t *testing.T) {
	pkgs, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"taint", "taint/decide/fence", "taint/decide/evict", "providers", "kubelet-admit/admit"} {
		found := false
		for _, p := range pkgs {
			found = found || p.Path == want
		}
		if !found {
			t.Errorf("package %s was not read: the check looks at the wrong tree", want)
		}
	}
	for _, bad := range Check(pkgs, Rules) {
		t.Error(bad)
	}
}

// TestCheck holds the check itself against violations made up for it.
func TestCheck(t *testing.T) {
	const doc = "// Package p is documented.\n"
	for _, tt := range []struct {
		name string
		file string // path, with the source below
		src  string
		want []string // the beginnings of the violations
	}{
		{"clean admit", "kubelet-admit/admit/a.go", doc + "package admit\n", nil},
		{"admit imports even the standard library", "kubelet-admit/admit/a.go", doc + "package admit\nimport \"fmt\"\nvar _ = fmt.Sprint\n",
			[]string{"kubelet-admit/admit/a.go:3: imports fmt"}},
		{"taint imports API types", "taint/a.go", doc + "package taint\nimport _ \"k8s.io/api/core/v1\"\n", nil},
		{"taint imports a client", "taint/a.go", doc + "package taint\nimport _ \"k8s.io/client-go/kubernetes\"\n",
			[]string{"taint/a.go:3: imports k8s.io/client-go/kubernetes"}},
		{"taint imports fence", "taint/a.go", doc + "package taint\nimport _ \"" + Module + "/taint/decide/fence\"\n",
			[]string{"taint/a.go:3: imports " + Module + "/taint/decide/fence"}},
		{"fence reads the clock", "taint/decide/fence/a.go", doc + "package fence\nimport \"time\"\nvar _ = time.Now\n",
			[]string{"taint/decide/fence/a.go:4: uses time.Now"}},
		{"fence reads the clock under another name", "taint/decide/fence/a.go", doc + "package fence\nimport tt \"time\"\nfunc f() { tt.Since(tt.Time{}) }\n",
			[]string{"taint/decide/fence/a.go:4: uses time.Since"}},
		{"fence hides where its names come from", "taint/decide/fence/a.go", doc + "package fence\nimport . \"time\"\nvar _ = Now\n",
			[]string{"taint/decide/fence/a.go:3: imports the package of time."}},
		{"fence reads the clock of the API types", "taint/decide/fence/a.go",
			doc + "package fence\nimport metav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\nvar _ = metav1.Now\n",
			[]string{"taint/decide/fence/a.go:4: uses k8s.io/apimachinery/pkg/apis/meta/v1.Now"}},
		{"durations are data", "taint/decide/fence/a.go", doc + "package fence\nimport \"time\"\nvar _ = 5 * time.Second\n", nil},
		{"evict logs", "taint/decide/evict/a.go", doc + "package evict\nimport _ \"log/slog\"\n", []string{"taint/decide/evict/a.go:3: imports log/slog"}},
		{"evict logs with klog", "taint/decide/evict/a.go", doc + "package evict\nimport _ \"k8s.io/klog/v2\"\n", []string{"taint/decide/evict/a.go:3: imports k8s.io/klog/v2"}},
		{"fence opens a file", "taint/decide/fence/a.go", doc + "package fence\nimport _ \"os\"\n", []string{"taint/decide/fence/a.go:3: imports os"}},
		{"fence imports evict", "taint/decide/fence/a.go", doc + "package fence\nimport _ \"" + Module + "/taint/decide/evict\"\n",
			[]string{"taint/decide/fence/a.go:3: imports " + Module + "/taint/decide/evict"}},
		{"tests are free", "taint/decide/fence/a_test.go", doc + "package fence\nimport \"time\"\nvar _ = time.Now\n", nil},
		{"the controller uses the core", "taint/controller/a.go", doc + "package controller\nimport _ \"" + Module + "/taint/decide/fence\"\nimport _ \"time\"\n", nil},
		{"the controller knows a device family", "taint/controller/a.go", doc + "package controller\nimport _ \"" + Module + "/providers/redfish\"\n",
			[]string{"taint/controller/a.go:3: imports " + Module + "/providers/redfish"}},
		{"the controller knows the configuration", "taint/controller/a.go", doc + "package controller\nimport _ \"" + Module + "/cmd/internal/config\"\n",
			[]string{"taint/controller/a.go:3: imports " + Module + "/cmd/internal/config"}},
		{"the contract is free", "providers/a.go", doc + "package providers\nimport _ \"golang.org/x/time/rate\"\n",
			[]string{"providers/a.go:3: imports golang.org/x/time/rate"}},
		{"a provider with its SDK", "providers/redfish/a.go", doc + "package redfish\nimport _ \"github.com/stmcginnis/gofish/schemas\"\n", nil},
		{"a provider with another's SDK", "providers/redfish/a.go", doc + "package redfish\nimport _ \"github.com/bougou/go-ipmi\"\n",
			[]string{"providers/redfish/a.go:3: imports github.com/bougou/go-ipmi"}},
		{"a provider knows the cluster", "providers/snmp/a.go", doc + "package snmp\nimport _ \"k8s.io/api/core/v1\"\n",
			[]string{"providers/snmp/a.go:3: imports k8s.io/api/core/v1"}},
		{"a provider whose machines are Kubernetes objects", "providers/kubevirt/a.go", doc + "package kubevirt\nimport _ \"k8s.io/api/core/v1\"\n", nil},
		{"a provider knows another", "providers/snmp/a.go", doc + "package snmp\nimport _ \"" + Module + "/providers/ipmi\"\n",
			[]string{"providers/snmp/a.go:3: imports " + Module + "/providers/ipmi"}},
		{"a part knows cmd", "kubelet-admit/nri/a.go", doc + "package nri\nimport _ \"" + Module + "/cmd/internal/app\"\n",
			[]string{"kubelet-admit/nri/a.go:3: imports " + Module + "/cmd/internal/app"}},
		{"cmd uses its own", "cmd/forcefence/main.go", doc + "package main\nimport _ \"" + Module + "/cmd/internal/app\"\n", nil},
		{"shipped code imports test", "cmd/forcefence/main.go", doc + "package main\nimport _ \"" + Module + "/test/datacenter\"\n",
			[]string{"cmd/forcefence/main.go:3: imports " + Module + "/test/datacenter"}},
		{"test imports test", "test/sim/a.go", doc + "package sim\nimport _ \"" + Module + "/test/datacenter\"\n", nil},
		{"test imports cmd's insides", "test/sim/a.go", doc + "package sim\nimport _ \"" + Module + "/cmd/internal/app\"\n",
			[]string{"test/sim/a.go:3: imports " + Module + "/cmd/internal/app"}},
		{"the referee knows what it judges", "test/referee/a.go", doc + "package main\nimport _ \"" + Module + "/taint\"\n",
			[]string{"test/referee/a.go:3: imports " + Module + "/taint"}},
		{"the referee knows it by a way round", "test/referee/a.go", doc + "package main\nimport _ \"" + Module + "/test/cluster\"\n",
			[]string{"test/referee/a.go:3: imports " + Module + "/test/cluster"}},
		{"a way round is made", "test/cluster/binaries/a.go", doc + "package binaries\nimport _ \"" + Module + "/taint\"\n",
			[]string{"test/cluster/binaries/a.go:3: imports " + Module + "/taint"}},
		{"no doc", "taint/drain/a.go", "package drain\n", []string{"taint/drain/a.go: package \"taint/drain\" has no doc comment"}},
		{"a nested module is not ours to judge", "test/controlplane/x/a.go", "package x\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree := fstest.MapFS{
				"go.mod":                   {Data: []byte("module " + Module + "\n")},
				"test/controlplane/go.mod": {Data: []byte("module other\n")},
				"taint/testdata/x.go":      {Data: []byte("not Go\n")},
				tt.file:                    {Data: []byte(tt.src)},
			}
			pkgs, err := Load(tree)
			if err != nil {
				t.Fatal(err)
			}
			// A package that several rules bind may be reported by each: the beginnings say what matters.
			var got []string
			for _, b := range Check(pkgs, Rules) {
				ours := ""
				for _, w := range tt.want {
					if strings.HasPrefix(b, w) {
						ours = w
					}
				}
				if ours == "" {
					ours = b
				}
				if len(got) == 0 || got[len(got)-1] != ours {
					got = append(got, ours)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRulesBind holds that each rule binds something and says why.
func TestRulesBind(t *testing.T) {
	for i, r := range Rules {
		if r.Why == "" || len(r.Bind) == 0 {
			t.Errorf("rule %d: why %q, binds %q: want both", i, r.Why, r.Bind)
		}
	}
}
