package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"github.com/forcefence/forcefence/providers"
)

// reader reads and checks one file.
type reader struct {
	faults
	reg       providers.Registry
	providers map[string]Provider // by path
	known     []string            // the variables of all scalars, without their prefix
	lists     map[string]string   // variables that would be those of lists, without their prefix -> path
	named     map[string]bool     // environment variables that the settings name
	secrets   map[string]string   // path -> the file of a secret
	clusters  map[string]string   // path -> a kubeconfig
	own       map[string]string   // path -> a template of a user name or of a file, for each machine's own credentials
	skipFiles bool                // see SkipFiles
	strict    bool                // see Strict
	strayType bool                // the file has a type of provider at its top, and not in an item
	listed    map[string]int      // path -> line of the fault that lists its keys

	sharedPower []string // paths of rules whose devices lose their power together with their machines
}

func newReader(file string, reg providers.Registry) *reader {
	return &reader{
		faults:    faults{file, nil, map[string]int{}, map[string]bool{}, map[string]string{}},
		reg:       reg,
		providers: map[string]Provider{},
		named:     map[string]bool{},
		clusters:  map[string]string{},
		secrets:   map[string]string{},
		own:       map[string]string{},
		listed:    map[string]int{},
		lists:     map[string]string{},
	}
}

// readInto fills cfg, which holds the defaults, from the document and the environment. Faulty values keep their
// defaults.
func (r *reader) readInto(cfg *Config, root *yaml.Node) {
	t := reflect.TypeFor[Config]()
	r.lines[""] = root.Line
	r.strayType = len(r.typesIn(root)) > 0
	r.decode(cmp.Or(r.walk(root, t, ""), "{}"), cfg, "")
	r.decode(r.overrides(t, "", viper.New()), cfg, "")
	for i := range cfg.Providers {
		cfg.Providers[i] = r.providers[item("providers", i)]
	}
	r.setOwn(cfg)
}

// decode is the only way from a file's values to Go. The walk leaves only what fits, so an error is a fault of
// forcefence. decode does not show the error's text, which may quote a secret.
func (r *reader) decode(sound string, into any, path string) bool {
	d := yaml.NewDecoder(strings.NewReader(sound))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		r.fault(r.lines[path], path, "forcefence cannot decode this, which is a fault of its own: please report it")
		return false
	}
	return true
}

// walk compares a node with a Go type and reports its faults. It returns what fits the type, as YAML for decode; "" if
// nothing fits.
func (r *reader) walk(n *yaml.Node, t reflect.Type, path string) string {
	if n.Kind == yaml.AliasNode {
		r.fault(r.lines[path], path, "anchors and aliases (&, *) are not read here: write the value out")
		return ""
	}
	switch kindOf(t) {
	case kindMapping:
		if t == providerType {
			return r.walkProvider(n, path)
		}
		fields := fieldsOf(t)
		return r.walkMapping(n, t, path, func(k, v *yaml.Node) {
			if !r.refuseProvider(k, v, t, path) {
				r.unknownKey(k, path, n, names(fields))
			}
		})
	case kindFreeMapping:
		return r.walkFreeMapping(n, t.Elem(), path)
	case kindList:
		return r.walkList(n, t.Elem(), path)
	default:
		return r.walkScalar(n, t, path)
	}
}

// walkMapping walks a mapping with the keys of struct type t. It calls foreign for each other key.
func (r *reader) walkMapping(n *yaml.Node, t reflect.Type, path string, foreign func(k, v *yaml.Node)) string {
	fields := fieldsOf(t)
	return r.walkPairs(n, path, exampleOf(t), func(k, v *yaml.Node, p string) string {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == k.Value })
		switch {
		case i < 0:
			foreign(k, v)
		case inSettings(path) && v.Kind != yaml.MappingNode && looksSecret(k.Value):
			r.refuseSecret(k, path, names(fields))
		default:
			return r.walk(v, fields[i].typ, p)
		}
		return ""
	})
}

// walkFreeMapping walks a mapping whose keys the user chooses.
func (r *reader) walkFreeMapping(n *yaml.Node, elem reflect.Type, path string) string {
	return r.walkPairs(n, path, "{key: value}", func(k, v *yaml.Node, p string) string {
		switch {
		case k.ShortTag() != "!!str":
			r.fault(k.Line, p, "a key must be text: put it in quotes")
		case inSettings(path) && looksSecret(k.Value):
			r.refuseSecret(k, path, nil)
		default:
			return r.walk(v, elem, p)
		}
		return ""
	})
}

// exampleOf returns how a file writes a mapping of struct type t.
func exampleOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Config]():
		return "mode: observe"
	case reflect.TypeFor[Source]():
		return "{from: template, template: " + templateExample + "}"
	case providerType:
		return "{name: racks, redfish: {...}}"
	}
	keys := names(fieldsOf(t))
	return mappingOf(mapList(keys[:min(2, len(keys))], func(k string) string { return k + ": ..." }))
}

const templateExample = "'https://{name}.bmc.example.net'"

// notExpanded is what is wrong with a template's text where YAML reads its braces as mappings.
const notExpanded = "{ } is read as a mapping: put a template in quotes, such as " + templateExample +
	". Helm's values are not expanded here: write the value itself"

