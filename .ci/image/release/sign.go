package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/cosign/v3/pkg/cosign/bundle"
	ociremote "github.com/sigstore/cosign/v3/pkg/oci/remote"
	"github.com/sigstore/cosign/v3/pkg/types"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"
)

// key signs: a private key as `cosign generate-key-pair` makes it. It is a sign.Keypair.
type key struct {
	signer signature.SignerVerifier
	public crypto.PublicKey
	how    signature.AlgorithmDetails
}

var _ sign.Keypair = (*key)(nil)

func readKey(file, password string) (*key, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	k := &key{}
	if k.signer, err = cosign.LoadPrivateKey(text, []byte(password), nil); err != nil {
		return nil, fmt.Errorf("read key %s with the password in COSIGN_PASSWORD: %w", file, err)
	}
	if k.public, err = k.signer.PublicKey(); err != nil {
		return nil, fmt.Errorf("read key %s: %w", file, err)
	}
	if k.how, err = signature.GetDefaultAlgorithmDetails(k.public, *cosign.GetDefaultLoadOptions(nil)...); err != nil {
		return nil, fmt.Errorf("read key %s: %w", file, err)
	}
	return k, nil
}

// GetHashAlgorithm implements sign.Keypair.
func (k *key) GetHashAlgorithm() protocommon.HashAlgorithm { return k.how.GetProtoHashType() }

// GetSigningAlgorithm implements sign.Keypair.
func (k *key) GetSigningAlgorithm() protocommon.PublicKeyDetails {
	return k.how.GetSignatureAlgorithm()
}

// GetKeyAlgorithm implements sign.Keypair. Only a certificate authority needs it.
func (k *key) GetKeyAlgorithm() string { return "" }

// GetPublicKey implements sign.Keypair.
func (k *key) GetPublicKey() crypto.PublicKey { return k.public }

// GetPublicKeyPem implements sign.Keypair.
func (k *key) GetPublicKeyPem() (string, error) {
	text, err := cryptoutils.MarshalPublicKeyToPEM(k.public)
	return string(text), err
}

// GetHint implements sign.Keypair: it names the key as cosign does.
func (k *key) GetHint() []byte {
	der, err := x509.MarshalPKIXPublicKey(k.public)
	if err != nil {
		return nil // a key that was read can be written
	}
	sum := sha256.Sum256(der)
	return []byte(base64.StdEncoding.EncodeToString(sum[:]))
}

// SignData implements sign.Keypair.
func (k *key) SignData(_ context.Context, data []byte) (signed, digest []byte, err error) {
	h := k.how.GetHashType().New()
	h.Write(data)
	signed, err = k.signer.SignMessage(bytes.NewReader(data))
	return signed, h.Sum(nil), err
}

// bundleOf is a bundle of sigstore's: content, signed by the key, in no transparency log and without a time.
func (k *key) bundleOf(ctx context.Context, content sign.Content) ([]byte, error) {
	return bundle.SignData(ctx, content, k, "", nil, &root.SigningConfig{}, nil, bundle.SignOptions{})
}

// statement is an in-toto statement of these subjects.
func statement(predicateType string, predicate []byte, subjects ...subject) ([]byte, error) {
	text, err := json.Marshal(struct {
		Type          string          `json:"_type"`
		Subject       []subject       `json:"subject"`
		PredicateType string          `json:"predicateType"`
		Predicate     json.RawMessage `json:"predicate"`
	}{intoto.StatementTypeUri, subjects, predicateType, predicate})
	if err != nil {
		return nil, err
	}
	var s intoto.Statement
	if err := protojson.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	return text, s.Validate()
}

type subject struct {
	Name   string            `json:"name,omitempty"`
	Digest map[string]string `json:"digest"`
}

func subjectOf(name string, h v1.Hash) subject {
	return subject{name, map[string]string{h.Algorithm: h.Hex}}
}

const (
	predicateSPDX = "https://spdx.dev/Document"
	predicateSLSA = "https://slsa.dev/provenance/v1"
)

// attach signs an image, its SBOMs and the provenance, and adds the signatures to the image's layout. It returns them
// as the images that a registry keeps, each of which refers to the signed image. cosign itself pushes them to a
// registry, and attach reads them from there. Without a key it attaches nothing.
func (r *release) attach(ctx context.Context, host string, p *picture, provenance []byte) ([]v1.Image, error) {
	if r.key == nil {
		return nil, nil
	}
	repo, err := name.NewRepository(host + "/forcefence")
	if err != nil {
		return nil, err
	}
	if err := remote.WriteIndex(repo.Tag(r.version), p.index, remote.WithContext(ctx)); err != nil {
		return nil, err
	}
	it := subjectOf("", p.digest)
	signed, err := statement(types.CosignSignPredicateType, []byte("{}"), it)
	if err != nil {
		return nil, err
	}
	payloads := [][2][]byte{{[]byte(types.CosignSignPredicateType), signed}, {[]byte(predicateSLSA), provenance}}
	for _, platform := range sorted(p.documents) {
		s, err := statement(predicateSPDX, p.documents[platform], it)
		if err != nil {
			return nil, err
		}
		payloads = append(payloads, [2][]byte{[]byte(predicateSPDX), s})
	}
	digest := repo.Digest(p.digest.String())
	for _, payload := range payloads {
		b, err := r.key.bundleOf(ctx, &sign.DSSEData{Data: payload[1], PayloadType: "application/vnd.in-toto+json"})
		if err != nil {
			return nil, err
		}
		if err := ociremote.WriteAttestationNewBundleFormat(digest, b, string(payload[0]),
			ociremote.WithRemoteOptions(remote.WithContext(ctx))); err != nil {
			return nil, err
		}
	}
	return keep(ctx, p, digest)
}

// keep adds what refers to an image in a registry to the image's layout: its files are there, but it is not listed,
// since what reads archives wants one image in them. `cosign load` finds it.
func keep(ctx context.Context, p *picture, digest name.Digest) ([]v1.Image, error) {
	to, err := layout.FromPath(p.dir)
	if err != nil {
		return nil, err
	}
	// by which cosign knows what the others refer to
	kind := map[string]string{"kind": "dev.cosignproject.cosign/imageIndex"}
	if err := to.ReplaceIndex(p.index, match.Digests(p.digest), layout.WithAnnotations(kind)); err != nil {
		return nil, err
	}
	index, err := remote.Referrers(digest, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var all []v1.Image
	for _, d := range list.Manifests {
		img, err := remote.Image(digest.Context().Digest(d.Digest.String()), remote.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		if err := to.WriteImage(img); err != nil {
			return nil, err
		}
		all = append(all, img)
	}
	return all, nil
}

// serve is a registry on 127.0.0.1.
func serve() (host string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{
		Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)),
			registry.WithReferrersSupport(true)),
		ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // ends with Close
	}()
	return ln.Addr().String(), func() {
		_ = srv.Close()
		<-done
	}, nil
}

// pushAll sends an image and what refers to it to a registry. The tag comes last: a client that sees it finds the
// signatures.
func pushAll(ctx context.Context, to string, index v1.ImageIndex, attached []v1.Image) error {
	tag, err := name.NewTag(to)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	with := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	err = remote.WriteIndex(tag.Digest(digest.String()), index, with...)
	for _, img := range attached {
		d, err2 := img.Digest()
		err = errors.Join(err, err2)
		if err == nil {
			err = remote.Write(tag.Digest(d.String()), img, with...)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", tag.Context(), err)
	}
	return remote.Tag(tag, index, with...)
}
