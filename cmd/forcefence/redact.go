package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// redacted replaces what may be a secret.
const redacted = "<redacted>"

// maxText is how many bytes are kept of one text of an object, because the author of an Event or a condition chooses
// its length.
const maxText = 16 << 10

var (
	// secretName matches names of settings, variables and options whose values are secret.
	secretName = regexp.MustCompile(`(?i)passw|passphrase|passcode|pwd|secret|token|community|credential|cookie|` +
		`authori[sz]ation|(api|access|account|auth|client|encryption|master|private|session|shared|signing)[_.-]?key|` +
		`session[_.-]?id|` +
		`(^|[^a-z])(pass|pw|jwt|psk)($|[^a-z])|(^|[_.-])kg$`)
	camelPass = regexp.MustCompile(`[a-z]P(ass|w)($|[^a-z])|^pass[A-Z]`) // bmcPass
	// placeName matches names whose values say where a secret is.
	placeName = regexp.MustCompile(`(?i)(file|env|path|name|ref|option)$`)
	// lineName matches names whose secret has several words: it reaches to the end of the line or of the quotation.
	lineName = regexp.MustCompile(`(?i)authori[sz]ation|cookie`)
)

// isSecret reports whether the value of this name is secret.
func isSecret(name string) bool {
	return (secretName.MatchString(name) || camelPass.MatchString(name)) && !placeName.MatchString(name)
}

// isSecretOption reports whether a program's option takes a secret as its next argument. -p and -P are such options of
// fence agents and of ipmitool. If they mean a port elsewhere, its loss does no harm.
func isSecretOption(name string) bool {
	return name == "-p" || name == "-P" || strings.HasPrefix(name, "-") && isSecret(name)
}

// programPattern matches programs whose short options take secrets that the same options of other programs do not.
var programPattern = regexp.MustCompile(`^(?:.*[/.])?(curl|ipmitool|snmp)(?:[a-z]*)$`)