// isBarePlaceholder reports whether a node is {name} or another placeholder without quotes, which YAML reads as a key
// without a value.
func isBarePlaceholder(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 || !isNull(n.Content[1]) {
		return false
	}
	_, err := parsePlaceholder(n.Content[0].Value)
	return err == nil
}

// isTemplate reports whether a node is {{ }} without quotes, which YAML reads as a mapping in a mapping.
func isTemplate(n *yaml.Node) bool {
	return n.Kind == yaml.MappingNode && len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode
}

// walkPairs calls each for every pair of a mapping, once per key, and returns the mapping of its results. An empty
// value counts as an empty mapping. example shows such a mapping.
func (r *reader) walkPairs(
	n *yaml.Node, path, example string, each func(k, v *yaml.Node, path string) string,
) string {
	if isNull(n) {
		return "{}"
	}
	if n.Kind != yaml.MappingNode {
		fix := ""
		if path == "" {
			fix = ". Write every setting as a key, a colon and its value: config.example.yaml shows how"
		}
		r.fault(r.lines[path], path, "want a mapping (%s), have %s%s", example, describe(n), fix)
		return ""
	}
	if isTemplate(n) {
		r.fault(r.lines[path], path, "%s", notExpanded)
		return ""
	}
	var pairs []string
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			r.add(k.Line, path, "a key must be text, not "+describe(k))
			continue
		}
		if k.ShortTag() == "!!merge" {
			r.fault(k.Line, path, "merge keys (<<) are not read here: write the values out")
			continue
		}
		p := join(path, label(k.Value))
		if first := seen[k.Value]; first != 0 {
			r.fault(k.Line, p, "given twice: first on line %d", first)
			continue
		}
		seen[k.Value] = k.Line
		r.lines[p] = k.Line
		pairs = appendPair(pairs, k.Value, each(k, v, p))
	}
	return mappingOf(pairs)
}

// appendPair appends a key and its value; nothing if the value is "". After "?" a key may have any length.
func appendPair(pairs []string, key, value string) []string {
	if value == "" {
		return pairs
	}
	return append(pairs, "? "+quote(key)+": "+value)
}

func mappingOf(pairs []string) string { return "{" + strings.Join(pairs, ", ") + "}" }

// quote writes text so that YAML reads the same text: YAML has all escapes that Go has.
func quote(text string) string { return strconv.QuoteToASCII(text) }

// walkList walks a list. A mapping keeps its place in the list even if nothing in it fits.
func (r *reader) walkList(n *yaml.Node, elem reflect.Type, path string) string {
	if isNull(n) {
		return "[]"
	}
	if n.Kind != yaml.SequenceNode {
		r.fault(r.lines[path], path, "want a list (lines that begin with -), have %s", describe(n))
		return ""
	}
	var items []string
	for i, c := range n.Content {
		p := item(path, i)
		r.lines[p] = c.Line
		sound := r.walk(c, elem, p)
		if kindOf(elem) == kindMapping {
			sound = cmp.Or(sound, "{}")
		}
		if sound != "" {
			items = append(items, sound)
		}
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// walkProvider walks an item of providers: the common keys, and one key that is a type. It decodes them at once into
// r.providers, over the defaults of the type, so the decoding of the file gets nothing.
func (r *reader) walkProvider(n *yaml.Node, path string) string {
	fields := fieldsOf(providerType)
	p := Provider{Timeout: 5 * time.Second, RatePerSecond: 10, Concurrency: 2}
	typeKey, types := (*yaml.Node)(nil), r.typesIn(n)
	common := r.walkMapping(n, providerType, path, func(k, v *yaml.Node) {
		typ, known := r.reg.FindType(k.Value)
		at := join(path, label(k.Value))
		switch {
		case removedKey(at) != "":
			typeKey = k
			r.unknownKey(k, path, n, nil)
		case !known && (v.Kind == yaml.MappingNode || v.ShortTag() == "!!null") && !looksSecret(k.Value):
			if near := nearest(k.Value, names(fields)); near != "" && nearest(k.Value, r.reg.TypeNames()) == "" {
				r.unknownKey(k, path, n, names(fields))
				return
			}
			typeKey = k
			r.fault(k.Line, at, "unknown provider type%s", Hint(k.Value, r.reg.TypeNames()))
		case !known:
			r.unknownKey(k, path, n, append(names(fields), r.reg.TypeNames()...))
		case typeKey != nil:
			r.fault(k.Line, at, "a provider has one type, and line %d names one already. Make it an item of its own, "+
				"with a name of its own", typeKey.Line)
		case len(types) > 1:
			typeKey, p.Type = k, typ.Name // which of them is meant, only the user knows: its settings are not checked
		default:
			typeKey = k
			p.Type, p.Config = typ.Name, r.settings(typ.NewConfig(), v, at)
			if typ.Concurrency > 0 {
				p.Concurrency = typ.Concurrency
			}
		}
	})
	if common == "" {
		return ""
	}
	r.reportIf(typeKey == nil && !r.strayType, path, "no type: add one of %s", known(r.reg.TypeNames()))
	r.decode(common, &p, path)
	r.providers[path] = p
	return ""
}

// typesIn returns the keys of a mapping that are types of providers.
func (r *reader) typesIn(n *yaml.Node) (types []*yaml.Node) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if _, is := r.reg.FindType(n.Content[i].Value); is {
			types = append(types, n.Content[i])
		}
	}
	return types
}

