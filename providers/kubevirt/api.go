package kubevirt

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
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	maxAnswer = 1 << 20  // bytes; a launcher pod has some 20 KB
	maxValues = 32 << 10 // and less than 1,000 values
)

// account is what a kubeconfig says, with the content of the files that it names.
type account struct {
	cfg  *rest.Config
	text []byte // the kubeconfig's
}

// readKubeconfig reads a kubeconfig and the files that it names. Its errors repeat nothing of a file's content. It
// refuses programs that get credentials, because the controller's image has none, and servers without TLS.
func readKubeconfig(file string) (a account, err error) {
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
	// their content is there
	a.cfg.CertFile, a.cfg.KeyFile, a.cfg.CAFile, a.cfg.BearerTokenFile = "", "", "", ""
	a.cfg.BearerToken = strings.TrimSpace(a.cfg.BearerToken)
	return a, nil
}

// equal reports whether the kubeconfig and all files that it names have the same content.
func (a account) equal(b account) bool {
	return bytes.Equal(a.text, b.text) && a.cfg.BearerToken == b.cfg.BearerToken &&
		bytes.Equal(a.cfg.CAData, b.cfg.CAData) && bytes.Equal(a.cfg.CertData, b.cfg.CertData) &&
		bytes.Equal(a.cfg.KeyData, b.cfg.KeyData)
}

// api is a client of the host cluster's API server.
type api struct {
	account   account
	rest      rest.Interface
	closeIdle func()
}

// newAPI returns a client with connections of its own. It contacts no API server.
func newAPI(a account, agent string) (*api, error) {
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
	return &api{account: a, rest: client, closeIdle: t.CloseIdleConnections}, nil
}

// get reads one object or list from the API server's storage: without a resourceVersion no cache may answer.
func (a *api) get(ctx context.Context, into object, kind, selector string, path ...string) error {
	r := a.rest.Get().AbsPath(path...).MaxRetries(0)
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
	if got := into.kind(); got != kind {
		return providers.Errorf(providers.ErrPermanent, "the API server answered with %.40q instead of a %s: is "+
			"KubeVirt installed there?", got, kind)
	}
	return nil
}

// put sends one request that acts. Only 202 is an acceptance.
func (a *api) put(ctx context.Context, body string, path ...string) error {
	status := 0
	err := a.rest.Put().AbsPath(path...).MaxRetries(0).SetHeader("Content-Type", "application/json").
		Body([]byte(body)).Do(withoutLog(ctx)).StatusCode(&status).Error()
	if err == nil && status != http.StatusAccepted {
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
