package config

import (
	"encoding"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"github.com/forcefence/forcefence/providers"
)

// reader reads and checks one file.
type reader struct {
	faults
	reg   providers.Registry
	parts map[string]part // path of a provider -> its type and settings
	named map[string]bool // environment variables that the settings name

	secrets map[string]string // path -> the file of a secret
	own     map[string]string // path -> a setting of credentials that each machine has of its own

	skipFiles bool // see SkipFiles
}

type part struct {
	typ    string
	config providers.Config
}

func newReader(file string, reg providers.Registry) *reader {
	return &reader{
		faults:  faults{file: file, lines: map[string]int{}, bad: map[string]bool{}, env: map[string]string{}},
		reg:     reg,
		parts:   map[string]part{},
		named:   map[string]bool{},
		secrets: map[string]string{},
		own:     map[string]string{},
	}
}

// delimiter between the parts of a viper key: YAML allows no such character, so no key can hold it.
const delimiter = "\x00"

// decode fills cfg, which holds the defaults, from the document and the environment. It returns false where that was not
// possible at all. Faulty values keep their default.
func (r *reader) decode(root *yaml.Node, cfg *Config) bool {
	r.lines[""] = root.Line
	sound, ok := r.value(root, reflect.TypeFor[Config](), "")
	if !ok {
		return false
	}
	v := viper.NewWithOptions(viper.KeyDelimiter(delimiter))
	if err := v.MergeConfigMap(sound.(map[string]any)); err != nil {
		r.fault(root.Line, "", "%s", oneLine(err.Error()))
		return false
	}
	r.bindEnv(v, reflect.TypeFor[Config](), "")
	err := v.Unmarshal(cfg, func(c *mapstructure.DecoderConfig) {
		strict(c)
		c.DecodeHook = fromEnv
	})
	if err != nil {
		r.fault(root.Line, "", "%s", oneLine(err.Error()))
		return false
	}
	for i := range cfg.Providers {
		p := r.parts[item("providers", i)]
		cfg.Providers[i].Type, cfg.Providers[i].Config = p.typ, p.config
	}
	r.setOwn(cfg)
	return true
}

// strict sets what viper and mapstructure leave loose. ZeroFields replaces a default list or map instead of merging into it.
func strict(c *mapstructure.DecoderConfig) {
	c.TagName = "yaml"
	c.WeaklyTypedInput = false
	c.ErrorUnused = true
	c.ZeroFields = true
	c.Squash = true // what is embedded; fieldsOf says what that is
}

// bindEnv lets the environment override the scalars of struct type t.
func (r *reader) bindEnv(v *viper.Viper, t reflect.Type, path string) {
	for _, f := range fieldsOf(t) {
		p := join(path, f.name)
		switch k := kindOf(f.typ); {
		case k == kindMapping:
			r.bindEnv(v, f.typ, p)
		case k.isScalar():
			name := EnvName(p)
			text := os.Getenv(name)
			if text == "" {
				continue
			}
			r.env[p] = name
			delete(r.bad, p) // what the file says is not used
			if _, problem := scalar(envNode(f.typ, text), f.typ); problem != "" {
				r.report(p, "%s", problem)
				r.bad[p] = true
				continue
			}
			_ = v.BindEnv(strings.ReplaceAll(p, ".", delimiter), name)
		}
	}
}

// serviceEnv matches what Kubernetes sets in a pod for each Service, and for the ports of each.
var serviceEnv = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// testEnv begins the variables of the repository's own tests, which run forcefence under them.
var testEnv = []string{"FORCEFENCE_TEST_", "FORCEFENCE_REQUIRE_", "FORCEFENCE_E2E"}

