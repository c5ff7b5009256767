package nri

import (
	"syscall"
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

func makePipe(t *testing.T, file string) {
	t.Helper()
	kit.Must(t, syscall.Mkfifo(file, 0o600))
}
