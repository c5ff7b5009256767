package hypervisor_test

import (
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/kit"
)

// TestNothingIsLeft: the guests and the files go when a process that started a hypervisor is killed.
func TestNothingIsLeft(t *testing.T) {
	hypervisor.Need(t)
	words := kit.KillTest(t, func() []string {
		h := hypervisor.New(t, hypervisor.Options{})
		return []string{h.Socket(), h.Guest(t, "n1", hypervisor.Guest{}).UUID()}
	}, func([]string) {})
	kit.WaitGone(t, words[1], strings.TrimSuffix(words[0], "/run/libvirt/libvirt-sock"))
}
