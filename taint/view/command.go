package view

import (
	"cmp"
	"regexp"
)

// defaultNamespace is where the manifests install the controller.
const defaultNamespace = "forcefence-system"

// inController returns a command that runs forcefence in the controller's pod. It works for everyone who has kubectl:
// the configuration and the devices' passwords are there, and no program has to be installed.
func inController(namespace, args string) string {
	return "kubectl -n " + cmp.Or(namespace, defaultNamespace) + " exec deploy/forcefence -- /ko-app/forcefence " + args
}

// ownCommand matches the start of a command of forcefence's own in a text, up to its name. It leaves alone commands
// that read a file of the user or come before an installation.
var ownCommand = regexp.MustCompile(
	`(^|[^/\w-])(?:kubectl )?forcefence ((?:release|resume|confirm-off|explain|power|timeline|drain-status)\b)`)

// nameInController returns a text whose commands of forcefence's own run in the controller's pod.
func nameInController(namespace, text string) string {
	return ownCommand.ReplaceAllString(text, "${1}"+inController(namespace, "${2}"))
}
