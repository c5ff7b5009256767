package redfish

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Service is what a Redfish service shows to any client. Nothing of it is proven, and its texts are the device's.
type Service struct {
	Version, Vendor, Product string        // as the service calls itself; each may be ""
	Certificate              remote.SHA256 // of the certificate that it showed
}

// ReadService reads the service root at an https:// address, without a log-in. It accepts any certificate, because it
// sends nothing secret. An answer that is no service root is an ErrNotFound. It blocks until ctx ends at most.
func ReadService(ctx context.Context, address string) (Service, error) {
	c := &Config{Trust: remote.Trust{InsecureSkipVerify: true}}
	origin, _, err := c.parseAddress(address)
	if err != nil || !strings.HasPrefix(origin, "https://") {
		return Service{}, providers.Errorf(providers.ErrPermanent, "the address is not https://host[:port]")
	}
	transport := newTransport(c)
	defer transport.CloseIdleConnections()
	only := remote.Limited{Next: transport, Bytes: maxAnswer, Values: maxValues}
	client := httpClient(origin, only, only)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+schemas.DefaultServiceRoot, http.NoBody)
	if err != nil {
		return Service{}, withoutURL(err)
	}
	r.Header.Set("Accept", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return Service{}, remote.EnsureClass(ctx, withoutURL(err))
	}
	defer resp.Body.Close()
	var s Service
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		s.Certificate = sha256.Sum256(resp.TLS.PeerCertificates[0].Raw)
	}
	var root struct{ RedfishVersion, Vendor, Product word }
	switch body, err := io.ReadAll(resp.Body); {
	case err != nil:
		return Service{}, remote.EnsureClass(ctx, fmt.Errorf("reading answer: %w", err))
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return s, nil // some BMCs show the root only after a log-in
	case resp.StatusCode != http.StatusOK || json.Unmarshal(body, &root) != nil || root.RedfishVersion == "":
		return Service{}, notFound("the answer (%d) is no Redfish service root", resp.StatusCode)
	}
	s.Version, s.Vendor, s.Product = string(root.RedfishVersion), string(root.Vendor), string(root.Product)
	return s, nil
}

// SystemIdentity names one system of a BMC, in the device's words.
type SystemIdentity struct {
	Path         string // of its resource
	UUID, Serial string // each may be ""
}

// ListSystems logs in to the BMC at that address, and lists its systems. It changes nothing but its own session. A BMC
// whose certificate is not trusted gets no credential: ErrUntrusted. A part of the systems comes with an error.
func (p *Provider) ListSystems(ctx context.Context, address string) ([]SystemIdentity, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	w, err := p.locateSystem(providers.Target{ID: address})
	if err != nil {
		return nil, err
	}
	b, release, err := p.pool.Acquire(w.Account)
	if err != nil {
		return nil, err
	}
	defer release()
	all, err := b.scanSystems(ctx)
	if err != nil {
		return nil, fmt.Errorf("list systems of %s: %w", w.Device, classifyError(ctx, err))
	}
	var out []SystemIdentity
	for _, s := range all.systems {
		out = append(out, SystemIdentity{Path: s.path, UUID: s.UUID, Serial: s.SerialNumber})
	}
	return out, all.err
}

// listTime is the timeout of ListSystems: a log-in and a scan.
const listTime = 2*loginTime + scanTime + time.Second
