package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/providers/expr"
)

// maxCost is the limit of one evaluation, in CEL's units: about 10 ms. Over the limit the object is Unknown: it cannot
// stop the controller.
const maxCost = 100_000

// maxName is how long the name of a node or a volume may be, in bytes. Names are never cut: a Node's annotation holds
// them whole, for example.
const maxName = 1024

// Problem is a fault in one item of a Spec.
type Problem struct {
	Path string // the item's path below the Spec, as in the configuration: volume.healthy
	Text string // what is wrong, and how to correct it
}

func (p Problem) String() string { return p.Path + ": " + p.Text }

// Kind is a kind of object by which a system describes its state.
type Kind uint8

// The kinds.
const (
	Nodes Kind = iota
	Volumes
	Replicas
	kinds
)

// Kinds lists all of them.
var Kinds = []Kind{Nodes, Volumes, Replicas}

func (k Kind) String() string {
	switch k {
	case Nodes:
		return "node"
	case Volumes:
		return "volume"
	case Replicas:
		return "replica"
	default:
		return "unknown kind"
	}
}

// Adapter is a Spec with compiled expressions. It is immutable and safe for concurrent use.
type Adapter struct {
	Name   string
	Spec   Spec
	Source Source // nil: the system's objects are the cluster's resources

	resources   [kinds]schema.GroupVersionResource // by Kind; empty: the system has none
	exprs       map[string]*expression             // by path
	evict, keep map[string]any
	pods        labels.Selector
}

// ResourceOf returns the resource of a kind. It returns false if the system has none.
func (a *Adapter) ResourceOf(k Kind) (schema.GroupVersionResource, bool) {
	r := a.resources[k]
	return r, r.Resource != ""
}

// expression is one compiled expression.
type expression struct {
	path, text string
	wants      *cel.Type // BoolType or StringType
	node       bool      // it sees the node as well
	program    cel.Program
}

// item is one expression of a Spec.
type item struct {
	path     string
	text     string
	wants    *cel.Type
	kind     Kind
	optional bool
}

func (s Spec) expressionItems() []item {
	return []item{
		{"node.name", s.Node.Name, cel.StringType, Nodes, false},
		{"node.healthy", s.Node.Healthy, cel.BoolType, Nodes, false},
		{"node.why", s.Node.Why, cel.StringType, Nodes, true},
		{"volume.group", s.Volume.Group, cel.StringType, Volumes, true},
		{"volume.key", s.Volume.Key, cel.StringType, Volumes, false},
		{"volume.name", s.Volume.Name, cel.StringType, Volumes, true},
		{"volume.healthy", s.Volume.Healthy, cel.BoolType, Volumes, false},
		{"volume.why", s.Volume.Why, cel.StringType, Volumes, true},
		{"replica.node", s.Replica.Node, cel.StringType, Replicas, false},
		{"replica.volume", s.Replica.Volume, cel.StringType, Replicas, false},
		{"replica.healthy", s.Replica.Healthy, cel.BoolType, Replicas, false},
		{"replica.running", s.Replica.Running, cel.BoolType, Replicas, true},
		{"replica.started", s.Replica.Started, cel.BoolType, Replicas, true},
		{"replica.evicting", s.Replica.Evicting, cel.BoolType, Replicas, true},
		{"replica.wanted", s.Replica.Wanted, cel.BoolType, Replicas, true},
	}
}

// CompileAdapter checks a Spec and compiles its expressions. It returns a nil Adapter if there are problems.
func CompileAdapter(name string, s Spec) (*Adapter, []Problem) {
	return CompileWithSource(name, s, nil)
}

// CompileWithSource is CompileAdapter for a system whose objects a Source reads, unless that is nil.
func CompileWithSource(name string, s Spec, from Source) (*Adapter, []Problem) {
	a := &Adapter{Name: name, Spec: s, Source: from, exprs: map[string]*expression{}}
	var bad []Problem
	report := func(path, format string, args ...any) { bad = append(bad, Problem{path, fmt.Sprintf(format, args...)}) }
	if len(s.Drivers) == 0 {
		report("drivers", "missing: the names of the system's CSI drivers")
	}
	for i, d := range s.Drivers {
		if d == "" || slices.Contains(s.Drivers[:i], d) {
			report(fmt.Sprintf("drivers[%d]", i), "must be the name of a CSI driver, each only once")
		}
	}
	if s.Namespace != "" && len(validation.IsDNS1123Label(s.Namespace)) > 0 {
		report("namespace", "no namespace can have this name: use a-z, 0-9 and -")
	}
	for k, text := range []string{Nodes: s.Node.Resource, Volumes: s.Volume.Resource, Replicas: s.Replica.Resource} {
		if text == "" {
			continue
		}
		if from != nil {
			a.resources[k].Resource = Kind(k).String() + "s"
			continue
		}
		gvr, err := parseResource(text)
		if err != nil {
			report(Kind(k).String()+".resource", "%v", err)
		}
		a.resources[k] = gvr
	}
	if a.resources == [kinds]schema.GroupVersionResource{} && len(bad) == 0 {
		report("", "describes nothing: add at least one of node, volume, replica")
	}
	if from == nil && s.Volume.Group != "" {
		report("volume.group", "has no effect without rest")
	}
	if from != nil && (s.Replica.Resource != "" || s.Pods != "") {
		report("replica", "only resources of the cluster can describe replicas: leave out replica and pods")
	}
	bad = append(bad, a.compileExpressions()...)
	bad = append(bad, a.checkOtherItems()...)
	if len(bad) > 0 {
		return nil, bad
	}
	return a, nil
}

