package rest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/forcefence/forcefence/providers"
)

// placeholder is a variable in a template.
var placeholder = regexp.MustCompile(`\{([A-Za-z][A-Za-z0-9_]*)\}`)

// numberPlaceholder is a whole text of a JSON body, in whose place a variable's number is sent.
var numberPlaceholder = regexp.MustCompile(`^\{([A-Za-z][A-Za-z0-9_]*):number\}$`)

// checkTemplate returns what is wrong with a template: a name that is not known at this place, or a lone brace.
func checkTemplate(text string, known func(string) bool) error {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if !known(m[1]) {
			return fmt.Errorf("{%s} is no variable here", m[1])
		}
	}
	if strings.ContainsAny(placeholder.ReplaceAllString(text, ""), "{}") {
		return fmt.Errorf("has a brace that belongs to no variable: write {name}")
	}
	return nil
}

// fillTemplate replaces the variables of a valid template.
func fillTemplate(text string, vars map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string { return vars[m[1:len(m)-1]] })
}

// fillJSON replaces the variables in all texts of a JSON value, but not in its keys. Marshalling the result fails if a
// number's variable is none.
func fillJSON(v any, vars map[string]string) any {
	switch v := v.(type) {
	case string:
		if m := numberPlaceholder.FindStringSubmatch(v); m != nil {
			return json.Number(vars[m[1]])
		}
		return fillTemplate(v, vars)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = fillJSON(v[i], vars)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = fillJSON(v[key], vars)
		}
		return out
	}
	return v
}

// textsOf returns all texts of a JSON value, as templates.
func textsOf(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{numberPlaceholder.ReplaceAllString(v, "{$1}")}
	case []any:
		for i := range v {
			out = append(out, textsOf(v[i])...)
		}
	case map[string]any:
		for key := range v {
			out = append(out, textsOf(v[key])...)
		}
	}
	return out
}

// optionalPart is a part of a path that is left out if its variable is empty: [/sets/{set}].
var optionalPart = regexp.MustCompile(`\[(/[^\[\]{}]*)?/\{([A-Za-z][A-Za-z0-9_]*)\}\]`)

// fillPath replaces the variables of a path with a query, and leaves out its optional parts whose variable is empty. A
// variable stays within its segment: it is escaped, and one that a server may read as another segment is refused.
func fillPath(path string, vars map[string]string) (string, error) {
	var err error
	before, query, _ := strings.Cut(path, "?")
	before = optionalPart.ReplaceAllStringFunc(before, func(part string) string {
		if vars[optionalPart.FindStringSubmatch(part)[2]] == "" {
			return ""
		}
		return part[1 : len(part)-1]
	})
	fill := func(text string, escape func(string) string) string {
		return placeholder.ReplaceAllStringFunc(text, func(m string) string {
			name := m[1 : len(m)-1]
			v := vars[name]
			if strings.Trim(v, ".") == "" || strings.ContainsFunc(v, unicode.IsControl) {
				err = providers.Errorf(providers.ErrPermanent, "{%s} is %q, which no path can have", name, v)
			}
			return escape(v)
		})
	}
	out := fill(before, url.PathEscape)
	if query != "" {
		out += "?" + fill(query, url.QueryEscape)
	}
	return out, err
}
