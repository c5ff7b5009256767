// Package compile has the flags by which all programs of this repository are compiled, the control plane too: Go then
// compiles once what two of them import. The Makefile exports the same flags.
package compile

// NotInlined are patterns of packages into which the compiler inlines nothing: generated code above all, and
// Kubernetes' own programs. In two cold runs one after the other all compiling took 639 s of CPU instead of 741. A
// release has other flags.
var NotInlined = []string{
	"github.com/aws/...",
	"github.com/google/gnostic-models/...",
	"github.com/stmcginnis/gofish/...",
	"github.com/vmware/govmomi/...",
	"k8s.io/api/...",
	"k8s.io/client-go/applyconfigurations/...",
	"k8s.io/client-go/informers/...",
	"k8s.io/client-go/kubernetes/...",
	"k8s.io/client-go/listers/...",
	"k8s.io/kubernetes/...",
}

// Flags returns those of the go command. They leave out a debugger's data, which costs a tenth of all compiling.
func Flags() []string {
	flags := []string{"-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false"}
	for _, p := range NotInlined {
		flags = append(flags, "-gcflags="+p+"=-dwarf=false -l")
	}
	return flags
}
