package providers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
)

// A setting of credentials may hold NamePlaceholder, and nothing else in braces. Then each machine has credentials of
// its own. A kubelet can write its Node's other properties, and a label could name another machine's secret.

// NamePlaceholder is the name of a machine's Node in a text of the configuration.
const NamePlaceholder = "{name}"

// nodeName matches the names that an API server lets a Node have (RFC 1123): none has a slash or begins with a dot.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// PerMachine reports whether a setting of credentials has braces, and so differs between machines.
func PerMachine(setting string) bool { return strings.ContainsAny(setting, "{}") }

// CheckPerMachine returns an error if a setting of credentials has anything but NamePlaceholder in braces.
func CheckPerMachine(setting string) error {
	if PerMachine(strings.ReplaceAll(setting, NamePlaceholder, "")) {
		return errors.New("may hold {name}, the Node's name, and nothing else in braces, " +
			"because a label could name another machine's secret")
	}
	return nil
}

// OfMachine replaces NamePlaceholder in a setting by a Node's name. It returns a setting without braces unchanged. It
// returns an error for other braces, and for a name that no Node can have.
func OfMachine(setting, node string) (string, error) {
	switch err := CheckPerMachine(setting); {
	case !PerMachine(setting):
		return setting, nil
	case err != nil:
		return "", err
	case len(node) > 253 || !nodeName.MatchString(node):
		return "", fmt.Errorf("%q is no valid Node name, so it has no credentials of its own", node)
	}
	return strings.ReplaceAll(setting, NamePlaceholder, node), nil
}

// literalFolder returns the literal part of a file's template, up to the path element with the name.
func (r SecretRef) literalFolder() string {
	before, _, _ := strings.Cut(r.File, NamePlaceholder)
	return before[:strings.LastIndex(before, "/")+1]
}

// checkFolder checks a file's template, and that its literal folder exists.
func (r SecretRef) checkFolder() error {
	folder := r.literalFolder()
	whole := strings.ReplaceAll(r.File, NamePlaceholder, "n")
	switch err := CheckPerMachine(r.File); {
	case err != nil:
		return fmt.Errorf("%s %w", r.File, err)
	case strings.Count(r.File, NamePlaceholder) > 1:
		return fmt.Errorf("%s has {name} more than once", r.File)
	case folder == "" || path.Clean(whole) != whole:
		return fmt.Errorf("%s does not begin with a folder, or has an element ., .. or an empty one", r.File)
	}
	_, err := os.Stat(folder) // ends with a slash: a file is none
	return err
}

// ReadSecretOf returns the secret of a node's machine; all machines share it unless the file's template has
// NamePlaceholder. Links are followed if they stay in the template's literal folder. The error never contains the
// secret.
func (r SecretRef) ReadSecretOf(node string) (Secret, error) {
	if !PerMachine(r.File) {
		return r.ReadSecret()
	}
	file, err := OfMachine(r.File, node)
	if err != nil {
		return Secret{}, fmt.Errorf("reading secret: %w", err)
	}
	folder := r.literalFolder()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return Secret{}, fmt.Errorf("reading secret of node %s: %w", node, err)
	}
	defer root.Close()
	b, err := root.ReadFile(strings.TrimPrefix(file, folder))
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) { // which names the file as it is called in the folder
			err = at.Err
		}
		return Secret{}, fmt.Errorf("reading secret of node %s: %s: %w", node, file, err)
	}
	return secretOf(b, file)
}