// compileExpressions compiles the expressions, and reports those that are missing or have no use.
func (a *Adapter) compileExpressions() []Problem {
	var bad []Problem
	envs, err := newEnvironments(func(Kind) *cel.Type { return cel.DynType })
	if err != nil {
		return []Problem{{"", "CEL cannot be set up: " + err.Error()}} // no fault of the user: the first test finds it
	}
	for _, it := range a.Spec.expressionItems() {
		_, has := a.ResourceOf(it.kind)
		has = has || a.Spec.resourceText(it.kind) != "" // true for a malformed resource, too
		switch {
		case it.text == "" && (!has || it.optional):
		case it.text == "":
			bad = append(bad, Problem{it.path, "missing: a CEL expression of type " + it.wants.String()})
		case !has:
			bad = append(bad, Problem{it.path, fmt.Sprintf("has no effect without %s.resource", it.kind)})
		default:
			e := &expression{path: it.path, text: it.text, wants: it.wants, node: it.path == "replica.wanted"}
			if e.node && a.Spec.Node.Resource == "" {
				bad = append(bad, Problem{it.path, "reads `node`, so node.resource is required"})
				continue
			}
			program, err := expr.Compile(envs[it.path], e.text, e.wants, maxCost)
			if err != nil {
				bad = append(bad, Problem{it.path, err.Error()})
				continue
			}
			e.program = program
			a.exprs[it.path] = e
		}
	}
	return bad
}

// checkOtherItems checks the items of the Spec that are no expressions.
func (a *Adapter) checkOtherItems() []Problem {
	s := a.Spec
	var bad []Problem
	if s.Volume.Resource != "" && s.Volume.Find != ByHandle && s.Volume.Find != ByPV && s.Volume.Find != ByClaim {
		bad = append(bad, Problem{"volume.find", "must be handle, pv or claim: which name of a volume the key gives"})
	}
	var err error
	if s.Pods != "" {
		if a.pods, err = labels.Parse(s.Pods); err != nil {
			bad = append(bad, Problem{"pods", "not a label selector: " + expr.OneLine(err.Error())})
		} else if s.Namespace == "" {
			bad = append(bad, Problem{"pods", "selects pods in all namespaces: add namespace"})
		}
	}
	if (s.Replica.Evict == "") != (s.Replica.Keep == "") {
		return append(bad, Problem{
			"replica.evict", "needs both evict, which requests an eviction, and keep, which cancels the request",
		})
	}
	if s.Replica.Evict == "" {
		return bad
	}
	if s.Replica.Evicting == "" {
		bad = append(bad, Problem{"replica.evicting", "missing: evict requests it, so it must be readable"})
	}
	for _, p := range []struct {
		path, text string
		to         *map[string]any
	}{{"replica.evict", s.Replica.Evict, &a.evict}, {"replica.keep", s.Replica.Keep, &a.keep}} {
		if err := json.Unmarshal([]byte(p.text), p.to); err != nil || len(*p.to) == 0 {
			bad = append(bad, Problem{p.path, `must be a JSON merge patch, as {"spec": {"evictionRequested": true}}`})
			continue
		}
		for _, key := range []string{"apiVersion", "kind", "metadata", "status"} {
			if _, has := (*p.to)[key]; has {
				bad = append(bad, Problem{p.path, "must not patch " + key})
			}
		}
	}
	return bad
}

func (s Spec) resourceText(k Kind) string {
	return []string{Nodes: s.Node.Resource, Volumes: s.Volume.Resource, Replicas: s.Replica.Resource}[k]
}

// parseResource reads plural.version.group. The group of Kubernetes' core is empty.
func parseResource(text string) (schema.GroupVersionResource, error) {
	parts := strings.SplitN(text, ".", 3)
	gvr := schema.GroupVersionResource{Resource: parts[0]}
	ok := len(parts) > 1 && len(validation.IsDNS1035Label(parts[0])) == 0 &&
		len(validation.IsDNS1035Label(parts[1])) == 0
	if ok {
		gvr.Version = parts[1]
	}
	if ok && len(parts) == 3 {
		gvr.Group = parts[2]
		ok = len(validation.IsDNS1123Subdomain(gvr.Group)) == 0
	}
	if !ok {
		return schema.GroupVersionResource{},
			errors.New("want plural.version.group, as in volumes.v1beta2.longhorn.io; persistentvolumeclaims.v1 has " +
				"no group")
	}
	return gvr, nil
}

// newEnvironments returns, by path, the environment with the variables that expressions may read. Objects have the
// types that typeOf returns.
func newEnvironments(typeOf func(Kind) *cel.Type, more ...cel.EnvOption) (map[string]*cel.Env, error) {
	drivers := cel.Variable("drivers", cel.ListType(cel.StringType))
	base, err := expr.NewEnv(append([]cel.EnvOption{drivers}, more...)...)
	if err != nil {
		return nil, err
	}
	out := map[string]*cel.Env{}
	for _, it := range (Spec{}).expressionItems() {
		vars := []cel.EnvOption{cel.Variable("object", typeOf(it.kind))}
		if it.path == "replica.wanted" {
			vars = append(vars, cel.Variable("node", typeOf(Nodes)))
		}
		if out[it.path], err = base.Extend(vars...); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// evalAs evaluates an expression over the variables. A value of another type is an error.
func evalAs[T bool | string](e *expression, vars map[string]any) (value T, _ error) {
	v, err := expr.Eval(context.Background(), e.program, vars)
	if err != nil {
		return value, fmt.Errorf("%s: %w", e.path, err)
	}
	value, ok := v.Value().(T)
	if !ok {
		return value, fmt.Errorf("%s: gives no %s", e.path, e.wants)
	}
	return value, nil
}
