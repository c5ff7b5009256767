package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// walkScalar walks one value.
func (r *reader) walkScalar(n *yaml.Node, t reflect.Type, path string) string {
	sound, problem := scalar(n, t)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && userinfo.MatchString(n.Value) {
		problem = "a password inside an address: use passwordFile or passwordEnv"
	}
	switch key := path[strings.LastIndex(path, ".")+1:]; {
	case isTemplate(n), isBarePlaceholder(n):
		problem = notExpanded
	case n.ShortTag() == "!!str" && oneLine(n.Value) != strings.TrimSuffix(n.Value, "\n"):
		problem = `has a line break or a control character (in "..." a \ begins an escape: use '...')`
	case n.Kind == yaml.ScalarNode && variable.MatchString(n.Value):
		problem = "$(NAME) and ${NAME} are not expanded here: write the value itself"
		if key == "template" {
			problem += ", and {name} for the node's name"
		}
	case n.Kind != yaml.ScalarNode && slices.Contains(selectorKeys, key):
		problem = "want a label selector, which is text such as " + selectorExample + ", have " + describe(n)
	case strings.HasSuffix(key, "File") && strings.Contains(n.Value, "-----BEGIN "):
		problem = "is the content of a file: write it into a file, and the file's path here"
	case problem == "" && n.ShortTag() == "!!str":
		problem = pathProblem(path, n.Value)
	case key == "maxPowerOffs" && strings.HasSuffix(problem, "(50%)"):
		problem += ", or both (1+5%)"
	}
	if problem != "" {
		r.fault(r.lines[path], path, "%s", problem)
		return ""
	}
	if kindOf(t) == kindText {
		r.noteText(path, n.Value)
	}
	return sound
}

var (
	namesFile  = regexp.MustCompile(`(File|\.file|\.kubeconfig)$`)           // settings that name a file
	secretFile = regexp.MustCompile(`(?i)(password|secret|token|\.)(File)$`) // those that name a secret's
)

// pathProblem returns what is wrong with the name of a file; "" if nothing is, or if the setting names none. The
// controller's working folder is not the user's, so a relative path would lead elsewhere. It does not repeat the text,
// which may be a misplaced password.
func pathProblem(path, text string) string {
	switch {
	case text == "" || !namesFile.MatchString(path) || strings.HasPrefix(text, "/"):
		return ""
	case inSettings(path) && secretFile.MatchString(path):
		return "must be an absolute path, such as /etc/forcefence-bmc/password. A password itself does not belong in " +
			"this setting"
	}
	return "must be an absolute path"
}

// variable matches what a shell or a pod's command would expand.
var variable = regexp.MustCompile(`\$(\([A-Za-z_]\w*\)|\{[A-Za-z_]\w*\})`)

const selectorExample = `"rack=a" or "rack in (a, b)"`

// selectorKeys are the keys of label selectors. Elsewhere nodes is a list, which no scalar is.
var selectorKeys = []string{"selector", "evictFirst", "excludeSelector", "nodes", "pods"}

// scalars holds for each kind of scalar how messages call it, and the YAML tags that it may have. The library's decoder
// takes more tags, such as 1.9 for an integer.
var scalars = map[kind]struct {
	called string
	tags   []string
}{
	kindDuration: {`a duration such as "30s" or "5m"`, []string{"!!str"}},
	kindOwnText:  {"text", []string{"!!str"}},
	kindText:     {"text", []string{"!!str"}},
	kindBool:     {"true or false", []string{"!!bool"}},
	kindInt:      {"a whole number", []string{"!!int"}},
	kindNumber:   {"a number", []string{"!!int", "!!float"}},
}

// scalar returns a node as a value of type t, as YAML for decode, or what is wrong with it, without the value.
func scalar(n *yaml.Node, t reflect.Type) (sound, problem string) {
	k, isWord := kindOf(t), n.Kind == yaml.ScalarNode
	want := scalars[k].called
	fits := slices.Contains(scalars[k].tags, n.ShortTag())
	if t == amountType { // as Kubernetes' IntOrString; an Amount's own message is better than one about quotes
		want, fits = "a whole number of nodes (3), or a share of them (50%)", isWord && n.ShortTag() != "!!bool"
	}
	switch {
	case isNull(n):
		return "", "has no value: write one or remove the key"
	case k == kindNone:
		return "", "forcefence cannot read a setting of Go type " + t.String()
	case k == kindDuration && isWord && n.Value != "" && strings.Trim(n.Value, "0123456789.") == "":
		return "", fmt.Sprintf("a duration needs a unit: \"%ss\"?", n.Value)
	case !fits && isWord && want == "text":
		return "", "want text, have " + describe(n) + ": put it in quotes"
	case !fits || !isWord:
		return "", "want " + want + ", have " + describe(n) + adviseWord(n, k)
	case !utf8.ValidString(n.Value): // only from the environment: YAML has no such text
		return "", "is not UTF-8"
	}
	value := reflect.New(t)
	err := n.Decode(value.Interface())
	switch {
	case k == kindDuration && inDays.MatchString(n.Value):
		return "", daysProblem(n.Value)
	case k == kindDuration && (err != nil || strings.HasSuffix(n.Value, "0")): // the decoder takes +0
		return "", `not a duration: write it as "30s", "5m" or "1h30m"`
	case err != nil && k != kindOwnText:
		return "", "is out of range"
	case err != nil && t != amountType && n.Value != "" && strings.Contains(err.Error(), n.Value):
		return "", "is not what this setting takes" // the value may be a misplaced secret
	case err != nil:
		return "", oneLine(err.Error())
	case k == kindNumber && (math.IsNaN(value.Elem().Float()) || math.IsInf(value.Elem().Float(), 0)):
		return "", "must be a finite number"
	case k.isText():
		return quote(n.Value), ""
	}
	return n.Value, "" // a number or truth value
}

// inDays matches a duration that begins with days or weeks, which Go's durations do not have.
var inDays = regexp.MustCompile(`^[0-9.]+ ?(d|w|days?|weeks?)([^a-z]|$)`)

// daysProblem says how to write a duration in days. A plain number of days or weeks is converted.
func daysProblem(text string) string {
	m := plainDays.FindStringSubmatch(text)
	if m == nil {
		return `a duration has no days: write hours, such as "168h" for a week`
	}
	n, _ := strconv.Atoi(m[1]) // at most four digits
	if m[2] == "w" {
		n *= 7
	}
	return fmt.Sprintf("a duration has no days: write \"%dh\"", n*24)
}

var plainDays = regexp.MustCompile(`^(\d{1,4})(d|w)$`)

// adviseWord ends the message about a word of another kind: the word may only be in quotes, or be that of YAML 1.1.
func adviseWord(n *yaml.Node, k kind) string {
	bare := yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}
	truth, isTruth := map[string]string{
		"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false",
	}[strings.ToLower(n.Value)]
	switch {
	case n.Kind != yaml.ScalarNode:
		return ""
	case k == kindBool && isTruth:
		return ": write " + truth
	case n.ShortTag() == "!!str" && slices.Contains(scalars[k].tags, bare.ShortTag()):
		return ": write it without quotes"
	}
	return ""
}

// describe returns what kind of thing a node is, never its value.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return cmp.Or(map[string]string{
		"!!str": "text", "!!int": "a whole number", "!!float": "a number", "!!bool": "true or false",
		"!!null": "nothing", "!!timestamp": "a date",
	}[n.ShortTag()], "something else")
}
