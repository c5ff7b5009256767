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

// Refusals remembers which credential each device refused, as a salted hash, so that no account is locked by asking again. Another
// credential (a rotated password) is sent at once. The zero value is ready; it is safe for concurrent use.
type Refusals struct {
	mu   sync.Mutex // guards what follows
	salt []byte
	by   map[string]refusal // by device
}

// Sum stands for a user and a password.
type Sum [sha256.Size]byte

type refusal struct {
	sum   Sum
	until time.Time
	err   error
}

// Sum returns what is remembered of a credential.
func (r *Refusals) Sum(user string, password providers.Secret) Sum {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.salt == nil {
		r.salt = make([]byte, 16)
		_, _ = rand.Read(r.salt) // never fails
	}
	h := hmac.New(sha256.New, r.salt)
	_, _ = fmt.Fprintf(h, "%d %s%s", len(user), user, password.Reveal())
	return Sum(h.Sum(nil))
}

// Check returns why the credential must not be sent to the device now, or nil.
func (r *Refusals) Check(device string, s Sum, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if had := r.by[device]; had.sum == s && now.Before(had.until) {
		return had.err
	}
	return nil
}

// Denied remembers for RefusedFor that the device refused the credential, and returns the error of this and of later calls, an ErrDenied.
func (r *Refusals) Denied(device string, s Sum, now time.Time, cause error) error {
	err := providers.WithClass(providers.ErrDenied, fmt.Errorf("%s: the device refused username and password, which are not sent again for %s unless they change",
		providers.Text(cause), RefusedFor))
	r.Hold(device, s, now.Add(RefusedFor), err)
	return err
}

// Hold keeps the credential from being sent to the device until then; err is what Check returns.
func (r *Refusals) Hold(device string, s Sum, until time.Time, err error) {
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
