// Package compile has the flags by which all programs of this repository are compiled, the control plane too: Go then
// compiles once what two of them import. The Makefile exports the same flags.
package compile

// Flags are for the go command. They leave out a debugger's data, which costs a tenth of all compiling. They inline
// nothing into two large packages of generated code, which halves what these cost: 35 of 750 seconds of CPU.
var Flags = []string{
	"-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false",
	"-gcflags=github.com/aws/aws-sdk-go-v2/service/ec2=-dwarf=false -l",
	"-gcflags=github.com/vmware/govmomi/vim25/types=-dwarf=false -l",
}
