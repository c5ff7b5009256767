package fenceagent

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// shortest is how many letters of a form's beginning count as the form at the end of an output, and the minimum length
// of an encoded form.
const shortest = 4

// hasSecret reports whether an output holds a secret: as it is, quoted for a shell, escaped for an address, XML or
// JSON, in hexadecimal, or in base64, alone or behind a user's name. It also reports true if the output ends within a
// secret, because the output is bounded and agents cut words. It ignores line breaks, which base64 has, so it needs the
// whole output, before anything is cut off.
func hasSecret(output string, secrets []string) bool {
	output = strings.TrimRight(output, ".… \t\r\n")
	views := []string{output, html.UnescapeString(output), unescapePercent(output), unescapeBackslash(output)}
	views = append(views, unescapePercent(html.UnescapeString(unescapeBackslash(output))))
	for _, s := range secrets {
		bare, encoded := stripQuoting(s, "+"), base64Forms(s)
		for _, view := range views {
			if strings.Contains(view, s) || hasForm(stripQuoting(view, "+"), bare) {
				return true
			}
			for _, form := range encoded {
				if hasForm(stripQuoting(view, ""), form) {
					return true
				}
			}
		}
		if form := hex.EncodeToString([]byte(s)); len(form) >= shortest &&
			hasForm(hexSeparators.Replace(strings.ToLower(output)), form) {
			return true
		}
	}
	return false
}

// hasForm reports whether a text holds a form, or ends with the beginning of it.
func hasForm(text, form string) bool {
	if form == "" {
		return false
	}
	for n := min(len(form)-1, len(text)); n >= shortest; n-- {
		if strings.HasSuffix(text, form[:n]) {
			return true
		}
	}
	return strings.Contains(text, form)
}

// stripQuoting removes from a text what quoting and wrapping add, even where it belongs to the text. A secret is
// compared without it, too.
func stripQuoting(text, also string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || strings.ContainsRune("'\"`\\"+also, r) {
			return -1
		}
		return r
	}, text)
}

// base64Forms returns the base64 texts of a secret at each place of a longer text, without the letters that depend on
// the context.
func base64Forms(s string) (forms []string) {
	for before, mixed := range []int{0, 2, 3} {
		raw := append(make([]byte, before), s...)
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if form := alphabet.EncodeToString(raw)[:len(raw)*8/6]; len(form)-mixed >= shortest {
				forms = append(forms, form[mixed:])
			}
		}
	}
	return forms
}

var (
	hexSeparators = strings.NewReplacer(`\x`, "", "0x", "", " ", "", "\n", "", "\r", "", "\t", "", ":", "", ",", "",
		"-", "", "'", "", `"`, "")
	percent   = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	backslash = regexp.MustCompile(`\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[nrt])`)
)

// unescapePercent decodes the percent escapes of an address; anything else remains.
func unescapePercent(text string) string {
	return percent.ReplaceAllStringFunc(text, func(e string) string {
		b, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(b)})
	})
}

// unescapeBackslash decodes the escapes of a string of Python or JSON.
func unescapeBackslash(text string) string {
	return backslash.ReplaceAllStringFunc(text, func(e string) string {
		code, err := strconv.ParseUint(e[2:], 16, 16)
		switch {
		case err != nil:
			return " " // a line's end, or a tab
		case e[1] == 'x':
			return string([]byte{byte(code)})
		}
		return string(rune(code))
	})
}
