package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// roleAnnotation is a command's annotation that names the ClusterRole in deploy/ with the rights that it needs.
const roleAnnotation = "forcefence.io/role"

// withRole sets roleAnnotation on a command, and returns the command.
func withRole(cmd *cobra.Command, role string) *cobra.Command {
	cmd.Annotations = map[string]string{roleAnnotation: role}
	return cmd
}

// rbacDenial matches the message of Kubernetes' RBAC for a denied request.
var rbacDenial = regexp.MustCompile(
	`cannot (\S+) resource "([^"]+)" in API group "([^"]*)" (?:at the cluster scope|in the namespace "([^"]+)")`,
)

// missingRight returns the right that an error reports as missing, in the form of kubectl auth can-i; "" for other
// errors.
func missingRight(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) {
		return ""
	}
	m := rbacDenial.FindStringSubmatch(status.Status().Message)
	if m == nil {
		return ""
	}
	text := m[1] + " " + m[2]
	if m[3] != "" {
		text += "." + m[3]
	}
	if m[4] != "" {
		text += " -n " + m[4]
	}
	return text
}

// commandPath returns the command's name without the program's.
func commandPath(cmd *cobra.Command) (words []string) {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		words = append([]string{cmd.Name()}, words...)
	}
	return words
}

// adviceFor returns advice for a person about a command's error; "" if there is none.
func adviceFor(cmd *cobra.Command, err error) string {
	right := missingRight(err)
	switch {
	case right == "" && errors.Is(err, fs.ErrNotExist) && cmd.Flags().Lookup("config") != nil &&
		!cmd.Flags().Changed("config"):
		return "This command needs the controller's configuration and access to the devices. You can run it in the " +
			"controller's pod:\n" +
			"kubectl -n forcefence-system exec deploy/forcefence -- /ko-app/forcefence " + strings.Join(
			append(commandPath(cmd), cmd.Flags().Args()...), " ",
		)
	case right == "":
		return ""
	}
	text := "You lack the right: " + right
	if role := cmd.Annotations[roleAnnotation]; role != "" {
		text += fmt.Sprintf(
			" (`kubectl auth can-i %s` asks for it). The ClusterRole %s of deploy/ has what this command needs", right,
			role,
		)
	}
	return text + "."
}
