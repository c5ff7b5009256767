package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// explainSyntax returns the line of a syntax error and its cause, with the fix. The library stopped at line at, and
// words are its message. A slip is on that line, or on the last line with content before it: without ": " there, the
// library takes the next line for more of the same text. No cause quotes the text, which may hold a secret, apart from
// a key.
func explainSyntax(text, words string, at int) (line int, cause string) {
	lines := strings.Split(text, "\n")
	if n := slices.IndexFunc(lines, conflictMarker.MatchString); n >= 0 {
		return n + 1, "a marker of a conflict in git: keep one of the versions, and remove the lines that begin with " +
			"<<<<<<<, ======= and >>>>>>>"
	}
	at = min(max(at, 1), len(lines))
	before := at - 1
	for before > 0 && isBlank(lines[before-1]) {
		before--
	}
	for _, n := range []int{at, before} {
		if n == 0 {
			continue
		}
		if cause := findSlip(strings.TrimRight(lines[n-1], " \r"), words); cause != "" {
			return n, cause
		}
	}
	if before > 0 {
		if n, cause := explainIndent(lines, words, before, at); cause != "" {
			return n, cause
		}
	}
	if strings.Contains(words, noContent) && opensMore(lines[at-1:]) {
		return at, "a { or [ is opened here and not closed. Without brackets, write each item on a line of its own, " +
			"with - before it"
	}
	for _, w := range syntaxWords {
		if strings.Contains(words, w.words) {
			return at, w.cause
		}
	}
	return at, words
}

var (
	conflictMarker = regexp.MustCompile(`^(<{7}|>{7})( |\r?$)|^={7}\r?$`)
	blankLine      = regexp.MustCompile(`^\s*(#|\r?$)`)
)

// isBlank reports whether a line has no content.
func isBlank(line string) bool { return blankLine.MatchString(line) }

// What the library says where a line's own slip is likely.
const (
	noColonHere = "mapping values are not allowed" // the text before this colon cannot be a key
	noColonYet  = "could not find expected ':'"
	noKey       = "did not find expected key"
	noEntry     = "did not find expected ',' or"
	noItem      = "did not find expected '-' indicator"
	noDocument  = "did not find expected <document start>"
	noContent   = "did not find expected node content"
	noToken     = "found character that cannot start any token"
)

// noColon is what it may say after a line without a colon.
var noColon = []string{noColonHere, noColonYet, noDocument}

// slips are what one line shows to be wrong, if the library says one of the words ("" is any). The first that matches
// counts. A submatch is a key, which the cause names.
var slips = []struct {
	words []string
	line  func(line string) []string // nil if the line is no such slip, else a match and its submatches
	cause string
}{
	{[]string{""}, regexp.MustCompile(`^ *\t`).FindStringSubmatch, "a tab indents this line: use spaces"},
	{[]string{""}, specialSpace.FindStringSubmatch, aSpecialSpace},
	{[]string{noKey, noEntry, noItem, noColonYet, noDocument, "alphabetic or numeric"}, opensQuote,
		"a quote is opened in this line and not closed"},
	{[]string{"hexdecimal", "escape character"}, regexp.MustCompile(`"[^"]*\\`).FindStringSubmatch,
		`in "..." a \ begins an escape: use '...', or write \\`},
	{[]string{noKey, noEntry, noContent}, hasBareTemplate, "text with { } must be in quotes: template: " +
		"'https://{name}.bmc.example.net'"},
	{[]string{noKey, noEntry}, hasTextBehindQuote, `text follows a closing quote: put '...' around text that has ", ` +
		`and "..." around text that has '`},
	{[]string{""}, regexp.MustCompile("^ *```").FindStringSubmatch,
		"``` is Markdown's mark around code: remove the line"},
	{[]string{noToken, "non-alphabetical"}, regexp.MustCompile("(^|[:,\\[{-]) *[@`%]").FindStringSubmatch,
		"text that begins with @, ` or % must be in quotes"},
	{noColon, regexp.MustCompile(`^\s*(//|/\*)`).FindStringSubmatch,
		"this is no comment: a comment begins with #"},
	{noColon, regexp.MustCompile(`^\s*-[A-Za-z_]`).FindStringSubmatch,
		"a space is missing after -: write - name: racks"},
	{noColon, regexp.MustCompile(`^\s*(?:- +)*([A-Za-z][\w-]{0,40}):[^\s/:]`).FindStringSubmatch,
		"a space is missing after the colon of %s"},
	{noColon, regexp.MustCompile(`^\s*(?:- +)*[A-Za-z][\w-]* *=`).FindStringSubmatch,
		"a key and its value are written as mode: observe, with a colon"},
	{noColon, hasNoColon,
		"a colon is missing: a key and its value are written as mode: observe"},
	{[]string{noColonHere}, regexp.MustCompile(`^[^:#'"{\[]*: +[^\s'"{\[|>&*!#][^#]*:( |$)`).FindStringSubmatch,
		`two colons are in this line: put a value that has ": " in quotes, and each key on a line of its own`},
	{[]string{noKey, noContent, noDocument}, closesMore, "a } or ] in this line closes nothing: remove it"},
}

