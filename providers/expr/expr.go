// Package expr compiles and evaluates CEL expressions over documents of others: Kubernetes objects of a storage
// system, answers of a device. It imports cel-go and the standard library.
//
// It promises that an expression costs a bounded time for any document. An evaluation that fails, or that
// exceeds its limit, is an error and never a value.
package expr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// What an expression may cost, in CEL's own units: about one a step, ten million in a second. The cost is estimated
// when an expression is compiled, for lists, maps and texts of assumedSize. The caller limits the actual cost.
const (
	maxLength   = 4096       // bytes of an expression
	assumedSize = 100        // elements of a list or map, or characters of a text
	maxEstimate = 10_000_000 // two such lists against each other, not three
)

// maxText is how much of a document's or an expression's text is passed on, in bytes.
const maxText = 200

// checkEvery is the number of steps of a comprehension after which an evaluation looks whether its context has ended.
const checkEvery = 1000

// NewEnv returns an environment with the options that all expressions have, and more.
func NewEnv(more ...cel.EnvOption) (*cel.Env, error) {
	return cel.NewEnv(append([]cel.EnvOption{
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true),
		cel.EagerlyValidateDeclarations(true),
		cel.HomogeneousAggregateLiterals(), cel.ParserRecursionLimit(100),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
	}, more...)...)
}

// CheckTypes parses an expression and checks its types. The error says what is wrong with them.
func CheckTypes(env *cel.Env, text string, wants *cel.Type) (*cel.Ast, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("has %d bytes, which is more than %d", len(text), maxLength)
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		var all []string
		for _, err := range issues.Errors() {
			all = append(all, fmt.Sprintf("at character %d: %s", err.Location.Column()+1, OneLine(err.Message)))
		}
		return nil, errors.New("not a CEL expression: " + strings.Join(all[:min(3, len(all))], "; "))
	}
	if have := ast.OutputType(); !have.IsExactType(wants) && !have.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("gives %s, must give %s", have, wants)
	}
	return ast, nil
}

// Compile returns the program of an expression, whose evaluation costs limit at most. The error says what is wrong with
// its types or with its estimated cost.
func Compile(env *cel.Env, text string, wants *cel.Type, limit uint64) (cel.Program, error) {
	ast, err := CheckTypes(env, text, wants)
	if err != nil {
		return nil, err
	}
	cost, err := env.EstimateCost(ast, sizes{}, checker.PresenceTestHasCost(false))
	if err != nil {
		return nil, fmt.Errorf("its cost cannot be estimated: %s", OneLine(err.Error()))
	}
	if cost.Max > maxEstimate {
		return nil,
			fmt.Errorf("may cost too much (%d, the limit is %d): does it search a list in a list in a list? Search "+
				"fewer", cost.Max, maxEstimate)
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost), cel.CostLimit(limit),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)), cel.InterruptCheckFrequency(checkEvery))
	if err != nil {
		return nil, fmt.Errorf("cannot be made a program: %s", OneLine(err.Error()))
	}
	return program, nil
}

// Eval evaluates a program over the variables until ctx ends. It returns no value but an error where CEL gives an
// error or an unknown.
func Eval(ctx context.Context, program cel.Program, vars map[string]any) (ref.Val, error) {
	v, _, err := program.ContextEval(ctx, vars)
	if err != nil {
		return nil, errors.New(OneLine(err.Error()))
	}
	if types.IsUnknownOrError(v) {
		return nil, errors.New(OneLine(fmt.Sprint(v)))
	}
	return v, nil
}

// sizes gives the cost estimate assumedSize for every size that is unknown before the evaluation.
type sizes struct{}

func (sizes) EstimateSize(checker.AstNode) *checker.SizeEstimate {
	return &checker.SizeEstimate{Min: 0, Max: assumedSize}
}

func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// OneLine makes foreign text fit for a log, an Event or a condition: one printable line of at most maxText bytes.
func OneLine(s string) string {
	var b strings.Builder
	for _, c := range s {
		if !unicode.IsPrint(c) {
			c = ' '
		}
		if b.Len()+len(string(c)) > maxText {
			return strings.TrimRight(b.String(), ". ") + "..."
		}
		b.WriteRune(c)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