// unknownEnv reports variables that somebody set for us and that name no key: a mode that is misspelt would not be in force.
func (r *reader) unknownEnv() {
	known := envNames(reflect.TypeFor[Config](), "")
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case !strings.HasPrefix(name, envPrefix) || value == "" || slices.Contains(known, strings.TrimPrefix(name, envPrefix)) || r.named[name]:
		case serviceEnv.MatchString(name):
		case slices.ContainsFunc(testEnv, func(p string) bool { return strings.HasPrefix(name, p) }):
		default:
			if now := removedEnv(name); now != "" {
				r.add(1, "", "the environment variable %s was removed: %s", name, now)
				continue
			}
			near := nearest(strings.TrimPrefix(name, envPrefix), known)
			if near != "" {
				near = fmt.Sprintf(": did you mean %q?", envPrefix+near)
			}
			r.add(1, "", fmt.Sprintf("the environment variable %s names no key%s", label(name), near))
		}
	}
}

// envNames are the variables of the scalars of struct type t, without their prefix.
func envNames(t reflect.Type, path string) []string {
	var out []string
	for _, f := range fieldsOf(t) {
		switch p, k := join(path, f.name), kindOf(f.typ); {
		case k == kindMapping:
			out = append(out, envNames(f.typ, p)...)
		case k.isScalar():
			out = append(out, strings.TrimPrefix(EnvName(p), envPrefix))
		}
	}
	return out
}

const envPrefix = "FORCEFENCE_"

// EnvName returns the environment variable that overrides the scalar at path: FORCEFENCE_LISTEN_METRICS for listen.metrics.
func EnvName(path string) string {
	var b strings.Builder
	b.WriteString(envPrefix)
	for _, c := range path {
		switch {
		case c == '.':
			b.WriteByte('_')
		case unicode.IsUpper(c):
			b.WriteByte('_')
			b.WriteRune(c)
		default:
			b.WriteRune(unicode.ToUpper(c))
		}
	}
	return b.String()
}

// envNode makes a node of a variable's text, typed as YAML would type it.
func envNode(t reflect.Type, text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if k := kindOf(t); k == kindDuration || k == kindText || k == kindOwnText {
		n.Tag = "!!str"
	}
	return n
}

// fromEnv is the decode hook for what came from the environment, the only text in a field that is not text: values of the file
// have their types already.
func fromEnv(from, to reflect.Type, data any) (any, error) {
	text, isText := data.(string)
	if !isText || from != reflect.TypeFor[string]() || to.Kind() == reflect.String || to.Kind() == reflect.Interface {
		return data, nil
	}
	v, problem := scalar(envNode(to, text), to)
	if problem != "" {
		return nil, fmt.Errorf("%s", problem)
	}
	return v, nil
}

// value holds a node against a Go type and returns it as Go values: map[string]any, []any, and scalars of the very type. The
// node's faults are reported; ok is false where nothing is left to use.
func (r *reader) value(n *yaml.Node, t reflect.Type, path string) (v any, ok bool) {
	line := r.lines[path]
	if n.Kind == yaml.AliasNode {
		r.fault(line, path, "anchors and aliases (&, *) are not read here: write the value out")
		return nil, false
	}
	switch kindOf(t) {
	case kindMapping:
		if t == providerType {
			return r.provider(n, path)
		}
		fields := fieldsOf(t)
		return r.mapping(n, path, fields, func(k, _ *yaml.Node) { r.unknown(k, path, n, names(fields)) })
	case kindFreeMapping:
		return r.freeMapping(n, t.Elem(), path)
	case kindList:
		return r.list(n, t.Elem(), path)
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && userinfo.MatchString(n.Value) {
		r.fault(line, path, "a password inside an address: use passwordFile or passwordEnv")
		return nil, false
	}
	v, problem := scalar(n, t)
	if problem != "" {
		r.fault(line, path, "%s", problem)
		return nil, false
	}
	if text, ok := v.(string); ok {
		r.noteText(path, text)
	}
	return v, true
}

// userinfo finds user:password@ in an address.
var userinfo = regexp.MustCompile(`://[^/@\s]*:[^/@\s]+@`)

// mapping reads a mapping whose keys are known; foreign is called for each other key. No value at all is an empty mapping.
func (r *reader) mapping(n *yaml.Node, path string, fields []field, foreign func(k, v *yaml.Node)) (any, bool) {
	out := map[string]any{}
	ok := r.pairs(n, path, func(k, v *yaml.Node, p string) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == k.Value })
		switch {
		case i < 0:
			foreign(k, v)
		case isLiteralSecret(k.Value) && v.Kind != yaml.MappingNode && inSettings(path):
			r.secret(k, path, names(fields))
		default:
			if val, ok := r.value(v, fields[i].typ, p); ok {
				out[k.Value] = val
				if name, isText := val.(string); isText && strings.HasSuffix(k.Value, "Env") && inSettings(path) {
					r.named[name] = true
				}
			}
		}
	})
	return out, ok
}

