package config

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

const envPrefix = "FORCEFENCE_"

var upperCase = regexp.MustCompile(`[A-Z]`)

// EnvName returns the environment variable that overrides the scalar at path: FORCEFENCE_LISTEN_METRICS for
// listen.metrics.
func EnvName(path string) string {
	return envPrefix + strings.ToUpper(upperCase.ReplaceAllString(strings.ReplaceAll(path, ".", "_"), "_$0"))
}

// overrides returns the environment's values for the keys of struct type t, as YAML for decode, and notes the names of
// all variables that could have one, and those of lists. A list has no variable, and a scalar in it has none.
func (r *reader) overrides(t reflect.Type, path string, v *viper.Viper) string {
	var pairs []string
	for _, f := range fieldsOf(t) {
		p, k := join(path, f.name), kindOf(f.typ)
		switch {
		case k == kindMapping:
			pairs = appendPair(pairs, f.name, r.overrides(f.typ, p, v))
		case k == kindList:
			r.lists[strings.TrimPrefix(EnvName(p), envPrefix)] = p
		case k.isScalar():
			name := EnvName(p)
			r.known = append(r.known, strings.TrimPrefix(name, envPrefix))
			_ = v.BindEnv(p, name) // fails without a name alone
			if value := v.GetString(p); value != "" {
				pairs = appendPair(pairs, f.name, r.override(p, name, value, f.typ))
			}
		}
	}
	return mappingOf(pairs)
}

// override reports what is wrong with a variable's value, and returns it for decode; "" if it does not fit type t.
func (r *reader) override(path, name, value string, t reflect.Type) string {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: value} // YAML chooses the type
	if kindOf(t).isText() {
		n.Tag = "!!str"
	}
	r.env[path] = name
	delete(r.bad, path) // the file's value is not used
	sound, problem := scalar(n, t)
	problem = cmp.Or(problem, pathProblem(path, value))
	if problem != "" {
		r.report(path, "%s", problem)
		r.bad[path] = true
	}
	return sound
}

// serviceEnv matches what Kubernetes sets in a pod for each Service, and for the ports of each.
var serviceEnv = regexp.MustCompile(
	`^[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// testEnv are the prefixes of variables for the repository's own tests, which run forcefence with them.
var testEnv = []string{"FORCEFENCE_TEST_", "FORCEFENCE_REQUIRE_", "FORCEFENCE_E2E"}

// unknownEnv reports variables with our prefix that name no key. Without it a misspelled variable would have no effect.
func (r *reader) unknownEnv() {
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		short, ours := strings.CutPrefix(name, envPrefix)
		switch {
		case !ours || value == "" || slices.Contains(r.known, short) || r.named[name]:
		case serviceEnv.MatchString(name):
		case slices.ContainsFunc(testEnv, func(p string) bool { return strings.HasPrefix(name, p) }):
		default:
			if now := removedEnv(name); now != "" {
				r.addVariable(name, "", "was removed: "+now)
				continue
			}
			if list := r.lists[short]; list != "" {
				r.addVariable(name, "", list+" is a list: write it into the file")
				continue
			}
			fix := ". Only keys with a single value have a variable: write lists and all that is in them into the file"
			if near := nearest(short, r.known); near != "" {
				fix = fmt.Sprintf(": did you mean %q?", envPrefix+near)
			}
			r.addVariable(label(name), "", "names no key"+fix)
		}
	}
}
