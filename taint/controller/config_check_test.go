package controller

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/policy"
)

// A policy that selects nothing is told once for each configuration, and again only after a look that failed.
func TestPoliciesThatSelectNothing(t *testing.T) {
	is := func(text string) labels.Selector {
		s, err := labels.Parse(text)
		must(t, err)
		return s
	}
	lists, fail := 0, true
	api := fake.NewClientBuilder().WithObjects(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"rack": "a"}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "p", Labels: map[string]string{"app": "db"}}},
	).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*corev1.PodList); ok {
				if lists++; fail {
					fail = false
					return errors.New("try later")
				}
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
	config := &Config{Settings: decide.Settings{Policies: []policy.Policy{
		{Name: "fits", Nodes: is("rack=a"), Namespaces: []string{"web", "db"}, Pods: is("app=db")},
		{Name: "all"},
		{Name: "no-node", Nodes: is("rack=b"), Pods: is("app=db")},
		{Name: "no-namespace", Namespaces: []string{"dbs"}},
		{Name: "no-label", Namespaces: []string{"db"}, Pods: is("app=bd")},
	}}}
	log := &bytes.Buffer{}
	said := func() (out []string) {
		for line := range strings.Lines(log.String()) {
			_, after, _ := strings.Cut(line, `msg="`)
			what, rest, _ := strings.Cut(after, ":")
			what, _, _ = strings.Cut(what, `"`)
			if _, name, ok := strings.Cut(rest, "policy="); ok {
				name, _, _ = strings.Cut(name, " ")
				what = name + ": " + what
			}
			out = append(out, what)
		}
		log.Reset()
		return out
	}
	want := func(when string, want ...string) {
		t.Helper()
		if got := strings.Join(said(), "\n"); got != strings.Join(want, "\n") {
			t.Errorf("%s: got log\n%s\nwant\n%s", when, got, strings.Join(want, "\n"))
		}
	}
	c := &ConfigCheck{
		Live: api, Cache: api, Log: slog.New(slog.NewTextHandler(log, nil)), Config: func() *Config { return config },
		LeftAlone: func(context.Context, string) (string, error) { return "", nil },
	}
	c.checkConfig(t.Context())
	want("a list that failed", "Cannot check what policies and modes select")
	nothing := []string{"no-node: Policy selects no node of the cluster",
		"no-namespace: Policy selects no pod of the cluster", "no-label: Policy selects no pod of the cluster"}
	c.checkConfig(t.Context())
	want("the next", nothing...)
	before := lists
	c.checkConfig(t.Context())
	if want("the same configuration"); lists != before {
		t.Errorf("the same configuration: got %d more lists, want none", lists-before)
	}
	config = &Config{Settings: config.Settings}
	c.checkConfig(t.Context())
	want("another", nothing...)
}

// configCheckOf is wired as in production.
func configCheckOf(r *Reconciler, log io.Writer) *ConfigCheck {
	return &ConfigCheck{
		Live: r.Live, Cache: r.Cache, Log: slog.New(slog.NewTextHandler(log, nil)), Config: r.Config,
		LeftAlone: r.LeftAlone,
	}
}

// A new configuration is looked at once: what is paused, or cannot be known, is told before a node is dead.
func TestPauseIsToldAtOnce(t *testing.T) {
	w := newWorld(t)
	w.create(w.elsewhere())
	log := &bytes.Buffer{}
	config := w.r.Config()
	w.r.Options.Config = func() *Config { return config }
	c := configCheckOf(w.r, log)
	for range 3 {
		c.checkConfig(t.Context())
	}
	if n := strings.Count(log.String(), "No node is fenced"); n != 1 ||
		!strings.Contains(log.String(), "ConfigMap fencing/forcefence-pause") {
		t.Errorf("got %q, want it told once", log)
	}
}

// A selector that selects no node is told once for each configuration.
func TestSelectorsOfNothing(t *testing.T) {
	w := newWorld(t)
	log := &bytes.Buffer{}
	parse := func(s string) labels.Selector {
		sel, err := labels.Parse(s)
		must(t, err)
		return sel
	}
	config := &Config{
		Selectors: map[string]labels.Selector{"modes[0].selector": parse("zone=nowhere"),
			"modes[1].selector": parse("!zone")}}
	w.r.Options.Config = func() *Config { return config }
	c := configCheckOf(w.r, log)
	for range 3 {
		c.checkConfig(context.Background())
	}
	lines := slices.DeleteFunc(strings.Split(log.String(), "\n"),
		func(l string) bool { return !strings.Contains(l, "selects no node") })
	if len(lines) != 1 || !strings.Contains(lines[0], "modes[0].selector") ||
		!strings.Contains(lines[0], "zone=nowhere") {
		t.Errorf("got %q", log.String())
	}
}