// freeMapping reads a mapping whose keys the user chooses.
func (r *reader) freeMapping(n *yaml.Node, elem reflect.Type, path string) (any, bool) {
	out := map[string]any{}
	ok := r.pairs(n, path, func(k, v *yaml.Node, p string) {
		switch {
		case k.ShortTag() != "!!str":
			r.fault(k.Line, p, "a key must be text: put it in quotes")
		case looksSecret(k.Value) && inSettings(path):
			r.secret(k, path, nil)
		default:
			if val, ok := r.value(v, elem, p); ok {
				out[k.Value] = val
			}
		}
	})
	return out, ok
}

// pairs calls each for every pair of a mapping, once per key.
func (r *reader) pairs(n *yaml.Node, path string, each func(k, v *yaml.Node, path string)) bool {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return true
	}
	if n.Kind != yaml.MappingNode {
		r.fault(r.lines[path], path, "want a mapping (key: value), have %s", describe(n))
		return false
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			r.add(k.Line, path, "a key must be text, not "+describe(k))
			continue
		}
		if k.ShortTag() == "!!merge" {
			r.add(k.Line, path, "merge keys (<<) are not read here: write the values out")
			continue
		}
		p := join(path, label(k.Value))
		if first := seen[k.Value]; first != 0 {
			r.fault(k.Line, p, "given twice: first on line %d", first)
			continue
		}
		seen[k.Value] = k.Line
		r.lines[p] = k.Line
		each(k, v, p)
	}
	return true
}

// list reads a list. Items that are mappings keep their place even if nothing of them is sound.
func (r *reader) list(n *yaml.Node, elem reflect.Type, path string) (any, bool) {
	out := []any{}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return out, true
	}
	if n.Kind != yaml.SequenceNode {
		r.fault(r.lines[path], path, "want a list (lines that begin with -), have %s", describe(n))
		return nil, false
	}
	for i, c := range n.Content {
		p := item(path, i)
		r.lines[p] = c.Line
		v, ok := r.value(c, elem, p)
		switch {
		case ok:
			out = append(out, v)
		case kindOf(elem) == kindMapping:
			out = append(out, map[string]any{})
		}
	}
	return out, true
}

