package admit_test

import (
	"fmt"

	"github.com/forcefence/forcefence/kubelet-admit/admit"
)

// A machine boots while its node is marked. An ordinary pod waits until the hook knows everything, an exempt one starts
// at once.
func ExampleDecide() {
	web, cni := admit.Pod{Known: true}, admit.Pod{Exempt: true}
	for _, node := range []admit.Node{
		{}, // just booted
		{Read: true, Marked: true, Listed: true},
		{Read: true, Listed: true},
		{Read: true, ReadySeen: true, Listed: true},
	} {
		allowCNI, _ := admit.Decide(node, cni)
		if allow, why := admit.Decide(node, web); allow {
			fmt.Printf("cni %v, web true\n", allowCNI)
		} else {
			fmt.Printf("cni %v, web held: %s\n", allowCNI, why)
		}
	}
	// Output:
	// cni true, web held: node was not read yet on this boot
	// cni true, web held: node is marked as shut down
	// cni true, web held: node was not Ready yet on this boot
	// cni true, web true
}
