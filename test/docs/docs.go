// Package docs checks that the commands on the repository's pages work. A fenced block says after its ``` what it is;
// a code host does not show that:
//
//	sh run             commands that TestPages types, in the page's order, on a real API server (see world)
//	sh run fresh       the same; the page begins on a cluster of its own, without forcefence
//	sh run alone       the same; the page begins on a cluster of its own, with forcefence. All other pages share one
//	sh needs=WHAT      commands that need what a test does not have: one of Needs
//	sh test=X          commands that something else runs: a test, as test/deploy.TestCleanup, whose folder's tests
//	                   then have each command's line, or name its verb; or fresh: make fresh types them
//	text out           words that the block of commands before it prints: each line, in this order; ... matches any
//	                   text within a line
//	text, go, json     not typed
//	yaml config        a configuration, or part of one: check-config takes it. Below config of the chart's values it
//	                   renders to a configuration that means the same. With file=NAME the commands that follow find it
//	                   under that name, with the test's addresses in the place of 10.0.0.x. About a whole one
//	                   check-config has no warning, or the block is yaml config warns, and the page says why
//	yaml description   a description of a device: check-config --description takes it. file=NAME as above
//	yaml values        values of the chart: it renders with them, and check-config takes the rendered configuration
//	yaml objects       objects that the API server takes, unknown fields refused
//	yaml pod           part of a pod's spec; the API server takes the pod
//	yaml test=X        held by a test, as above
//
// It also checks links between pages, and what the source and the pages cite (see citations).
package docs

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
)

// Needs are what commands may need that no test has.
var Needs = map[string]string{
	"device":   "a BMC, a power strip or a hypervisor of one's own",
	"docker":   "Docker, and a registry to take images from",
	"ec2":      "an account of AWS",
	"host":     "a node's host, a container on it, or a place in one's own PATH",
	"incident": "the fault that the page is about",
	"network":  "a network that reaches GitHub",
	"registry": "a registry to push to",
}

// Block is one fenced block of a page.
type Block struct {
	Page  string // its path in the repository, with slashes
	Line  int    // of the opening fence
	Lang  string // "" where nothing is said
	Words []string
	Text  string // without the indentation of the fence
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Is reports whether the block says that word of itself.
func (b Block) Is(word string) bool { return slices.Contains(b.Words, word) }

// Value is the value of key= among the block's words; "" if there is none.
func (b Block) Value(key string) string {
	for _, w := range b.Words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v
		}
	}
	return ""
}

// typed finds lines that a person would type, in a block that says it has none.
var typed = regexp.MustCompile(
	`(?m)^(\$ |# )?(sudo )?(kubectl|helm|make|go|git|docker|kind|aws|curl|ipmitool|virsh|openssl|systemctl|` +
		`(bin/)?forcefence(-node)?) [a-z-]{2}`)

// Fault says what is wrong with what a block says of itself, given the one before it on its page; "" if nothing is.
// source is the text of the tests beside the test of that name, as test/deploy.TestCleanup, and "" if there is none;
// inCI reports whether .ci/run has a line.
func (b Block) Fault(before *Block, source func(test string) string, inCI func(line string) bool) string {
	kinds := map[string][]string{
		"sh": {"run", "needs", "test"}, "yaml": {"config", "description", "values", "objects", "pod", "test"},
		"text": {"", "out"}, "go": {""}, "json": {""},
	}
	kind := ""
	if len(b.Words) > 0 {
		kind, _, _ = strings.Cut(b.Words[0], "=")
	}
	allowed, known := kinds[b.Lang]
	switch {
	case b.Lang == "":
		return "says not what it is: sh, yaml, text, go, json (see the package's comment)"
	case !known:
		return "is of kind " + b.Lang + ", which nothing holds"
	case !slices.Contains(allowed, kind):
		return fmt.Sprintf("says %q of itself; it is one of %q", strings.Join(b.Words, " "), allowed)
	}
	for _, w := range b.Words[min(1, len(b.Words)):] {
		if w != "fresh" && w != "alone" && w != "warns" && !strings.HasPrefix(w, "file=") {
			return fmt.Sprintf("says %q of itself, which means nothing", w)
		}
	}
	switch test := b.Value("test"); {
	case kind == "needs" && Needs[b.Value("needs")] == "":
		return fmt.Sprintf("needs %q, which is none of Needs", b.Value("needs"))
	case kind == "out" && (before == nil || before.Lang != "sh" || !before.Is("run")):
		return "is printed by no commands that run"
	case b.Lang == "text" && kind == "" && typed.MatchString(b.Text):
		return fmt.Sprintf("has a command in it: %q", typed.FindString(b.Text))
	case test == "fresh":
		if !inCI("make fresh") {
			return ".ci/run does not run make fresh"
		}
	case kind == "test":
		text := source(test)
		if text == "" {
			return "names a test that is not there: " + test
		}
		for line, verb := range b.verbs() {
			if !strings.Contains(text, line) && !strings.Contains(text, `"`+verb+`"`) &&
				!strings.Contains(text, camel(verb)) {
				return fmt.Sprintf("has %q, which no test beside %s names", verb, test)
			}
		}
	}
	return ""
}

// command is a line that is typed: the program, flags that stand before the verb, and the verb.
var command = regexp.MustCompile(
	`(?m)^(?:kubectl forcefence|kubectl|helm|(?:bin/)?forcefence(?:-node)?)(?: -n \S+)* ([a-z][a-z-]+).*$`)

// verbs are what its commands begin with, such as confirm-off, each after the whole line.
func (b Block) verbs() iter.Seq2[string, string] {
	return func(yield func(line, verb string) bool) {
		for _, m := range command.FindAllStringSubmatch(b.Text, -1) {
			if !yield(m[0], m[1]) {
				return
			}
		}
	}
}

// camel is confirmOff of confirm-off, as the function is called that does it; of a single word, which could be any
// word, nothing that is anywhere.
func camel(verb string) string {
	first, rest, ok := strings.Cut(verb, "-")
	if !ok {
		return "\x00"
	}
	return first + strings.ToUpper(rest[:1]) + rest[1:]
}