// provider reads an item of providers: the common keys, and one key that is a type.
func (r *reader) provider(n *yaml.Node, path string) (any, bool) {
	fields := fieldsOf(providerType)
	typeKey := (*yaml.Node)(nil)
	v, ok := r.mapping(n, path, fields, func(k, v *yaml.Node) {
		typ, known := r.reg.FindType(k.Value)
		p := join(path, label(k.Value))
		switch {
		case !known && (v.Kind == yaml.MappingNode || v.ShortTag() == "!!null") && !looksSecret(k.Value):
			if near := nearest(k.Value, names(fields)); near != "" && nearest(k.Value, r.reg.TypeNames()) == "" {
				r.unknown(k, path, n, names(fields))
				return
			}
			typeKey = k
			r.fault(k.Line, p, "unknown provider type%s", hint(k.Value, r.reg.TypeNames()))
		case !known:
			r.unknown(k, path, n, append(names(fields), r.reg.TypeNames()...))
		case typeKey != nil:
			r.fault(k.Line, p, "a provider has one type, and line %d names one already", typeKey.Line)
		default:
			typeKey = k
			r.parts[path] = part{typ.Name, r.settings(typ, v, p)}
		}
	})
	if !ok {
		return nil, false
	}
	if typeKey == nil {
		r.report(path, "no type: add one of %s", known(r.reg.TypeNames()))
	}
	m := v.(map[string]any)
	concurrency := 2
	if typ, known := r.reg.FindType(r.parts[path].typ); known && typ.Concurrency > 0 {
		concurrency = typ.Concurrency
	}
	for key, def := range map[string]any{"timeout": 5 * time.Second, "ratePerSecond": 10.0, "concurrency": concurrency} {
		if _, given := m[key]; !given {
			m[key] = def
		}
	}
	return m, true
}

// settings reads and validates the settings of a provider's type.
func (r *reader) settings(typ providers.Type, n *yaml.Node, path string) providers.Config {
	cfg := typ.NewConfig()
	t := reflect.TypeOf(cfg)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		r.fault(n.Line, path, "type %s is built wrongly: its Config is not a pointer to a struct", typ.Name)
		return nil
	}
	sound, ok := r.value(n, t.Elem(), path)
	if !ok {
		return nil
	}
	dc := &mapstructure.DecoderConfig{Result: cfg}
	strict(dc)
	dec, err := mapstructure.NewDecoder(dc)
	if err == nil {
		err = dec.Decode(sound)
	}
	if err != nil { // value let through what the field cannot hold; the text may quote values, so it is not shown
		r.fault(n.Line, path, "these settings do not fit type %s", typ.Name)
		return nil
	}
	for _, p := range cfg.Validate() {
		if r.skipFiles && errors.Is(p.Err, fs.ErrNotExist) {
			continue
		}
		r.report(join(path, p.Path), "%s", oneLine(p.Text))
	}
	return cfg
}

// unknown reports a key that mapping n must not have, with the one probably meant. That one is then not called missing as well.
func (r *reader) unknown(k *yaml.Node, path string, n *yaml.Node, known []string) {
	if looksSecret(k.Value) {
		r.secret(k, path, known)
		return
	}
	if now := removedKeys[join(path, k.Value)]; now != "" {
		r.fault(k.Line, join(path, k.Value), "this key was removed: %s", now)
		return
	}
	if first, _, glued := strings.Cut(k.Value, ":"); glued && slices.Contains(known, first) {
		r.fault(k.Line, join(path, first), "a space is missing after the colon")
		return
	}
	r.fault(k.Line, join(path, label(k.Value)), "unknown key%s", hint(k.Value, known))
	if near := nearest(k.Value, known); near != "" && !has(n, near) {
		r.bad[join(path, near)] = true
	}
}

