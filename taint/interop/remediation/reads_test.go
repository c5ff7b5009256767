package remediation

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// However many requests a user makes for a node, a look reads a few: first those that permitted last.
func TestKeysToRead(t *testing.T) {
	c := &Controller{targets: map[types.NamespacedName]target{}}
	for i := range 1000 {
		c.targets[types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("r%03d", i)}] = target{node: "n1",
			permits: i == 900}
	}
	got := c.keysToRead("n1")
	if len(got) != maxReads || got[0].Name != "r900" || got[1].Name != "r000" {
		t.Errorf("got %v, want %d, r900 first", got, maxReads)
	}
}
