package main

import (
	"errors"
	"io/fs"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// deviceTable has a row for each device of a node.
func deviceTable(node string, all []drill.Device) *metav1.Table {
	t := newTable("Device", "State", "Raw", "Identity", "Took", "Error", "+Result")
	for _, d := range all {
		addRow(t, nodeNamed(node), d.Name, d.Answer.State, strconv.Quote(d.Answer.Raw), d.IdentityResult(),
			roundedDuration(d), errorText(d.Answer.Err), d.Result())
	}
	return t
}

// fileTable has a row for each path of a secret that belongs to a single machine, and says whether it can be read. It
// shows no content.
func fileTable(files []config.OwnFile) *metav1.Table {
	t := newTable("Node", "Provider", "File", "Secret")
	for _, f := range files {
		state := "there"
		if f.Err != nil {
			state = "missing"
			if !errors.Is(f.Err, fs.ErrNotExist) {
				state = providers.ErrorText(f.Err)
			}
		}
		addRow(t, nodeNamed(f.Node), f.Node, f.Provider, f.File, state)
	}
	return t
}