// settings returns cfg, which holds the defaults of its type, with the file's settings, and validates it. It returns
// nil if none of them can be used.
func (r *reader) settings(cfg providers.Config, n *yaml.Node, path string) providers.Config {
	sound := r.walk(n, reflect.TypeOf(cfg).Elem(), path)
	if sound == "" || !r.decode(sound, cfg, path) {
		return nil
	}
	r.reportSettings(cfg.Validate(), reflect.TypeOf(cfg).Elem(), path)
	return cfg
}

// reportSettings reports the problems of settings of type t.
func (r *reader) reportSettings(all []providers.Problem, t reflect.Type, path string) {
	lacks := slices.ContainsFunc(names(fieldsOf(t)), func(key string) bool { return r.bad[join(path, key)] })
	for _, p := range all {
		switch gone := errors.Is(p.Err, fs.ErrNotExist); {
		case r.skipFiles && gone:
		case lacks && strings.HasPrefix(p.Text, "missing"): // perhaps only because another key has a fault
		default:
			before := len(r.errs)
			text := p.Text
			if errors.Is(p.Err, syscall.EISDIR) {
				text += ". Name the file in it"
			}
			r.report(join(path, p.Path), "%s", oneLine(text))
			for i := range r.errs[before:] {
				r.errs[before+i].NoFile = gone
			}
		}
	}
}

// unknownKey reports a key that mapping n must not have, and the key that was probably meant. Later checks do not
// report that one as missing.
func (r *reader) unknownKey(k *yaml.Node, path string, n *yaml.Node, known []string) {
	if looksSecret(k.Value) {
		r.refuseSecret(k, path, known)
		return
	}
	if now := removedKey(join(path, k.Value)); now != "" {
		r.fault(k.Line, join(path, k.Value), "this key was removed: %s", now)
		return
	}
	if first, _, glued := strings.Cut(k.Value, ":"); glued && slices.Contains(known, first) {
		r.fault(k.Line, join(path, first), "a space is missing after the colon")
		return
	}
	if specialSpace.MatchString(k.Value) {
		r.fault(k.Line, path, "%s", aSpecialSpace)
		return
	}
	if strings.HasPrefix(k.Value, "-") {
		r.fault(k.Line, path, "a space is missing after -: write - name: racks")
		return
	}
	if common := names(fieldsOf(providerType)); strings.HasPrefix(path, "providers[") &&
		slices.Contains(common, k.Value) && !slices.Contains(known, k.Value) {
		r.fault(k.Line, join(path, k.Value), "belongs to the provider and not to its type: indent it as name")
		return
	}
	for _, of := range []struct {
		list string
		item reflect.Type
	}{{"nodes", reflect.TypeFor[NodeRule]()}, {"providers", providerType}} {
		if path == "" && hasKey(n, of.list) && slices.Contains(names(fieldsOf(of.item)), k.Value) {
			r.fault(k.Line, k.Value, "belongs to an item of %s: indent it, as the name there", of.list)
			return
		}
	}
	free := slices.DeleteFunc(slices.Clone(known), func(key string) bool { return hasKey(n, key) })
	text := cmp.Or(didYouMean(k.Value, free), didYouMean(k.Value, known))
	switch first := r.listed[path]; {
	case text != "":
	case first > 0:
		text = fmt.Sprintf(": line %d lists those that are known", first)
	default:
		text, r.listed[path] = ": known are "+strings.Join(known, ", "), k.Line
	}
	r.fault(k.Line, join(path, label(k.Value)), "unknown key%s", text)
	if near := nearest(k.Value, free); near != "" {
		r.bad[join(path, near)] = true
	}
}

// refuseProvider reports a type of provider outside of providers, and returns true if the key is one.
func (r *reader) refuseProvider(k, v *yaml.Node, t reflect.Type, path string) bool {
	_, is := r.reg.FindType(k.Value)
	if is && path == "" {
		r.fault(k.Line, label(k.Value), "this is a type of provider: indent it, so that it belongs to an item of "+
			"providers, as the name above it does")
		return true
	}
	if !is || t != reflect.TypeFor[NodeRule]() || v.Kind != yaml.MappingNode {
		return false
	}
	r.fault(k.Line, path, "%s is a type of provider: move this item to providers, and let the rule name it (provider: "+
		"racks)", k.Value)
	return true
}

// Hint ends a message about an unknown word with a suggestion, or with all known words.
func Hint(word string, words []string) string {
	return cmp.Or(didYouMean(word, words), ": known are "+known(words))
}

func known(words []string) string { return strings.Join(words, ", ") }

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func hasKey(n *yaml.Node, key string) bool { return valueOf(n, key) != nil }

// valueOf returns the value of a key in a mapping; nil if there is none.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
