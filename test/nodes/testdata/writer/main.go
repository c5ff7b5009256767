// Command writer appends a line a second to the file that its argument names: the time and the machine's boot id as it
// sees it.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	for tick := time.NewTicker(time.Second); ; <-tick.C {
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			panic(err)
		}
		f, err := os.OpenFile(os.Args[1], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(f, "%s %s\n", time.Now().Format(time.RFC3339Nano), strings.TrimSpace(string(boot)))
		f.Close()
	}
}
