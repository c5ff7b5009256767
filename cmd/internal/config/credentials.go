package config

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/providers"
)

// OwnFile is a file with a secret of one machine's own.
type OwnFile struct {
	Provider string // its name in the configuration
	Node     string
	File     string
	Err      error // why there is no secret in it; nil if there is one
}

// OwnFiles are the files with a node's own secrets for a provider; none where all machines share them. It reads them
// and keeps nothing.
func (c *Config) OwnFiles(provider, node string) (out []OwnFile) {
	i := slices.Index(providerNames(c.Providers), provider)
	if i < 0 {
		return nil
	}
	for _, template := range c.Providers[i].Own {
		f := OwnFile{Provider: provider, Node: node}
		if f.File, f.Err = providers.OfMachine(template, node); f.Err == nil {
			_, f.Err = providers.SecretRef{File: template}.ReadSecretOf(node)
		}
		out = append(out, f)
	}
	return out
}

// ListedFiles are the OwnFiles of all nodes that stand in lists, as they were when the file was checked.
func (c *Config) ListedFiles() []OwnFile { return c.listed }

// noteText keeps what the checks of credentials want to know of a text.
func (r *reader) noteText(path, text string) {
	key := path[strings.LastIndex(path, ".")+1:]
	secret := inSettings(path) &&
		(key == "file" || strings.HasSuffix(key, "File") && key != "caFile" && key != "certFile")
	if secret || path == "listen.statusKeyFile" {
		r.secrets[path] = text
	}
	if inSettings(path) && strings.HasSuffix(key, "Env") {
		r.named[text] = true
	}
	if inSettings(path) && providers.PerMachine(text) {
		r.own[path] = text
	}
}

// setOwn tells each provider which of its secrets' files are each machine's own.
func (r *reader) setOwn(c *Config) {
	for i := range c.Providers {
		for path := range r.own {
			if _, file := r.secrets[path]; file && strings.HasPrefix(path, item("providers", i)+".") {
				c.Providers[i].Own = append(c.Providers[i].Own, r.own[path])
			}
		}
		slices.Sort(c.Providers[i].Own)
		c.Providers[i].Own = slices.Compact(c.Providers[i].Own)
	}
}

// ownLine is the line of a setting by which machines of a provider have credentials of their own; 0 where they share
// them.
func (r *reader) ownLine(c *Config, provider string) int {
	first := 0
	i := slices.Index(providerNames(c.Providers), provider)
	for path := range r.own {
		if strings.HasPrefix(path, item("providers", i)+".") && (first == 0 || r.lines[path] < first) {
			first = r.lines[path]
		}
	}
	return first
}

// checkOwn holds that a node's credentials go to the device that the same name leads to: who chooses the device must
// not choose whose password it gets.
func (r *reader) checkOwn(c *Config, n *NodeRule, path string) {
	line := r.ownLine(c, n.Provider)
	unread := n.Machine.From == FromTemplate && n.Machine.tmpl == nil || !sources[n.Machine.From] // told already
	if line > 0 && !unread && n.claimed() {
		r.report(path+".machine", "a kubelet could choose this device, by its labels or its own status, and so which "+
			"host gets its node's password (line %d): use a list, or a template over .Name and a selector of labels "+
			"that kubelets cannot write", line)
	}
}

// checkSecrets holds that no Node can be called so that its own file is another's secret: that would be sent to its
// device.
func (r *reader) checkSecrets() {
	for _, path := range slices.Sorted(maps.Keys(r.own)) {
		if r.secrets[path] == "" {
			continue // a user
		}
		for _, other := range slices.Sorted(maps.Keys(r.secrets)) {
			if path != other && mayBeOne(r.secrets[path], r.secrets[other]) {
				r.report(path, "a Node's name can turn this into the file on line %d, and its device would get that "+
					"secret: keep the machines' files in a folder of their own", r.lines[other])
				break
			}
		}
	}
}

// mayBeOne reports whether the file of one Node by a template may be another file, or another Node's by another
// template.
func mayBeOne(template, file string) bool {
	if one, err := providers.OfMachine(template, "n"); err == nil {
		if other, err := providers.OfMachine(file, "n"); err == nil && one == other {
			return false // each Node's is its own
		}
	}
	ours, theirs := strings.Split(template, "/"), strings.Split(path.Clean(file), "/")
	return slices.EqualFunc(ours, theirs, partsMeet)
}

// partsMeet reports whether two parts of paths may be the same, where a part may have {{ .Name }}.
func partsMeet(a, b string) bool {
	if !providers.PerMachine(a) {
		a, b = b, a
	}
	beforeA, rest, own := strings.Cut(a, "{{")
	_, behindA, _ := strings.Cut(rest, "}}")
	beforeB, rest, both := strings.Cut(b, "{{")
	_, behindB, _ := strings.Cut(rest, "}}")
	begin := strings.HasPrefix(beforeA, beforeB) || strings.HasPrefix(beforeB, beforeA)
	end := strings.HasSuffix(behindA, behindB) || strings.HasSuffix(behindB, behindA)
	switch name, is := strings.CutPrefix(b, beforeA); {
	case !own:
		return a == b
	case both:
		return begin && end
	default:
		name, ends := strings.CutSuffix(name, behindA)
		return is && ends && len(validation.IsDNS1123Subdomain(name)) == 0
	}
}

// checkListed looks for the secrets of nodes in lists, and tells which have none. It is no fault of the file: the
// others do without them.
func (r *reader) checkListed(c *Config, provider string, s *Source, path string) {
	for j, e := range s.List {
		for _, f := range c.OwnFiles(provider, e.Node) {
			c.listed = append(c.listed, f)
			if f.Err != nil && !(r.skipFiles && errors.Is(f.Err, fs.ErrNotExist)) {
				r.warn(c, item(path+".list", j),
					"this machine cannot be asked, but the others can: "+oneLine(f.Err.Error()))
			}
		}
	}
}
