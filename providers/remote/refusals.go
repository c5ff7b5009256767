package remote

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// RefusedFor is how long a refused credential is not sent again: many devices lock the account after some failures.
const RefusedFor = 15 * time.Minute

// Refusals remembers which credential each device refused, as a salted hash, so that retries do not lock the account. A
// changed password is sent at once. The zero value is ready; it is safe for concurrent use.
type Refusals struct {
	mu   sync.Mutex // guards what follows
	salt []byte
	by   map[string]refusal // by device
}

// CredentialHash identifies a user and a password without holding them.
type CredentialHash [sha256.Size]byte

type refusal struct {
	sum   CredentialHash
	until time.Time
	err   error
}

// HashCredential returns the salted hash that identifies a credential.
func (r *Refusals) HashCredential(user string, password providers.Secret) CredentialHash {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.salt == nil {
		r.salt = make([]byte, 16)
		_, _ = rand.Read(r.salt) // never fails
	}
	h := hmac.New(sha256.New, r.salt)
	_, _ = fmt.Fprintf(h, "%d %s%s", len(user), user, password.Reveal())
	return CredentialHash(h.Sum(nil))
}

// CheckRefused returns why the credential must not be sent to the device at now, or nil.
func (r *Refusals) CheckRefused(device string, s CredentialHash, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if had := r.by[device]; had.sum == s && now.Before(had.until) {
		return had.err
	}
	return nil
}

// RememberDenied records for RefusedFor that the device refused the credential, whose password is at that place. It
// returns later calls' error, an ErrDenied that is a providers.RefusedPassword.
func (r *Refusals) RememberDenied(device, place string, s CredentialHash, now time.Time, cause error) error {
	password := "user and password"
	if place != "" {
		password = "the password in " + place + ", or its user"
	}
	err := providers.WithClass(providers.ErrDenied, &providers.RefusedPassword{Place: place, Text: fmt.Sprintf(
		"the device refuses %s. It is not sent again for %s unless it changes: %s",
		password, RefusedFor, providers.ErrorText(cause))})
	r.HoldCredential(device, s, now.Add(RefusedFor), err)
	return err
}

// HoldCredential blocks the credential for the device until the given time. CheckRefused returns err until then.
func (r *Refusals) HoldCredential(device string, s CredentialHash, until time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]refusal{}
	}
	for name, had := range r.by { // devices come and go
		if until.After(had.until.Add(RefusedFor)) {
			delete(r.by, name)
		}
	}
	r.by[device] = refusal{s, until, err}
}
