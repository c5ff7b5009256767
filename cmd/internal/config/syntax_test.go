package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestSyntaxLine puts a fault in a known line of a long file.
func TestSyntaxLine(t *testing.T) {
	var head, tail strings.Builder
	head.WriteString("mode: observe\nnodes:\n- name: n\n  machine:\n    from: list\n    list:\n")
	for i := range 60 {
		fmt.Fprintf(&head, "    - {node: n%d, id: m%d}\n", i, i)
		fmt.Fprintf(&tail, "    - {node: o%d, id: m%d}\n", i, i)
	}
	for _, fault := range []string{
		"    - {node: x, id: y\n", "    - {node: \"x, id: y}\n", "   - x\n", "\t- x\n", "    - x: y: z\n", "    - @x\n",
		"    - *x\n", "    - \x01\n", "}\n",
	} {
		_, err := Parse("f", []byte(head.String()+fault+tail.String()), nil)
		var errs Errors
		if !errors.As(err, &errs) || len(errs) != 1 || errs[0].Line != 67 {
			t.Errorf("%q: got %v, want one fault on line 67", fault, err)
		}
	}
}

// A Kubernetes object is one fault, and not one for each of its keys.
func TestKubernetesObject(t *testing.T) {
	const (
		configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  config.yaml: |\n    mode: observe\n"
		secret    = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n"
	)
	for file, want := range map[string]string{
		configMap: "f:2: this is a Kubernetes object (ConfigMap), and not the controller's configuration. Check the " +
			"text that it holds: kubectl get configmap NAME -o jsonpath='{.data.config\\.yaml}' | " +
			"forcefence check-config -",
		secret + configMap: "f:2: this is a Kubernetes object (Secret), and not the controller's configuration. " +
			"config.example.yaml shows one",
	} {
		if _, err := Parse("f", []byte(file), nil); fmt.Sprint(err) != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
