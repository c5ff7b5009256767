package remote

import (
	"context"
	"crypto/sha256"
	"os"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// RenewAfter is how old a log-in may be until a drill logs in again. Then an account that was locked, or a password
// that was changed on the device alone, is noticed while the session of the old log-in still works.
const RenewAfter = time.Hour

// LogIn describes a log-in whose session is kept: with which credential it was made, and when.
type LogIn struct {
	Sum CredentialHash
	At  time.Time
}

// MustRenew reports whether a question logs in again although this log-in's session may still work: a drill
// (providers.IsDrill) does if sum, the credential of now, is another one, and once an hour. Any other question uses the
// session as long as the device accepts it, since a fence has no time for a log-in that it does not need.
//
// The provider ends the old session after the new one is made, and keeps it if the device refuses the new log-in: it
// may be all that a fence has.
func (l LogIn) MustRenew(ctx context.Context, sum CredentialHash, now time.Time) bool {
	if !providers.IsDrill(ctx) {
		return false
	}
	return l.Sum != sum || !now.Before(l.At.Add(RenewAfter)) || now.Before(l.At) // the clock was set back
}

// HashFiles identifies the content of files that are a log-in, such as a certificate and its key. A file that cannot be
// read counts as empty, so that a log-in is tried, whose error names the file. The name "" is no file.
func HashFiles(names ...string) CredentialHash {
	h := sha256.New()
	for _, name := range names {
		var content []byte
		if name != "" {
			content, _ = os.ReadFile(name)
		}
		sum := sha256.Sum256(content)
		_, _ = h.Write(sum[:])
	}
	return CredentialHash(h.Sum(nil))
}
