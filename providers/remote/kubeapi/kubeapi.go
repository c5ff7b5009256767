// Package kubeapi is a client of a Kubernetes API server, for provider types that ask one. It imports the contract,
// providers/remote and client-go.
//
// It promises that an answer is from the API server's own storage and of the expected kind, that a request is sent
// once, and that one that acts asks first whether it may still be sent (remote.WithStill).
package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	maxAnswer = 1 << 20  // bytes; a pod, and a BareMetalHost, has some 20 KB
	maxValues = 32 << 10 // and less than 1,000 values
)

// Connection is the client of one account. It is safe for concurrent use.
type Connection struct {
	file, agent string

	mu      sync.Mutex // guards current
	current *Client    // of the account as it was read last; nil before the first call
}

// NewConnection returns the connection of a kubeconfig's account, or of the pod's own account if file is "". It reads
// no file and contacts no API server.
func NewConnection(file, agent string) *Connection { return &Connection{file: file, agent: agent} }

// Client returns the API server's client. It reads the kubeconfig again, and makes a new client if it, or a file that
// it names, changed. The error is ErrDenied.
func (c *Connection) Client() (*Client, error) {
	a, err := readAccount(c.file)
	if err != nil {
		return nil, providers.Errorf(providers.ErrDenied, "the kubeconfig: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && c.current.account.equal(a) {
		return c.current, nil
	}
	fresh, err := newClient(a, c.agent)
	if err != nil {
		return nil, providers.Errorf(providers.ErrDenied, "the kubeconfig: %w", err)
	}
	if c.current != nil {
		c.current.closeIdle()
	}
	c.current = fresh
	return fresh, nil
}

// Close closes the connections.
func (c *Connection) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.current.closeIdle()
		c.current = nil
	}
}

// CheckFile returns what is wrong with a kubeconfig and the files that it names.
func CheckFile(file string) error {
	a, err := readAccount(file)
	if err == nil {
		_, err = newClient(a, "")
	}
	return err
}

// CautionsOf returns the risks of a kubeconfig, which is the setting kubeconfig. CheckFile reports its errors.
func CautionsOf(file string) []providers.Problem {
	a, err := readAccount(file)
	if err != nil || !a.cfg.Insecure {
		return nil
	}
	return []providers.Problem{providers.Problemf("kubeconfig", "has insecure-skip-tls-verify: any host that answers "+
		"gets the credentials and may report Off. Use certificate-authority instead")}
}

// account is what a kubeconfig says, with the content of the files that it names.
type account struct {
	cfg  *rest.Config
	text []byte // the kubeconfig's
}

// readAccount reads a kubeconfig and the files that it names. Its errors repeat nothing of a file's content. It
// refuses programs that get credentials, because the controller's image has none, and servers without TLS. "" is the
// account of the pod that it runs in.
func readAccount(file string) (a account, err error) {
	if file == "" {
		return readPodAccount()
	}
	var raw *clientcmdapi.Config
	if a.text, err = os.ReadFile(file); err == nil {
		raw, err = clientcmd.LoadFromFile(file)
	}
	if err == nil {
		err = clientcmd.ResolveLocalPaths(raw)
	}
	if err == nil {
		// This reader never falls back to the account of the pod that it runs in, which is another cluster's.
		a.cfg, err = clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	}
	if err == nil {
		err = rest.LoadTLSFiles(a.cfg)
	}
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		return account{}, fmt.Errorf("reading the account: %w", path)
	case err != nil:
		return account{}, errors.New("is no usable kubeconfig: kubectl --kubeconfig FILE version says why")
	case a.cfg.ExecProvider != nil || a.cfg.AuthProvider != nil:
		return account{}, errors.New("gets its credentials from a program (exec or auth-provider), which is not " +
			"supported: write a token, a tokenFile or a client certificate")
	case !strings.HasPrefix(a.cfg.Host, "https://"):
		return account{}, errors.New("has a server that is not https://, so its answers prove nothing")
	}
	a.forgetFiles()
	return a, nil
}

// readPodAccount reads the account that Kubernetes gives to the pod that this process runs in.
func readPodAccount() (a account, err error) {
	if a.cfg, err = rest.InClusterConfig(); err != nil {
		return account{}, errors.New("is missing, and this process runs in no pod whose account it could use")
	}
	if err := rest.LoadTLSFiles(a.cfg); err != nil {
		return account{}, fmt.Errorf("reading the pod's account: %w", err)
	}
	a.forgetFiles()
	return a, nil
}

// forgetFiles keeps the content of the account's files, and not their names, so that a change of them is noticed.
func (a account) forgetFiles() {
	a.cfg.CertFile, a.cfg.KeyFile, a.cfg.CAFile, a.cfg.BearerTokenFile = "", "", "", ""
	a.cfg.BearerToken = strings.TrimSpace(a.cfg.BearerToken)
}

// equal reports whether the kubeconfig and all files that it names have the same content.
func (a account) equal(b account) bool {
	return bytes.Equal(a.text, b.text) && a.cfg.BearerToken == b.cfg.BearerToken &&
		bytes.Equal(a.cfg.CAData, b.cfg.CAData) && bytes.Equal(a.cfg.CertData, b.cfg.CertData) &&
		bytes.Equal(a.cfg.KeyData, b.cfg.KeyData)
}

