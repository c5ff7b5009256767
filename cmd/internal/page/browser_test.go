package page

import (
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

// Every page of the golden ones, hostile texts and all, in a real browser.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	srv, _ := testServer(t, nil)
	kit.Browse(t, srv.URL, "ann", "fleet=/", "fences=/fences", "devices=/devices", "hook=/hook", "node=/nodes/n4",
		"fence=/fences/n1.f-0123456789ab", "newer=/fences/n9.f-aaaaaaaaaaaa")
}
