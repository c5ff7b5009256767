// Command goaws serves GoAws' SQS on a port of 127.0.0.1, and prints its address. GoAws' own program listens on all
// addresses.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/Admiral-Piett/goaws/app/gosqs"
	"github.com/Admiral-Piett/goaws/app/router"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Printf("http://%s\n", l.Addr())
		go gosqs.PeriodicTasks(time.Second, nil) // shows messages again that were hidden
		err = http.Serve(l, router.New())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
