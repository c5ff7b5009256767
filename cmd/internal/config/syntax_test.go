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
