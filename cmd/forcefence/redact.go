package main

import (
	"regexp"
	"strings"
)

// redacted stands where a secret may have been.
const redacted = "<redacted>"

// maxText is how much of one text of an object is kept: whoever writes an Event or a condition chooses its length.
const maxText = 16 << 10

var (
	// secretName is how settings, variables and options are called whose values are secret.
	secretName = regexp.MustCompile(`(?i)passw|passphrase|passcode|pwd|secret|token|community|credential|cookie|` +
		`authori[sz]ation|(api|access|account|auth|client|encryption|master|private|session|shared|signing)[_.-]?key|session[_.-]?id|` +
		`(^|[^a-z])(pass|pw|jwt)($|[^a-z])`)
	camelPass = regexp.MustCompile(`[a-z]P(ass|w)($|[^a-z])|^pass[A-Z]`) // bmcPass
	// placeName are those that say where a secret is.
	placeName = regexp.MustCompile(`(?i)(file|env|path|name|ref|option)$`)
	// lineName are those whose secret has several words: all to the end of the line or of the quotation.
	lineName = regexp.MustCompile(`(?i)authori[sz]ation|cookie`)
)

// isSecret reports that what has this name is secret.
func isSecret(name string) bool {
	return (secretName.MatchString(name) || camelPass.MatchString(name)) && !placeName.MatchString(name)
}

// isSecretOption reports that a program's option takes a secret as its next argument. -p and -P are fence agents' and
// ipmitool's; a port that goes with them is no loss.
func isSecretOption(name string) bool {
	return name == "-p" || name == "-P" || strings.HasPrefix(name, "-") && isSecret(name)
}

// textPatterns are what looks like a secret wherever it stands, and what stands there then.
var textPatterns = []struct {
	find *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`),
		redacted},
	{regexp.MustCompile(`(://)[^/\s"'<>]*@`), "${1}" + redacted + "@"}, // a user, and perhaps a password, in an address
	// HTTP's Authorization.
	{regexp.MustCompile(`(?i)\b(bearer|basic|digest)\s+[^\s"',;]{6,}`), "${1} " + redacted},
	{regexp.MustCompile(`\b(Negotiate|NTLM)\s+[^\s"',;]+`), "${1} " + redacted},
	// A JSON web token, such as a ServiceAccount's.
	{regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+(\.[\w-]*)*`), redacted},
	// What issuers of tokens put before them so that they are found: code hosts, clouds, registries, chats.
	{regexp.MustCompile(`\b(gh[pousr]_\w{10,}|github_pat_\w{10,}|` +
		`gl(pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct|wt)-[\w.-]{10,}|ATBB\w{20,}|ATATT3[\w=-]{20,}|` +
		`xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}|(AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{12,}|AIza[\w-]{20,}|ya29\.[\w.-]{10,}|` +
		`GOCSPX-[\w-]{10,}|npm_\w{20,}|pypi-[\w-]{20,}|dckr_(pat|oat)_[\w-]{10,}|hv[sbr]\.[\w-]{20,}|` +
		`[rs]k_(live|test)_\w{10,}|sk-([a-z]+-)?\w{32,}|hf_\w{20,}|SG\.[\w-]{10,}\.[\w-]{10,}|do[opr]_v1_\w{20,}|` +
		`sha256~[\w-]{20,}|AGE-SECRET-KEY-1[0-9A-Z]+)`), redacted},
	{regexp.MustCompile(`\$(1|2[abxy]|5|6|y|argon2[a-z]*)\$[^\s"',;]+`), redacted}, // a password's hash
}

var (
	// What stands between a name and its value, and between an option and its argument.
	assignPattern   = regexp.MustCompile(`^\\*["']?\s*[:=]\s*`)
	argumentPattern = regexp.MustCompile(`^(\\*["']\s*,?\s*|\s+)`)
	// A valuePattern: in quotation marks, escaped ones too, or in brackets, or one word. Of one that does not end, all that
	// there is.
	valuePattern = regexp.MustCompile(`^(\\+"([^"\\]|\\+[^"\\])*(\\+"|$)|"([^"\\]|\\.)*("|\\?$)|'[^']*('|$)|` +
		`\[[^\]]*(\]|$)|\{[^}]*(\}|$)|[^\s,;&}\])"']+)`)
	linePattern = regexp.MustCompile(`^\\*["']?[^\r\n"'\\]+`)
)

// redactText takes out of a text what looks like a secret. It takes time in proportion to the text.
func redactText(text string) string {
	for _, r := range textPatterns {
		text = r.find.ReplaceAllString(text, r.with)
	}
	var out strings.Builder
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
		name, rest := text[begin:end], text[end:]
		out.WriteString(text[:end])
		between, secret := secretAfter(name, rest)
		out.WriteString(rest[:between])
		if secret > 0 {
			out.WriteString(redacted)
		}
		text = rest[between+secret:]
	}
}

// secretAfter tells how long what follows a name is: what stands between it and its value, and the value. 0: nothing
// secret follows.
func secretAfter(name, rest string) (between, secret int) {
	option := isSecretOption(name)
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

// cutText shortens a text to at most limit bytes. The word that the limit falls into goes, too: half a token looks like
// none.
func cutText(text string, limit int, between string) string {
	if len(text) <= limit {
		return text
	}
	return text[:strings.LastIndexAny(text[:limit], between)+1] + "<cut>"
}

// cutAndRedact is scrub of one text of an object.
func cutAndRedact(text string) string { return redactText(cutText(text, maxText, " \t\r\n\"',;")) }

// redactAll takes secrets out of what JSON or YAML decodes to: whole where their name says that they are, from texts
// otherwise.
func redactAll(v any) any { return redactValue(v, false) }

func redactValue(v any, secret bool) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			hidden := isSecret(key) || secret && !placeName.MatchString(key)
			if clean := cutAndRedact(key); clean != key { // whoever wrote a secret as a key
				delete(v, key)
				key = clean
			}
			v[key] = redactValue(value, hidden)
		}
		return v
	case []any:
		argument := false // of the option before it
		for i := range v {
			option, _ := v[i].(string)
			v[i] = redactValue(v[i], secret || argument && !strings.HasPrefix(option, "-"))
			argument = isSecretOption(option)
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
