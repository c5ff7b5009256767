//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "csi driver: needs Linux: it mounts loop devices")
	os.Exit(1)
}
