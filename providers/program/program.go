// Package program has what provider types share that run programs: bounded output, and an environment without secrets.
// It imports the standard library only.
package program

import (
	"bytes"
	"os"
)

// MaxOutput is how much is kept of each of a program's outputs; the rest is read and dropped.
const MaxOutput = 64 << 10

// Output keeps the first MaxOutput bytes written to it. It embeds no buffer: io.Copy would call the buffer's ReadFrom,
// which has no bound.
type Output struct{ kept bytes.Buffer }

func (o *Output) Write(p []byte) (int, error) {
	o.kept.Write(p[:min(len(p), MaxOutput-o.kept.Len())])
	return len(p), nil
}

// String returns what was kept.
func (o *Output) String() string { return o.kept.String() }

// Environ is the only part of this process' environment that programs get: passwords may be in the rest.
func Environ() []string {
	env := []string{"LC_ALL=C.UTF-8"}
	for _, key := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}