// programOf returns the program that a name calls; "" if it calls none of those.
func programOf(name string) string {
	if m := programPattern.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

// secretOptions are the options of programs that take secrets, beside those of every program. The letters of one
// argument are several options, of which the last may take a value: -sku USER:PASSWORD, -uUSER:PASSWORD.
var secretOptions = map[string]struct {
	letters string // that take a secret
	flags   string // that take no value
	long    string // matches names
}{
	"curl":     {"uUEb", "sSkvfLiIgGNOjanqR0123#", "--user --proxy-user --cert --cookie --oauth2-bearer"},
	"ipmitool": {"kyPp", "v", ""},
	"snmp":     {"AXcZ", "", ""},
}

// programSecret returns where in a program's argument a secret begins: len(name) if it is the next argument, 0 if there
// is none.
func programSecret(program, name string) int {
	o, known := secretOptions[program]
	switch {
	case !known || len(name) < 2 || name[0] != '-':
		return 0
	case name[1] == '-':
		if slices.Contains(strings.Fields(o.long), name) {
			return len(name)
		}
		return 0
	}
	for i := 1; i < len(name); i++ {
		if strings.IndexByte(o.letters, name[i]) >= 0 {
			return i + 1
		}
		if strings.IndexByte(o.flags, name[i]) < 0 {
			return 0
		}
	}
	return 0
}

// textPatterns matches text that looks like a secret anywhere, with its replacement.
var textPatterns = []struct {
	find *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`),
		redacted},
	{regexp.MustCompile(`((?:[?&;]|\\u0026)(?i:x-amz-signature|x-goog-signature|signature|sig)=)[^\s"'&;<>\\]+`),
		"${1}" + redacted}, // a signed address
	{regexp.MustCompile(`(://)[^/\s"'<>]*@`), "${1}" + redacted + "@"}, // a user, and perhaps a password, in an address
	// HTTP's Authorization.
	{regexp.MustCompile(`(?i)\b(bearer|basic|digest)\s+[^\s"',;]{6,}`), "${1} " + redacted},
	{regexp.MustCompile(`\b(Negotiate|NTLM)\s+[^\s"',;]+`), "${1} " + redacted},
	// A JSON web token, such as a ServiceAccount's.
	{regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+(\.[\w-]*)*`), redacted},
	// Prefixes by which issuers make their tokens recognizable: code hosts, clouds, registries, chats.
	{regexp.MustCompile(`\b(gh[pousr]_\w{10,}|github_pat_\w{10,}|` +
		`gl(pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct|wt)-[\w.-]{10,}|ATBB\w{20,}|ATATT3[\w=-]{20,}|` +
		`xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}|(AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{12,}|AIza[\w-]{20,}|ya29\.[\w.-]{10,}|` +
		`GOCSPX-[\w-]{10,}|npm_\w{20,}|pypi-[\w-]{20,}|dckr_(pat|oat)_[\w-]{10,}|hv[sbr]\.[\w-]{20,}|` +
		`[rs]k_(live|test)_\w{10,}|sk-([a-z]+-)?\w{32,}|hf_\w{20,}|SG\.[\w-]{10,}\.[\w-]{10,}|do[opr]_v1_\w{20,}|` +
		`sha256~[\w-]{20,}|AGE-SECRET-KEY-1[0-9A-Z]+)`), redacted},
	{regexp.MustCompile(`\$(1|2[abxy]|5|6|y|argon2[a-z]*)\$[^\s"',;]+`), redacted}, // a password's hash
}

var (
	// The text between a name and its value, and between an option and its argument.
	assignPattern   = regexp.MustCompile(`^\\*["']?\s*[:=]\s*`)
	argumentPattern = regexp.MustCompile(`^(\\*["']\s*,?\s*|\s+)`)
	// A value is in quotation marks (escaped ones too), in brackets, or one word. Of a value without an end, all the
	// rest matches.
	valuePattern = regexp.MustCompile(`^(\\+"([^"\\]|\\+[^"\\])*(\\+"|$)|"([^"\\]|\\.)*("|\\?$)|'[^']*('|$)|` +
		`\[[^\]]*(\]|$)|\{[^}]*(\}|$)|[^\s,;&}\])"']+)`)
	// A line goes on behind a quotation that is the value of a cookie, or that another cookie follows.
	linePattern = regexp.MustCompile(`^\\*["']?(=\\*["'][^\r\n"'\\]*\\*["']|\\*["'];|[^\r\n"'\\])+`)
)

// redactText removes from a text what looks like a secret. Its time is proportional to the text's length.
func redactText(text string) string {
	for _, r := range textPatterns {
		text = r.find.ReplaceAllString(text, r.with)
	}
	var out strings.Builder
	program := "" // on this line, before here
	for {
		begin := strings.IndexFunc(text, inName)
		if begin < 0 {
			out.WriteString(text)
			return out.String()
		}
		end := len(text)
		if n := strings.IndexFunc(text[begin:], notInName); n >= 0 {
			end = begin + n
		}
		if strings.ContainsAny(text[:begin], "\r\n") {
			program = ""
		}
		name := text[begin:end]
		inside := programSecret(program, name)
		if inside > 0 && inside < len(name) {
			end = begin + inside
		}
		program = cmp.Or(programOf(name), program)
		rest := text[end:]
		out.WriteString(text[:end])
		var between, secret int
		if inside > 0 && inside < len(name) {
			secret = len(valuePattern.FindString(rest))
		} else {
			between, secret = secretAfter(name, rest, inside > 0)
		}
		if strings.ContainsAny(rest[:between], "\r\n") {
			program = ""
		}
		out.WriteString(rest[:between])
		if secret > 0 {
			out.WriteString(redacted)
		}
		text = rest[between+secret:]
	}
}

// secretAfter returns two lengths in what follows a name: the text before the value, and the value. secret is 0 if
// nothing secret follows. option says that the name is an option of a program that takes a secret.
func secretAfter(name, rest string, option bool) (between, secret int) {
	option = option || isSecretOption(name)
	if !option && !isSecret(name) {
		return 0, 0
	}
	between = len(assignPattern.FindString(rest))
	if between == 0 && option {
		between = len(argumentPattern.FindString(rest))
	}
	if between == 0 {
		return 0, 0
	}
	rest = rest[between:]
	if option && strings.HasPrefix(strings.TrimLeft(rest, "\\\"'"), "-") {
		return between, 0 // the next option
	}
	if lineName.MatchString(name) {
		return between, len(linePattern.FindString(rest))
	}
	return between, len(valuePattern.FindString(rest))
}

func inName(r rune) bool {
	return r == '_' || r == '.' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

func notInName(r rune) bool { return !inName(r) }

// cutText shortens a text to at most limit bytes, plus the mark <cut>. It also removes the word at the limit, because
// half a token does not look like a token.
func cutText(text string, limit int, between string) string {
	if len(text) <= limit {
		return text
	}
	return text[:strings.LastIndexAny(text[:limit], between)+1] + "<cut>"
}

// cutAndRedact shortens one text of an object to maxText, and removes secrets from it.
func cutAndRedact(text string) string { return redactText(cutText(text, maxText, " \t\r\n\"',;")) }

// redactAll removes secrets from decoded JSON or YAML. It replaces the whole value if its name says that it is secret;
// in other texts it replaces what looks like a secret.
func redactAll(v any) any { return redactValue(v, false) }

func redactValue(v any, secret bool) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			hidden := isSecret(key) || secret && !placeName.MatchString(key)
			if clean := cutAndRedact(key); clean != key { // the key itself holds a secret
				delete(v, key)
				key = clean
			}
			v[key] = redactValue(value, hidden)
		}
		return v
	case []any:
		argument, program := false, "" // of the option before it; called before it
		for i := range v {
			option, _ := v[i].(string)
			v[i] = redactValue(v[i], secret || argument && !strings.HasPrefix(option, "-"))
			inside := programSecret(program, option)
			if inside > 0 && inside < len(option) {
				v[i] = option[:inside] + redacted
			}
			argument = isSecretOption(option) || inside > 0 && inside == len(option)
			program = cmp.Or(programOf(option), program)
		}
		return v
	}
	if s, ok := v.(string); ok && !secret {
		return cutAndRedact(s)
	}
	if secret && v != nil {
		return redacted
	}
	return v
}
