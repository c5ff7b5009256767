//go:build linux

package nodes

import (
	"errors"
	"sync"
	"testing"

	"github.com/forcefence/forcefence/test/csi"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// Site is a lab whose nodes have machines, a BMC in front of each, and CSI volumes.
type Site struct {
	*Lab
	Racks *datacenter.DataCenter
	CSI   *csi.Driver
	BMCs  map[string]*datacenter.BMC // by node
}

// NewSite starts a site without nodes, which ends with the test. The volumes' folder is store.
func NewSite(t testing.TB, opts Options, racks datacenter.Options, store string) *Site {
	t.Helper()
	s := &Site{Racks: datacenter.New(racks), CSI: csi.ForTest(t, opts.Cluster, store),
		BMCs: map[string]*datacenter.BMC{}}
	t.Cleanup(func() { kit.Must(t, s.Racks.Close()) })
	opts.Images = append(opts.Images, Image(t, csi.Image, s.CSI.Program))
	s.Lab = ForTest(t, opts)
	return s
}

// AddNodes adds nodes at the same time, each on a machine of its name. describe may change a node's options; nil
// changes nothing.
func (s *Site) AddNodes(t testing.TB, names []string, describe func(*NodeOptions)) []*Node {
	t.Helper()
	var adding sync.WaitGroup
	nodes, errs := make([]*Node, len(names)), make([]error, len(names))
	for i, name := range names {
		o := NodeOptions{Name: name, Machine: s.Racks.AddMachine(name)}
		s.BMCs[name] = s.Racks.AddBMC(o.Machine)
		if describe != nil {
			describe(&o)
		}
		adding.Go(func() { nodes[i], errs[i] = s.Add(t.Context(), o) })
	}
	adding.Wait()
	kit.Must(t, errors.Join(errs...))
	return nodes
}
