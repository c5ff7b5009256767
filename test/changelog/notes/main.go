// Command notes prints what CHANGELOG.md says of a version: a release's notes. It is run in the repository's root.
package main

import (
	"fmt"
	"os"

	"github.com/forcefence/forcefence/test/changelog"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "want a version, such as 1.2.3")
		os.Exit(2)
	}
	text, err := os.ReadFile("CHANGELOG.md")
	if err == nil {
		var notes string
		if notes, err = changelog.Notes(string(text), os.Args[1]); err == nil {
			fmt.Print(notes)
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
