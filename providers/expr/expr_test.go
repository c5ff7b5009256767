package expr_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"github.com/forcefence/forcefence/providers/expr"
)

// An evaluation ends by its limit and by its context, and gives no value then.
func TestEval(t *testing.T) {
	env, err := expr.NewEnv(cel.Variable("list", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	list := make([]any, 3000)
	for i := range list {
		list[i] = float64(i)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	const search = "list.exists(a, list.exists(b, a + b > 1e9))"
	for _, tc := range []struct {
		name, text string
		ctx        context.Context
		limit      uint64
		want       string // the value, or a part of the error
	}{
		{"a value", "list[1] == 1.0", t.Context(), 1000, "true <nil>"},
		{"no such element", "list[5000] == 1.0", t.Context(), 1000, "index out of bounds"},
		{"over the limit", search, t.Context(), 1000, "cost limit exceeded"},
		{"the context has ended", search, ended, 1 << 40, "interrupted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := expr.Compile(env, tc.text, cel.BoolType, tc.limit)
			if err != nil {
				t.Fatal(err)
			}
			v, err := expr.Eval(tc.ctx, p, map[string]any{"list": list})
			got := fmt.Sprint(v, err)
			if !strings.Contains(got, tc.want) || (v == nil) != (err != nil) {
				t.Errorf("got %v, %v; want %s", v, err, tc.want)
			}
		})
	}
}

func TestCompile(t *testing.T) {
	env, err := expr.NewEnv(cel.Variable("list", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"list.size() > 0":                        "",
		"list.size()":                            "gives int, must give bool",
		"lost == 1":                              "at character 1: undeclared reference",
		strings.Repeat("true && ", 600) + "true": "more than 4096",
		"list.exists(a, list.exists(b, list.exists(c, list.exists(d, a == d))))": "may cost too much",
	} {
		_, err := expr.Compile(env, text, cel.BoolType, 1000)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v, want %q", text, err, want)
		}
	}
}
