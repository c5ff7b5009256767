package view

import (
	"cmp"
	"regexp"
)

// defaultNamespace is where the manifests install the controller.
const defaultNamespace = "forcefence-system"

// inController returns a command that runs forcefence in the controller's pod: there are the configuration and the
// devices' passwords, and no program has to be installed. It has the rights of the controller's account, which may
// neither resume nor confirm, and under which a release would name no person.
func inController(namespace, args string) string {
	return "kubectl -n " + cmp.Or(namespace, defaultNamespace) + " exec deploy/forcefence -- /ko-app/forcefence " + args
}

// ownCommand matches the start of a command that asks devices in a text, up to its name.
var ownCommand = regexp.MustCompile(`(^|[^/\w-])(?:kubectl )?forcefence ((?:drill|explain|power)\b)`)

// nameInController returns a text whose commands that ask devices run in the controller's pod.
func nameInController(namespace, text string) string {
	return ownCommand.ReplaceAllString(text, "${1}"+inController(namespace, "${2}"))
}
