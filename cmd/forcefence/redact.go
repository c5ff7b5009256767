package main

import (
	"regexp"
)

// redacted stands where a secret may have been.
const redacted = "<redacted>"

// secretName is how settings, variables and options are called whose values are secret; placeName, those that say where one is.
var (
	secretName = regexp.MustCompile(`(?i)passw|passphrase|secret|token|community|credential|cookie|authori[sz]ation|api[_.-]?key|access[_.-]?key|private[_.-]?key|session[_.-]?id`)
	placeName  = regexp.MustCompile(`(?i)(file|env|path|name|ref|option)$`)
)

// What looks like a secret in a text, wherever it stands.
var (
	inText = []struct {
		find *regexp.Regexp
		with string
	}{
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), redacted},
		{regexp.MustCompile(`(://)[^/\s"'<>]*@`), "${1}" + redacted + "@"},                      // a user, and perhaps a password, in an address
		{regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+(\.[\w-]*)?`), redacted},                        // a JSON web token, such as a ServiceAccount's
		{regexp.MustCompile(`(?i)\b(bearer|basic|digest)\s+[^\s"',;]{6,}`), "${1} " + redacted}, // HTTP's Authorization
		{regexp.MustCompile(`\b(AKIA|ASIA)[0-9A-Z]{12,}`), redacted},                            // AWS
		{regexp.MustCompile(`(?i)(--?[\w-]*(?:passw|secret|token|community)[\w-]*)\s+("[^"]*"|'[^']*'|[^\s"']+)`), "${1} " + redacted},
	}
	pair = regexp.MustCompile(`([\w.-]+)(\\?["']?\s*[:=]\s*)(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&}\])"']+)`)
)

// isSecret reports that what has this name is secret.
func isSecret(name string) bool { return secretName.MatchString(name) && !placeName.MatchString(name) }

// scrub takes out of a text what looks like a secret.
func scrub(text string) string {
	for _, r := range inText {
		text = r.find.ReplaceAllString(text, r.with)
	}
	return pair.ReplaceAllStringFunc(text, func(all string) string {
		m := pair.FindStringSubmatch(all)
		if isSecret(m[1]) {
			return m[1] + m[2] + redacted
		}
		return m[1] + m[2] + scrub(m[3]) // it may hold further ones
	})
}

// scrubAll takes secrets out of what JSON or YAML decodes to: whole where their name says that they are, from texts otherwise.
func scrubAll(v any) any { return scrubValue(v, false) }

func scrubValue(v any, secret bool) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			hidden := isSecret(key) || secret && !placeName.MatchString(key)
			if clean := scrub(key); clean != key { // whoever wrote a secret as a key
				delete(v, key)
				key = clean
			}
			v[key] = scrubValue(value, hidden)
		}
		return v
	case []any:
		for i := range v {
			v[i] = scrubValue(v[i], secret)
		}
		return v
	}
	if s, ok := v.(string); ok && !secret {
		return scrub(s)
	}
	if secret && v != nil {
		return redacted
	}
	return v
}
