package providers

import (
	"errors"
	"regexp"
	"strings"
	"unicode"
)

// ErrorCause returns what an Event shows of a device's error: its class and its ErrorText.
func ErrorCause(err error) string {
	if err == nil {
		return ErrorClass(err)
	}
	return ErrorClass(err) + ": " + ErrorText(err)
}

// ErrorText returns what an Event or a log line may show of a device's error: the cause without the act and the
// machine, in one line of printable text, at most 200 bytes, and "" for nil. What precedes an @ in an address is left
// out. Providers promise that their errors hold no secret; ErrorText bounds what a device can put into an error.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	var cause *classedError // the outermost: what is around it is the path by which the error came
	if errors.As(err, &cause) {
		text = cause.Error()
	}
	if len(text) > 4096 {
		text = text[:4096]
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text)
	text = userinfo.ReplaceAllString(strings.Join(strings.Fields(text), " "), "://")
	const longest, dots = 200, "..."
	if len(text) > longest {
		text = strings.TrimRight(strings.ToValidUTF8(text[:longest-len(dots)], ""), ". ") + dots
	}
	return text
}

var userinfo = regexp.MustCompile(`://[^/\s]*@`)
