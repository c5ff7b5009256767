// Package remote holds what provider types share if they reach their devices over a network: which certificate a device
// may have (Trust), how forcefence logs in (Credentials) and keeps sessions (Pool), which addresses are safe
// (ParseHTTP), what the end of a call means (RunCall, EnsureClass), and how often events cause questions (Asker,
// Throttle). It imports the contract and the standard library.
//
// Trust and Credentials are blocks of settings. A type's Config embeds them with the tag `yaml:",inline"`, and puts the
// problems that their Validate finds before its own.
//
// It promises that no error repeats an address or a secret, that nothing is sent to a device whose certificate is not
// trusted, and that every error of a call that RunCall ran has a class.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// Backstop is the timeout of a call whose caller set no deadline.
const Backstop = time.Minute

// RunCall runs one call of the contract. act is its verb ("power off"). device names the type, the provider and, where
// known, the device ("redfish rack-a https://10.0.0.7"). It does not call f if ctx has ended. The error reads "power
// off node n7 (device): cause", and has the class that EnsureClass assigns.
func RunCall(ctx context.Context, act string, t providers.Target, device string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Backstop)
	defer cancel()
	err := ctx.Err()
	if err == nil {
		err = f(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s node %s (%s): %w", act, t.Node, strings.TrimSpace(device), EnsureClass(ctx, err))
	}
	return nil
}

// EnsureClass adds a class to an error that has none; nil stays nil. Once ctx has ended, ctx determines the error:
// after a deadline it is ErrUnreachable and names the setting that ran out; after a cancellation it is the caller's own
// reason. A file that may not be opened (a socket) is ErrDenied. Any other error is the network's: ErrUnreachable.
func EnsureClass(ctx context.Context, err error) error {
	class := providers.ErrorClass(err)
	switch {
	case err == nil:
		return nil
	case class != "error" && class != "canceled" && class != "unreachable":
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return providers.WithClass(providers.ErrUnreachable,
			providers.WithClass(context.DeadlineExceeded, context.Cause(ctx)))
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, providers.ErrUnreachable):
		return err
	case errors.Is(err, fs.ErrPermission):
		return providers.WithClass(providers.ErrDenied, err)
	}
	return providers.WithClass(providers.ErrUnreachable, err)
}

// HTTPClass returns the class of an unexpected HTTP status.
func HTTPClass(status int) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return providers.ErrDenied
	case http.StatusNotFound, http.StatusGone:
		return providers.ErrNotFound
	case http.StatusRequestTimeout, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return providers.ErrUnreachable
	case http.StatusNotImplemented:
		return providers.ErrPermanent
	}
	if status >= 500 {
		return providers.ErrUnreachable
	}
	return providers.ErrPermanent
}

// Credentials is the block with a user and the place of a password. Either may hold {name}, the Node's name.
type Credentials struct {
	// must be set; may hold {name}, except if one device answers for all machines (a vCenter, or address)
	Username string `yaml:"username"`
	// this or passwordEnv; may hold {name} as username may; read again at each use
	PasswordFile string `yaml:"passwordFile"`
	PasswordEnv  string `yaml:"passwordEnv"` // the environment variable that holds it

	given *providers.Secret // the password, of credentials that no configuration has; nil: the place above has it
}

// GivenCredentials returns credentials of one device that come from elsewhere than the configuration. Braces in them
// have no meaning.
func GivenCredentials(user string, password providers.Secret) Credentials {
	return Credentials{Username: user, given: &password}
}

// Validate returns what is missing.
func (c *Credentials) Validate() (out []providers.Problem) {
	if c.Username == "" {
		out = append(out, providers.Problemf("username", "missing"))
	} else if err := providers.CheckPerMachine(c.Username); err != nil {
		out = append(out, providers.Problemf("username", "%v", err))
	}
	return append(out, c.passwordRef().Validate("password")...)
}

// ValidateShared is Validate for a provider with one device for all machines: it refuses {name}.
func (c *Credentials) ValidateShared() (out []providers.Problem) {
	for _, s := range []struct{ path, setting string }{{"username", c.Username}, {"passwordFile", c.PasswordFile}} {
		if providers.PerMachine(s.setting) {
			out = append(out, providers.Problemf(s.path,
				"has {name}, but one device answers for all machines: write one value for all"))
		}
	}
	if len(out) > 0 {
		return out
	}
	return c.Validate()
}

// ReadPassword reads the password that all machines share. The error is ErrDenied and never contains the password.
func (c *Credentials) ReadPassword() (providers.Secret, error) {
	s, err := c.passwordRef().ReadSecret()
	return s, providers.WithClass(providers.ErrDenied, err)
}

// ReadCredentials reads a node's user and password. The error is ErrDenied and never contains the password.
func (c *Credentials) ReadCredentials(node string) (user string, password providers.Secret, err error) {
	if c.given != nil {
		return c.Username, *c.given, nil
	}
	if user, err = providers.OfMachine(c.Username, node); err == nil {
		password, err = c.passwordRef().ReadSecretOf(node)
	}
	return user, password, providers.WithClass(providers.ErrDenied, err)
}

// OwnerOf returns a target's node if each machine has credentials of its own, "" if all share them. Sessions and
// refusals of one owner must not be used for another.
func (c *Credentials) OwnerOf(t providers.Target) string {
	if c.given == nil && (providers.PerMachine(c.Username) || providers.PerMachine(c.PasswordFile)) {
		return t.Node
	}
	return ""
}

// PasswordPlace says where the password is (providers.SecretRef.Place), "" for given credentials.
func (c *Credentials) PasswordPlace() string { return c.passwordRef().Place() }

func (c *Credentials) passwordRef() providers.SecretRef {
	return providers.SecretRef{File: c.PasswordFile, Env: c.PasswordEnv}
}
