// Command init is all that runs in a test's container. It listens on the unix socket that its only argument names, in a
// folder of the host: who can connect to it knows that it runs. It ends with the test that it belongs to, however that
// ends: with the connection to the socket "life" beside its own.
package main

import (
	"net"
	"os"
	"path/filepath"
)

func main() {
	_ = os.Remove(os.Args[1])
	l, err := net.Listen("unix", os.Args[1])
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	life, err := net.Dial("unix", filepath.Join(filepath.Dir(os.Args[1]), "life"))
	if err != nil {
		return
	}
	go func() {
		_, _ = life.Read(make([]byte, 1))
		os.Exit(0)
	}()
	for {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}
}