// specialSpace matches a space that YAML takes for a letter.
var specialSpace = regexp.MustCompile("^[^#]*[\u00a0\u2000-\u200b\u202f\u3000]")

const aSpecialSpace = "a no-break space, or another special one, is in this line: replace it by a plain space"

// findSlip returns the cause of a line's slip; "" if it shows none.
func findSlip(line, words string) (cause string) {
	if isBlank(line) && !strings.HasPrefix(strings.TrimLeft(line, " "), "\t") {
		return ""
	}
	for _, s := range slips {
		if !slices.ContainsFunc(s.words, func(w string) bool { return strings.Contains(words, w) }) {
			continue
		}
		switch m := s.line(line); {
		case len(m) > 1 && strings.Contains(s.cause, "%s"):
			return fmt.Sprintf(s.cause, label(m[1]))
		case m != nil:
			return s.cause
		}
	}
	return ""
}

// found makes a condition a match of slips.
func found(is bool) []string {
	if is {
		return []string{""}
	}
	return nil
}

// hasBareTemplate finds a template's placeholder, or {{, outside of quotes.
func hasBareTemplate(line string) []string {
	at := bareTemplate.FindStringIndex(line)
	if at == nil {
		return nil
	}
	before := line[:at[0]]
	return found(strings.Count(before, `"`)%2 == 0 && strings.Count(before, "'")%2 == 0)
}

var bareTemplate = regexp.MustCompile(`\{\{|\{(name|uuid|label:[^{}]*|annotation:[^{}]*)\}`)

// hasTextBehindQuote finds text that follows a quoted value or key.
func hasTextBehindQuote(line string) []string {
	for _, m := range quoted.FindAllStringSubmatchIndex(line, -1) {
		rest := strings.TrimLeft(line[m[1]:], " ")
		if rest != "" && !strings.ContainsAny(rest[:1], ",}]:#") {
			return found(true)
		}
	}
	return nil
}

var quoted = regexp.MustCompile(`(?:^|[:,\[{-]) *("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')`)

// hasNoColon finds a line of plain text: no key, no flow, no quote.
func hasNoColon(line string) []string {
	return found(!strings.Contains(line+" ", ": ") && !strings.ContainsAny(line, `{}[]"'|>`) &&
		strings.Trim(line, " -.") != "")
}

// closesMore finds a line that closes more than it opens.
func closesMore(line string) []string {
	return found(strings.Count(line, "}")+strings.Count(line, "]") > strings.Count(line, "{")+strings.Count(line, "["))
}

// opensQuote finds a value that begins with a quote and does not end with it.
func opensQuote(line string) []string {
	return unclosed.FindStringSubmatch(quoted.ReplaceAllString(line, ":x"))
}

var unclosed = regexp.MustCompile(`(?:^|[:,\[{-]) *(?:"[^"]*|'[^']*)$`)

// opensMore reports whether lines open more brackets than they close. Text in quotes and comments do not count.
func opensMore(lines []string) bool {
	more := 0
	for _, l := range lines {
		l = quotedOrComment.ReplaceAllString(l, "")
		more += strings.Count(l, "{") + strings.Count(l, "[") - strings.Count(l, "}") - strings.Count(l, "]")
	}
	return more > 0
}

var (
	quotedOrComment = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|(?:^| )#.*`)
	emptyValue      = regexp.MustCompile(`: *(?:null|~|\[ *\]|\{ *\}|""|'')[ \r]*(?:#.*)?$`)
)

