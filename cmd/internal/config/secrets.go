package config

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// userinfo finds user:password@ in an address.
var userinfo = regexp.MustCompile(`://[^/@\s]*:[^/@\s]+@`)

// refuseSecret reports a secret in the file, without its value, and names the keys to use. Later checks do not report
// those keys as missing.
func (r *reader) refuseSecret(k *yaml.Node, path string, known []string) {
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
	if len(use) == 0 && strings.HasSuffix(path, ".fenceagent.options") {
		use = []string{"secrets"}
	}
	if len(use) == 0 {
		use = []string{"passwordFile", "passwordEnv"}
	}
	r.fault(k.Line, join(path, label(k.Value)),
		"a secret does not belong in this file: use %s", strings.Join(use, " or "))
}

// inSettings reports whether a path is in the settings of a provider, or of a storage system's API.
func inSettings(path string) bool {
	return strings.HasPrefix(path, "providers[") || storageAPI.MatchString(path)
}

var storageAPI = regexp.MustCompile(`^storage\[\d+\]\.rest\b`)

// looksSecret reports whether a key holds a secret: password, bmcPassword, X-Auth-Token, and `password:hunter2`, which
// lacks the space.
func looksSecret(key string) bool {
	key = strings.ToLower(key[:len(key)-len(strings.TrimLeft(key, identifier))])
	return secretKey.MatchString(strings.NewReplacer("-", "", "_", "").Replace(key))
}

var secretKey = regexp.MustCompile(
	`(password|passwd|passphrase|secret|token|apikey|secretkey|accesskey|privatekey|credentials)$`)

const identifier = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// label returns a key as a path shows it: only its leading identifier, because a value may follow without a space. Keys
// of free mappings may contain dots and slashes.
func label(key string) string {
	n := len(key) - len(strings.TrimLeft(key, identifier+"./"))
	if n == len(key) && n > 0 && n <= 80 {
		return key
	}
	return key[:min(n, 80)] + "..."
}
