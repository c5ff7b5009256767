// Command init is all that runs in a test's container. It listens on the unix socket that its only argument names, in a folder of the host:
// who can connect to it knows that it runs.
package main

import (
	"net"
	"os"
)

func main() {
	_ = os.Remove(os.Args[1])
	l, err := net.Listen("unix", os.Args[1])
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	for {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}
}
