package config

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/providers"
)

// OwnFile is a file with a secret that belongs to one machine.
type OwnFile struct {
	Provider string // its name in the configuration
	Node     string
	File     string
	Err      error // why the file holds no secret; nil if it holds one
}

// OwnFiles returns the files with a node's own secrets for a provider; none if all machines share them. It reads the
// files to fill Err, and keeps no secret.
func (c *Config) OwnFiles(provider, node string) (out []OwnFile) {
	i := slices.Index(c.providerNames(), provider)
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

// ListedFiles returns the OwnFiles of all nodes in lists, as they were when the configuration was checked.
func (c *Config) ListedFiles() []OwnFile { return c.listed }

// noteText keeps what the checks of credentials need to know about a text.
func (r *reader) noteText(path, text string) {
	key := path[strings.LastIndex(path, ".")+1:]
	secret := inSettings(path) &&
		(key == "file" || strings.HasSuffix(key, "File") && key != "caFile" && key != "certFile")
	if secret || path == "listen.statusKeyFile" || path == "signing.keyFile" {
		r.secrets[path] = text
	}
	if key == "kubeconfig" {
		r.clusters[path] = text
	}
	if inSettings(path) && strings.HasSuffix(key, "Env") {
		r.named[text] = true
	}
	isUser := inSettings(path) && (key == "username" || key == "login")
	if (secret || isUser) && providers.PerMachine(text) {
		r.own[path] = text
	}
}

// setOwn sets Provider.Own.
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

// ownLine returns the line of the first setting by which each machine of a provider has credentials of its own; 0 if
// the machines share them.
func (r *reader) ownLine(c *Config, provider string) int {
	first := 0
	i := slices.Index(c.providerNames(), provider)
	for path := range r.own {
		if strings.HasPrefix(path, item("providers", i)+".") && (first == 0 || r.lines[path] < first) {
			first = r.lines[path]
		}
	}
	return first
}

// checkOwn refuses a rule by which a kubelet may choose the device that gets its node's own password. Such a device
// could be another machine's, or a host of an attacker.
func (r *reader) checkOwn(c *Config, n *NodeRule, path string) {
	if line := r.ownLine(c, n.Provider); line > 0 && n.Machine.isRead() && n.claimed() {
		r.report(path+".machine", "a kubelet could choose this device, by its labels or its own status, and so which "+
			"host gets its node's password (line %d): use a list, or a template over {name} and a selector of labels "+
			"that kubelets cannot write", line)
	}
}

// checkSecrets refuses a template of a Node's own file that can be another secret's file for some name of a Node. That
// Node's device would get the other secret.
func (r *reader) checkSecrets() {
	for _, path := range slices.Sorted(maps.Keys(r.own)) {
		if r.secrets[path] == "" {
			continue // a user name, which is no secret
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

// ownFolders have secrets of forcefence itself: its API token, its signing key, and all that a process knows of itself.
var ownFolders = []string{"/var/run/secrets/kubernetes.io", "/run/secrets/kubernetes.io", "/etc/forcefence-signing",
	"/proc"}

// checkOwnSecrets refuses forcefence's own secrets as those of a device or a storage system. A client that may write
// the configuration, and no Secret, could have them sent to a host of its own.
func (r *reader) checkOwnSecrets() {
	for _, file := range slices.Sorted(maps.Keys(r.secrets)) {
		text := r.secrets[file]
		if !inSettings(file) {
			continue
		}
		own := slices.ContainsFunc(ownFolders, func(folder string) bool { return mayBeIn(text, folder) })
		for _, key := range []string{"signing.keyFile", "listen.statusKeyFile"} {
			own = own || isSameFile(text, r.secrets[key])
		}
		if own {
			r.report(file, "is a secret of forcefence itself, which the device would get: use a file of its own")
		}
	}
	for _, file := range slices.Sorted(maps.Keys(r.clusters)) {
		if mayBeIn(r.clusters[file], configFolder) {
			r.report(file, "is in the ConfigMap: its tokenFile may send forcefence's own token to any server. Put it "+
				"into a Secret")
		}
	}
}

// configFolder is where the chart mounts the ConfigMap, with all of its entries.
const configFolder = "/etc/forcefence"

// mayBeIn reports whether a file, or a template's for some Node, is in a folder or below.
func mayBeIn(file, folder string) bool {
	parts, of := strings.Split(path.Join("/", file), "/"), strings.Split(folder, "/")
	return len(parts) > len(of) && slices.EqualFunc(parts[:len(of)], of, partsMeet)
}

// isSameFile reports whether two names are of one file. Links are followed where the files exist.
func isSameFile(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	one, err := os.Stat(a)
	other, err2 := os.Stat(b)
	return path.Clean(a) == path.Clean(b) || err == nil && err2 == nil && os.SameFile(one, other)
}

// mayBeOne reports whether a template can give, for some Node, another file, or another Node's file by a second
// template.
func mayBeOne(template, file string) bool {
	one, err := providers.OfMachine(template, "n")
	other, err2 := providers.OfMachine(file, "n")
	if err == nil && err2 == nil && one == other {
		return false // both give the same file for a Node
	}
	return slices.EqualFunc(strings.Split(template, "/"), strings.Split(path.Clean(file), "/"), partsMeet)
}

// partsMeet reports whether two parts of paths can be equal. A part may contain {name}.
func partsMeet(a, b string) bool {
	if !providers.PerMachine(a) {
		a, b = b, a
	}
	beforeA, behindA, own := strings.Cut(a, providers.NamePlaceholder)
	beforeB, behindB, both := strings.Cut(b, providers.NamePlaceholder)
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

// checkListed warns of nodes in lists that lack a secret of their own. It is no fault, because other machines can be
// asked without it.
func (r *reader) checkListed(c *Config, provider string, s *Source, path string) {
	if s.From == FromList {
		r.addList(c, s, path)
	}
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
