package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// audience is the audience of tokens that open only this page. Tokens for the API server are accepted as well.
	audience = "forcefence.io/status"
	// accessPath is the nonResourceURL that a user needs the right to get.
	accessPath = "/forcefence/status"

	reviewValidFor = 30 * time.Second // for how long a review counts
	maxLoginTime   = time.Hour        // for how long a login lasts at most
	reviewTimeout  = 5 * time.Second  // the API server's time for one review
	maxLogins      = 256              // concurrent logins
	maxTokenBytes  = 16 << 10         // of one token
	maxSources     = 1024             // addresses whose unknown tokens are counted
)

// Why a user may not see the page. Other errors are the API server's.
var (
	errUnknownToken = errors.New("the API server does not know this token, or it has expired")
	errNoRight      = errors.New("may not see this page")
	errTooMany      = errors.New("too many unknown tokens at the same time: try again in a moment")
)

// Reviewer returns the user of a token. It blocks for the API server. It returns errUnknownToken for an unknown token,
// and errNoRight for a user who may not see the page.
type Reviewer func(ctx context.Context, token string) (who string, err error)

// NewReviewer returns a Reviewer that asks the API server for a token's user, and whether that user may see the page.
func NewReviewer(c kubernetes.Interface) Reviewer {
	return func(ctx context.Context, token string) (string, error) {
		var user authentication.UserInfo
		// First as a token for this page alone. A token for the API server has another audience, so the second review
		// names none.
		for _, audiences := range [][]string{{audience}, nil} {
			r, err := c.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{
				Spec: authentication.TokenReviewSpec{Token: token, Audiences: audiences},
			}, metav1.CreateOptions{})
			if err != nil {
				return "", fmt.Errorf("reviewing token: %w", err)
			}
			if r.Status.Authenticated {
				user = r.Status.User
				break
			}
		}
		if user.Username == "" {
			return "", errUnknownToken
		}
		extra := map[string]authorization.ExtraValue{}
		for k, v := range user.Extra {
			extra[k] = authorization.ExtraValue(v)
		}
		r, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorization.SubjectAccessReview{
			Spec: authorization.SubjectAccessReviewSpec{
				User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
				NonResourceAttributes: &authorization.NonResourceAttributes{Path: accessPath, Verb: "get"},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return "", fmt.Errorf("reviewing access: %w", err)
		}
		if !r.Status.Allowed || r.Status.Denied {
			return user.Username, errNoRight
		}
		return user.Username, nil
	}
}

// gate holds the logins. It finds a login by the hash of the cookie or token that a request presents. It reviews the
// login's token again and again.
type gate struct {
	review Reviewer
	now    func() time.Time
	all    *rate.Limiter // of unknown tokens, from all addresses

	mu    sync.Mutex // guards known and each
	known map[key]*login
	each  map[netip.Prefix]*rate.Limiter // of unknown tokens, by where they come from
}

type key [sha256.Size]byte

type login struct {
	token string
	ends  time.Time

	mu   sync.Mutex // held while the token is reviewed; guards what follows
	who  string
	last time.Time
}

func newGate(review Reviewer, now func() time.Time) *gate {
	return &gate{review: review, now: now, all: rate.NewLimiter(25, 100), known: map[key]*login{},
		each: map[netip.Prefix]*rate.Limiter{}}
}

// keyOf returns the gate's key for a presented secret. The kind is part of the hash, so a cookie never passes for a
// token, or a token for a cookie.
func keyOf(kind, shown string) key { return sha256.Sum256([]byte(kind + "\x00" + shown)) }

// The kinds of presented secrets.
const (
	kindCookie = "cookie"
	kindBearer = "bearer"
)

// openLogin reviews a token, and returns the cookie that the browser presents from now on. It blocks for the API
// server.
func (g *gate) openLogin(ctx context.Context, from netip.Addr, token string) (shown, who string, err error) {
	shown = rand.Text() + rand.Text()
	who, err = g.admitToken(ctx, keyOf(kindCookie, shown), from, token)
	return shown, who, err
}

// endLogin forgets the login of a cookie.
func (g *gate) endLogin(shown string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, keyOf(kindCookie, shown))
}

// reviewCookie returns the user of a cookie, or errUnknownToken if no login has it. It may block for the API server.
func (g *gate) reviewCookie(ctx context.Context, shown string) (string, error) {
	return g.reviewKnown(ctx, keyOf(kindCookie, shown))
}

// reviewBearer returns the user of a request's token. It may block for the API server.
func (g *gate) reviewBearer(ctx context.Context, from netip.Addr, token string) (string, error) {
	k := keyOf(kindBearer, token)
	if who, err := g.reviewKnown(ctx, k); !errors.Is(err, errUnknownToken) {
		return who, err
	}
	return g.admitToken(ctx, k, from, token)
}

// admitToken reviews an unknown token, and keeps it if it is valid.
func (g *gate) admitToken(ctx context.Context, k key, from netip.Addr, token string) (string, error) {
	if token == "" || len(token) > maxTokenBytes {
		return "", errUnknownToken
	}
	if now := g.now(); !g.triesOf(from).AllowN(now, 1) || !g.all.AllowN(now, 1) {
		return "", errTooMany
	}
	who, err := g.reviewToken(ctx, token)
	if err != nil {
		return who, err
	}
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.makeRoom(now)
	g.known[k] = &login{token: token, ends: now.Add(maxLoginTime), who: who, last: now}
	return who, nil
}

// triesOf returns the limit of unknown tokens from an address. So a stranger who tries many keeps no one else out. A
// whole IPv6 subnet counts as one address.
func (g *gate) triesOf(from netip.Addr) *rate.Limiter {
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	source, _ := from.Prefix(bits) // the zero address has the zero prefix
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.each[source]; l != nil {
		return l
	}
	for old := range g.each { // any one: the limit of all addresses holds in any case
		if len(g.each) < maxSources {
			break
		}
		delete(g.each, old)
	}
	l := rate.NewLimiter(5, 20)
	g.each[source] = l
	return l
}

// makeRoom forgets expired logins, and the oldest login if there are maxLogins. The caller holds mu.
func (g *gate) makeRoom(now time.Time) {
	var oldest key
	for k, p := range g.known {
		if !now.Before(p.ends) {
			delete(g.known, k)
		} else if o := g.known[oldest]; o == nil || p.ends.Before(o.ends) {
			oldest = k
		}
	}
	if len(g.known) >= maxLogins {
		delete(g.known, oldest)
	}
}

// reviewKnown returns the user of a known login. It reviews the login's token again if the last review is older than
// reviewValidFor.
func (g *gate) reviewKnown(ctx context.Context, k key) (string, error) {
	g.mu.Lock()
	p := g.known[k]
	g.mu.Unlock()
	now := g.now()
	if p == nil || !now.Before(p.ends) {
		return "", errUnknownToken
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if age := now.Sub(p.last); age >= 0 && age < reviewValidFor {
		return p.who, nil
	}
	who, err := g.reviewToken(ctx, p.token)
	if err == nil {
		p.who, p.last = who, now
		return who, nil
	}
	if errors.Is(err, errUnknownToken) || errors.Is(err, errNoRight) {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.known, k)
	}
	return who, err
}

func (g *gate) reviewToken(ctx context.Context, token string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, reviewTimeout, fmt.Errorf("no answer within %s", reviewTimeout))
	defer cancel()
	return g.review(ctx, token)
}
