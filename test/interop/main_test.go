package interop

import (
	"flag"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// wanted says whether the stories run.
var wanted = os.Getenv("FORCEFENCE_INTEROP") != ""

func TestMain(m *testing.M) {
	_ = os.Unsetenv("FORCEFENCE_INTEROP") // forcefence takes such a variable for one of its keys
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	_ = flag.Set("test.parallel", "100") // a flag that testing always has: the stories wait for most of their time
	os.Exit(m.Run())
}

func needWanted(t *testing.T) {
	t.Helper()
	if !wanted {
		t.Skip("make interop runs it: the controllers take minutes to build")
	}
}
