package main

import (
	"errors"
	"io"
	"io/fs"
	"strconv"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/view/drill"
)

func printDevices(out io.Writer, all []drill.Device) {
	var rows [][]cell
	for _, d := range all {
		rows = append(rows, plainCells(
			d.Name, d.Answer.State, strconv.Quote(d.Answer.Raw), d.IdentityResult(), roundedDuration(d),
			errorText(d.Answer.Err),
		))
	}
	printGrid(out, []string{"DEVICE", "STATE", "RAW", "IDENTITY", "TOOK", "ERROR"}, rows)
}

// printFiles prints the paths of secret files that belong to single machines, and which of them are missing or
// unreadable. It prints no content.
func printFiles(w io.Writer, files []config.OwnFile) {
	if len(files) == 0 {
		return
	}
	var rows [][]cell
	for _, f := range files {
		state := "there"
		if f.Err != nil {
			state = "missing"
			if !errors.Is(f.Err, fs.ErrNotExist) {
				state = providers.ErrorText(f.Err)
			}
		}
		rows = append(rows, plainCells(f.Node, f.Provider, f.File, state))
	}
	printGrid(w, []string{"NODE", "PROVIDER", "FILE", "SECRET"}, rows)
}