// Client is a client of an API server.
type Client struct {
	account   account
	rest      rest.Interface
	closeIdle func()
}

// newClient returns a client with connections of its own. It contacts no API server.
func newClient(a account, agent string) (*Client, error) {
	cfg := *a.cfg
	scheme := runtime.NewScheme()
	core := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, core) // its Status explains refusals
	cfg.GroupVersion, cfg.NegotiatedSerializer = &core, serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.UserAgent, cfg.QPS, cfg.WarningHandlerWithContext = agent, -1, rest.NoWarnings{}
	secure, err := rest.TLSConfigFor(&cfg)
	if err != nil {
		return nil, errors.New("has certificates or a key that are no usable PEM")
	}
	t := &http.Transport{
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSClientConfig: secure,
		TLSHandshakeTimeout: 10 * time.Second, Proxy: cfg.Proxy,
		MaxIdleConnsPerHost: 4, MaxConnsPerHost: 32, IdleConnTimeout: time.Minute,
		MaxResponseHeaderBytes: remote.MaxHeader,
	}
	wrapped, err := rest.HTTPWrappersForConfig(&cfg,
		remote.Permitted{Next: remote.Limited{Next: t, Bytes: maxAnswer, Values: maxValues}})
	if err != nil {
		return nil, errors.New("has more than one kind of credentials")
	}
	client, err := rest.RESTClientForConfigAndClient(&cfg, &http.Client{
		Transport:     wrapped,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	if err != nil {
		return nil, errors.New("has a server that is no usable URL")
	}
	return &Client{account: a, rest: client, closeIdle: t.CloseIdleConnections}, nil
}

// Object is what the API server answers with.
type Object interface{ ObjectKind() string }

// TypeMeta is the part of an answer that names its kind.
type TypeMeta struct{ Kind string }

// ObjectKind implements Object.
func (m TypeMeta) ObjectKind() string { return m.Kind }

// Get reads one object or list from the API server's storage: without a resourceVersion no cache may answer.
func (c *Client) Get(ctx context.Context, into Object, kind, selector string, path ...string) error {
	r := c.rest.Get().AbsPath(path...).MaxRetries(0)
	if selector != "" {
		r = r.Param("labelSelector", selector)
	}
	result := r.Do(withoutLog(ctx))
	if err := result.Error(); err != nil {
		return classifyError(err)
	}
	body, _ := result.Raw()
	if err := json.Unmarshal(body, into); err != nil {
		return providers.Errorf(providers.ErrPermanent, "the API server's %s cannot be read: %s", kind,
			providers.ErrorText(err))
	}
	if got := into.ObjectKind(); got != kind {
		return providers.Errorf(providers.ErrPermanent, "the API server answered with %.40q instead of a %s", got,
			kind)
	}
	return nil
}

// Put sends one request that acts, to a subresource. Only 202 is an acceptance.
func (c *Client) Put(ctx context.Context, body string, path ...string) error {
	status := 0
	err := c.rest.Put().AbsPath(path...).MaxRetries(0).SetHeader("Content-Type", "application/json").
		Body([]byte(body)).Do(withoutLog(ctx)).StatusCode(&status).Error()
	if err == nil && status != http.StatusAccepted {
		return providers.Errorf(providers.ErrPermanent, "the API server answered %d, which is no acceptance", status)
	}
	return classifyError(err)
}

// Patch changes an object by a merge patch, which names the resourceVersion that was read. Only 200 is an acceptance.
func (c *Client) Patch(ctx context.Context, patch []byte, path ...string) error {
	status := 0
	err := c.rest.Patch(types.MergePatchType).AbsPath(path...).MaxRetries(0).
		Body(patch).Do(withoutLog(ctx)).StatusCode(&status).Error()
	if err == nil && status != http.StatusOK {
		return providers.Errorf(providers.ErrPermanent, "the API server answered %d, which is no acceptance", status)
	}
	return classifyError(err)
}

// withoutLog keeps client-go from logging what it returns as an error.
func withoutLog(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// classifyError adds the class of an API server's refusal, and removes the server's address from other errors.
func classifyError(err error) error {
	var status apierrors.APIStatus
	var certificate *tls.CertificateVerificationError
	var at *url.Error
	switch {
	case err == nil || providers.ErrorClass(err) != "error":
		return err
	case errors.As(err, &status):
		class := remote.HTTPClass(int(status.Status().Code))
		if apierrors.IsConflict(err) { // another client changed the object at the same time
			class = providers.ErrUnreachable
		}
		return providers.WithClass(class, err)
	case errors.As(err, &certificate):
		return providers.Errorf(providers.ErrUntrusted, "certificate not trusted (certificate-authority of the "+
			"kubeconfig): %w", certificate.Err)
	case errors.As(err, &at):
		return at.Err
	}
	return err
}

// IsStatus reports whether the error is an API server's answer with that HTTP status.
func IsStatus(err error, code int32) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code == code
}
