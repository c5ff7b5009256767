package nri

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/forcefence/forcefence/kubelet-admit/admit"
	"github.com/forcefence/forcefence/taint"
)

// Status is what a plugin knows, as its status file has it. It is for people (`forcefence-node status`), and for the
// plugin itself after a restart on the same boot. An API outage must not turn that restart into a node that starts
// nothing.
type Status struct {
	Plugin  string    `json:"plugin"` // index and name: 10-forcefence
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"` // when the process started

	Runtime    string    `json:"runtime,omitempty"`   // name and version, as it introduced itself: containerd v2.4.2
	NRI        string    `json:"nri,omitempty"`       // the runtime's version of NRI, where it tells
	Registered time.Time `json:"registered,omitzero"` // when it registered with the runtime; zero: not registered
	// Requests: the requests it answers: RunPodSandbox, ValidateContainerAdjustment
	Requests []string  `json:"requests,omitempty"`
	Error    string    `json:"error,omitempty"` // why the API server could not be read, if the last attempt failed
	BootID   string    `json:"bootID"`          // the machine's own
	TaintKey string    `json:"taintKey"`
	Node     NodeView  `json:"node"`
	Held     []Held    `json:"held,omitempty"` // oldest first
	Pods     []PodView `json:"pods,omitempty"` // bound to the node, not terminal
}

// NodeView is the last state of the own Node that was read.
type NodeView struct {
	Name string    `json:"name"`
	UID  string    `json:"uid,omitempty"`
	Mark string    `json:"mark,omitempty"` // the mark as a taint: key=value:effect; "" if there is none
	At   time.Time `json:"at,omitzero"`    // when it last changed or was read
	admit.Node
}

// PodView is what the status keeps of a pod.
type PodView struct {
	UID    string          `json:"uid"`
	Exempt taint.Exemption `json:"exempt,omitempty"`
}

// Held is a pod that may not start now.
type Held struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	UID       string       `json:"uid"`
	Why       admit.Reason `json:"why"`
	Since     time.Time    `json:"since"`
	Last      time.Time    `json:"last"`  // when it asked last
	Times     int          `json:"times"` // how often it asked
}

// ReadStatuses returns what the node's plugins wrote last, in the order of their indexes. A missing folder gives none.
func ReadStatuses(stateDir string) ([]Status, error) {
	files, err := filepath.Glob(filepath.Join(stateDir, "[0-9][0-9].json"))
	if err != nil {
		return nil, err
	}
	var all []Status
	for _, file := range files {
		s, err := ReadStatus(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// StatusFile returns the status file of the plugin with an index.
func StatusFile(stateDir, index string) string { return filepath.Join(stateDir, index+".json") }

// ReadStatus returns what a plugin wrote last.
func ReadStatus(file string) (Status, error) {
	var s Status
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return Status{}, fmt.Errorf("reading status %s: %w", file, err)
	}
	return s, nil
}