func has(n *yaml.Node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

func hint(word string, words []string) string {
	if near := nearest(word, words); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ": known are " + known(words)
}

func known(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// secret refuses a secret in the file and names the keys to use, without its value. Those keys are then not called missing.
func (r *reader) secret(k *yaml.Node, path string, known []string) {
	var use []string
	for _, f := range known {
		base, isRef := strings.CutSuffix(f, "File")
		if !isRef {
			base, isRef = strings.CutSuffix(f, "Env")
		}
		if isRef && looksSecret(base) {
			use = append(use, f)
			r.bad[join(path, f)] = true
		}
	}
	if len(use) == 0 {
		use = []string{"passwordFile", "passwordEnv"}
	}
	r.fault(k.Line, join(path, label(k.Value)), "a secret does not belong in this file: use %s", strings.Join(use, " or "))
}

func inSettings(path string) bool { return strings.HasPrefix(path, "providers[") }

func isLiteralSecret(key string) bool {
	return slices.Contains([]string{"password", "secret", "token"}, key)
}

// looksSecret tells a key that holds a secret itself: password, bmcPassword, X-Auth-Token, and `password:hunter2`, where the space
// was forgotten.
func looksSecret(key string) bool {
	key = strings.ToLower(key[:len(key)-len(strings.TrimLeft(key, identifier))])
	key = strings.NewReplacer("-", "", "_", "").Replace(key)
	for _, word := range []string{
		"password", "passwd", "passphrase", "secret", "token", "apikey", "secretkey", "accesskey", "privatekey", "credentials",
	} {
		if strings.HasSuffix(key, word) {
			return true
		}
	}
	return false
}

const identifier = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// label is a key as it is shown in a path: its leading identifier, since what follows may be a value whose space was forgotten.
// Keys of free mappings may hold dots and slashes.
func label(key string) string {
	n := len(key) - len(strings.TrimLeft(key, identifier+"./"))
	if n == len(key) && n > 0 && n <= 80 {
		return key
	}
	return key[:min(n, 80)] + "..."
}

// scalar converts a node to type t, or says what is wrong with it, without its value.
func scalar(n *yaml.Node, t reflect.Type) (v any, problem string) {
	tag := n.ShortTag()
	if n.Kind == yaml.ScalarNode && tag == "!!null" {
		return nil, "has no value: write one or remove the key"
	}
	wrong := func(want string) (any, string) { return nil, "want " + want + ", have " + describe(n) }
	switch k := kindOf(t); k {
	case kindDuration:
		return duration(n)
	case kindText, kindOwnText:
		switch {
		case n.Kind != yaml.ScalarNode:
			return wrong("text")
		case tag == "!!int" && t == amountType: // as Kubernetes' IntOrString
			return ownText(n.Value, t)
		case tag != "!!str":
			return nil, "want text, have " + describe(n) + ": put it in quotes"
		case k == kindOwnText:
			return ownText(n.Value, t)
		}
		return reflect.ValueOf(n.Value).Convert(t).Interface(), ""
	case kindBool:
		if tag != "!!bool" {
			return wrong("true or false")
		}
	case kindInt:
		if tag != "!!int" {
			return wrong("a whole number")
		}
	case kindNumber:
		if tag != "!!int" && tag != "!!float" {
			return wrong("a number")
		}
	default:
		return nil, "forcefence cannot read a setting of Go type " + t.String()
	}
	p := reflect.New(t)
	if err := n.Decode(p.Interface()); err != nil {
		return nil, "is out of range"
	}
	if f := p.Elem(); f.CanFloat() && (math.IsNaN(f.Float()) || math.IsInf(f.Float(), 0)) {
		return nil, "must be a finite number"
	}
	return p.Elem().Interface(), ""
}

// ownText reads a type's own text form.
func ownText(text string, t reflect.Type) (any, string) {
	p := reflect.New(t)
	err := p.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
	switch {
	case err == nil:
		return p.Elem().Interface(), ""
	case text != "" && strings.Contains(err.Error(), text):
		return nil, "is not what this setting takes" // it may be a secret in the wrong place
	}
	return nil, oneLine(err.Error())
}

func duration(n *yaml.Node) (any, string) {
	if n.Kind == yaml.ScalarNode && n.Value != "" && strings.Trim(n.Value, "0123456789.") == "" {
		return nil, fmt.Sprintf("a duration needs a unit: \"%ss\"?", n.Value)
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return nil, `want a duration such as "30s" or "5m", have ` + describe(n)
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil || strings.HasSuffix(n.Value, "0") { // ParseDuration takes +0 without a unit
		return nil, `not a duration: write it as "30s", "5m" or "1h30m"`
	}
	return d, ""
}

// describe says what kind of thing a node is, never its value.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return "text"
	case "!!int":
		return "a whole number"
	case "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "nothing"
	case "!!timestamp":
		return "a date"
	default:
		return "something else"
	}
}
