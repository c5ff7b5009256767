package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/test/kit"
)

var (
	// joinedText is where Go joins two parts of a text.
	joinedText = regexp.MustCompile(`"\s*\+\s*"`)
	// quotedCommand is a command in a sentence, between backquotes. Of a raw string of Go it finds the first line.
	quotedCommand = regexp.MustCompile("`(?:kubectl )?(?:[\\w./-]*/)?forcefence ([^`]+)`")
	// shellBlock is a block of a page that a person types.
	shellBlock = regexp.MustCompile("(?ms)^```sh.*?^```")
	// typedCommand is a line, or a part of one behind a pipe, that a person types.
	typedCommand = regexp.MustCompile(
		`(?m)(?:^ *|[|;&] ?|-- )(?:kubectl )?(?:[\w./-]*/)?forcefence ([a-z-].*)$`)
	// indentedCommand is such a line of an example in a help text or in the chart's notes, which is indented.
	indentedCommand = regexp.MustCompile(
		`(?m)^ {2,}(?:kubectl )?(?:[\w./-]*/)?forcefence ([a-z-].*)$`)
	// formerCommand is how a person would type a command of a former version, or name it in a sentence.
	formerCommand = regexp.MustCompile(
		`\b(?:drain-status|check-provider)\b|forcefence drain-policy\b|\bpower state (?:NODE|n\d|\{node\})`)
	// shellWord is one word of a command line.
	shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
)

// commandsIn returns the command lines that a file of that name writes, without the program's name.
func commandsIn(name, text string) (lines []string) {
	add := func(pattern *regexp.Regexp, text string) {
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			lines = append(lines, m[1])
		}
	}
	switch path.Ext(name) {
	case ".go":
		text = joinedText.ReplaceAllString(text, "")
		add(indentedCommand, text)
	case ".md":
		for _, block := range shellBlock.FindAllString(text, -1) {
			add(typedCommand, block)
		}
	case ".txt", ".tpl":
		add(indentedCommand, text)
	}
	add(quotedCommand, text)
	return lines
}

// faultOfCommand returns what is wrong with a command line; "" if the command and its flags exist.
func faultOfCommand(root *cobra.Command, line string) string {
	var words []string
	line, _, _ = strings.Cut(line, "`")
	for _, w := range shellWord.FindAllString(line, -1) {
		if strings.ContainsAny(w[:1], "|;&<>#(") {
			break
		}
		words = append(words, strings.TrimRight(w, ".,;:"))
	}
	if len(words) == 0 {
		return ""
	}
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	for i, w := range rest {
		name, _, _ := strings.Cut(w, "=")
		switch {
		case name == "-" || name == "--" || name == "...":
		case strings.HasPrefix(name, "--"):
			if cmd.Flags().Lookup(name[2:]) == nil {
				return cmd.CommandPath() + " has no flag " + name
			}
		case strings.HasPrefix(name, "-"):
			if cmd.Flags().ShorthandLookup(name[1:2]) == nil {
				return cmd.CommandPath() + " has no flag " + name
			}
		case i == 0 && len(cmd.Commands()) > 0 && cmd.Name() != "help":
			return cmd.CommandPath() + " has no command " + w
		}
	}
	return ""
}

// Each command that a text of the repository names exists with its flags: on the pages, in messages and help texts, in
// the chart and in the alerts. CHANGELOG.md speaks of former versions too.
func TestWrittenCommands(t *testing.T) {
	root := newRoot(all.Types())
	found := map[string]int{}
	files := os.DirFS(kit.Root(t))
	kit.Must(t, fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "out", "bin", "testdata"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		types := []string{".go", ".md", ".yaml", ".yml", ".txt", ".tpl", ".json", ".sh"}
		if !slices.Contains(types, path.Ext(name)) || name == "CHANGELOG.md" ||
			strings.HasPrefix(name, "cmd/forcefence/") && (strings.HasSuffix(name, "_test.go") ||
				path.Base(name) == "renamed.go") {
			return nil
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		for _, line := range commandsIn(name, string(text)) {
			found[path.Ext(name)]++
			if fault := faultOfCommand(root, line); fault != "" {
				t.Errorf("%s: `forcefence %s`: %s", name, line, fault)
			}
		}
		for _, word := range formerCommand.FindAllString(string(text), -1) {
			t.Errorf("%s names a former command: %s", name, word)
		}
		return nil
	}))
	for kind, least := range map[string]int{".go": 60, ".md": 100, ".yaml": 5, ".txt": 1} {
		if found[kind] < least {
			t.Errorf("found %d commands in files *%s, want %d at least: does a pattern miss them?", found[kind], kind,
				least)
		}
	}
}

// The test of written commands notices a command and a flag that do not exist.
func TestFaultOfCommand(t *testing.T) {
	root := newRoot(all.Types())
	for line, want := range map[string]string{
		"status -w":                                "",
		"drill NODE --config config.yaml":          "",
		"drain policy n1 --set=always-allow":       "",
		"check-config --skip-files - # - is stdin": "",
		"proof keys > keys.pem":                    "",
		"--version":                                "",
		"nope n1":                                  "has no command nope",
		"proof nope":                               "has no command nope",
		"status --watch-it":                        "has no flag --watch-it",
		"status -z":                                "has no flag -z",
		"verify n1":                                "has no command verify",
		"drill n3 -o wide | less --no-such-flag-of": "",
	} {
		if got := faultOfCommand(root, line); !strings.HasSuffix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	text := "a" + "`" + "forcefence one" + "`" + " b\n```sh run\nforcefence two\nkubectl x -- /ko-app/forcefence three\n" +
		"```\nforcefence asks.\n"
	if got := strings.Join(commandsIn("a.md", text), ", "); got != "two, three, one" {
		t.Errorf("got %q", got)
	}
}