// explainIndent returns the line that is indented wrong, and how to indent it; "" if the indentation seems to be right.
// before is the last line with content before the line at.
func explainIndent(lines []string, words string, before, at int) (line int, cause string) {
	open, indent := openColumns(lines[:at-1]), indentOf(lines[at-1])
	if len(open) == 0 {
		return 0, ""
	}
	column := open[len(open)-1] // of the key, or of the text, on the line before
	switch {
	case strings.Contains(words, noKey) && emptyValue.MatchString(lines[before-1]) &&
		strings.HasPrefix(strings.TrimLeft(lines[at-1], " "), "- "):
		return before, fmt.Sprintf("this key has an empty value, but line %d begins its list: remove what follows the "+
			"colon", at)
	case strings.Contains(words, noKey) && isItem(lines[at-1], indent):
		key := before // the last line at the column of the item
		for key > 0 && (isBlank(lines[key-1]) || indentOf(lines[key-1]) > indent) {
			key--
		}
		if slices.ContainsFunc(lines[:key], func(l string) bool { return isItem(l, indent) }) {
			return key, fmt.Sprintf("line %d has a further item of the list above: indent this line, as the keys of "+
				"the item before it", at)
		}
	case strings.Contains(words, noColonHere) && indent > column:
		if earlier := openColumns(lines[:before-1]); slices.Contains(earlier, indent) {
			return before, fmt.Sprintf("this line begins at column %d, and the lines around it at column %d: indent "+
				"them alike", column+1, indent+1)
		}
		return at, fmt.Sprintf("this line begins at column %d, but line %d has its value already: begin at column %d, "+
			"as the key there", indent+1, before, column+1)
	case strings.Contains(words, noDocument) && indent < open[0]:
		first := slices.IndexFunc(lines, func(l string) bool { return !isBlank(l) })
		return first + 1, fmt.Sprintf("this line begins at column %d, and line %d at column %d: indent them alike",
			open[0]+1, at, indent+1)
	case (strings.Contains(words, noKey) || strings.Contains(words, noItem)) && !slices.Contains(open, indent):
		columns := mapList(open, func(c int) string { return fmt.Sprint(c + 1) })
		return at, fmt.Sprintf("this line begins at column %d, where no line above begins: use column %s", indent+1,
			either(columns))
	case strings.Contains(words, noItem):
		return at, fmt.Sprintf("this line begins at the column of a list's -: a key of that item begins at column %d, "+
			"and a further item with -", indent+3)
	}
	return 0, ""
}

// openColumns returns where the blocks begin that are open after the lines, from 0 and from the outermost. An item of a
// list opens two: that of its -, and that of its content.
func openColumns(lines []string) (open []int) {
	for _, l := range lines {
		if isBlank(l) {
			continue
		}
		column := indentOf(l)
		open = slices.DeleteFunc(open, func(c int) bool { return c > column })
		for rest, item := l[column:], true; item; column = len(l) - len(rest) {
			if !slices.Contains(open, column) {
				open = append(open, column)
			}
			rest, item = strings.CutPrefix(rest, "- ")
			rest = strings.TrimLeft(rest, " ")
		}
	}
	return open
}

// isItem reports whether a line begins an item of a list at that column.
func isItem(line string, column int) bool {
	return indentOf(line) == column && strings.HasPrefix(line[column:], "- ")
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// syntaxWords are the library's words that say too little, and what they mean.
var syntaxWords = []struct{ words, cause string }{
	{"unknown anchor", "text that begins with * must be in quotes (anchors and aliases are not read here)"},
	{"alphabetic or numeric", "text that begins with & or * must be in quotes (anchors and aliases are not read here)"},
	{"unexpected end of stream", "a quote is opened and not closed"},
	{noEntry + " '}'", "a { is opened and not closed, or a comma is missing: {key: value, key: value}"},
	{noEntry + " ']'", "a [ is opened and not closed, or a comma is missing: [item, item]"},
	{noContent, "a value is missing before a comma or a bracket, or begins with one: put such text in quotes"},
	{noDocument, "text follows the end of the configuration: remove it, or the brackets or dots above"},
	{noKey, "a key is expected here (key: value), at the column of the keys above"},
	{noColonHere, `a colon is not allowed here: put text that has ": " in quotes`},
	{"block sequence entries", "a list begins on the line after its key: write - item there"},
	{"unknown escape character", `in "..." a \ begins an escape: use '...', or write \\`},
	{"comment or line break", "text that begins with | or > must be in quotes"},
	{"control characters", "a control character: write the file as plain text in UTF-8"},
	{"UTF-8", "this is not UTF-8: write the file in that encoding"},
}
