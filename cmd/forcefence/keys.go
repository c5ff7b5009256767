package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/features/signing"
	"github.com/forcefence/forcefence/taint/view"
)

// newKeys returns the command that makes, lists and revokes the keys that sign records.
func newKeys() *cobra.Command {
	var cluster clusterFlags
	var fresh bool
	var revoke string
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make, print or revoke the keys that sign what devices answered",
		Long: `Print the public keys that "forcefence proof verify" checks fences with. --new
makes another key, and the controller signs with it within about two minutes.
The keys before it stay valid for the fences that they signed, until --revoke.

The private key is in the Secret forcefence-signing, which is mounted into the
controller's pods; the controller's account cannot read it. The public keys are
in the ConfigMap forcefence-public-keys.`,
		Example: `  # The first key, or another one
  forcefence proof keys --new
  # For proof verify --keys
  forcefence proof keys > keys.pem`,
		Args: cobra.NoArgs,
		RunE: cluster.withClient(func(cmd *cobra.Command, c client.WithWatch, _ []string) error {
			namespace, err := controllerNamespace(cmd.Context(), c, cluster.overrides.Context.Namespace)
			if err != nil {
				return err
			}
			k := signingKeys{client: c, namespace: namespace, random: rand.Reader, now: time.Now}
			var message string
			switch {
			case fresh:
				message, err = k.add(cmd.Context())
			case revoke != "":
				message, err = k.revoke(cmd.Context(), revoke)
			default:
				var text []byte
				text, err = readPublicKeys(cmd.Context(), c, namespace)
				message = string(bytes.TrimSpace(text))
			}
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), message)
			}
			return err
		}),
	}
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&fresh, "new", false, "make another key, which signs from now on")
	f.StringVar(&revoke, "revoke", "", "the id of a key: what it signed is not valid any more")
	cmd.MarkFlagsMutuallyExclusive("new", "revoke")
	return withRole(cmd, roleKeys)
}

// signingKeys changes the Secret with the key that signs, and the ConfigMap with all public keys. Its methods block for
// the API server. A method that failed may be repeated.
type signingKeys struct {
	client    client.Client
	namespace string
	random    io.Reader
	now       func() time.Time
}

// add makes another key. It publishes the public key first, so that no signature is by a key that no reader knows.
func (k signingKeys) add(ctx context.Context) (string, error) {
	public, private, err := ed25519.GenerateKey(k.random)
	if err != nil {
		return "", fmt.Errorf("making a key: %w", err)
	}
	cm, secret, before, err := k.read(ctx)
	if err != nil {
		return "", err
	}
	others, err := k.describeOthers(before, secret)
	if err != nil {
		return "", err
	}
	all := slices.Concat(before, signing.EncodeKey(public, k.now()))
	cm.Data = map[string]string{config.KeysEntry: string(all)}
	secret.Data = map[string][]byte{config.KeysEntry: signing.EncodeSigner(private)}
	if err := k.write(ctx, cm, secret); err != nil {
		return "", err
	}
	return fmt.Sprintf("Key %s signs as soon as the kubelets bring it to the controller's pods, in about two minutes.",
		signing.KeyID(public)) + others, nil
}

// describeOthers names the keys that stay valid beside a new one; "" if there are none. Any client that may write the
// ConfigMap can have added one.
func (k signingKeys) describeOthers(before []byte, secret *corev1.Secret) (string, error) {
	if len(before) == 0 {
		return "", nil
	}
	listed, err := signing.ListKeys(before)
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %s: %w", config.KeysConfigMap, err)
	}
	signed := ""
	if signer, err := signing.ParseSigner(secret.Data[config.KeysEntry]); err == nil {
		signed = signing.KeyID(signer.Key.Public().(ed25519.PublicKey))
	}
	var all []string
	for _, one := range listed {
		text := one.ID + " (in the ConfigMap since " + cmp.Or(view.OneLine(one.Since, 40), "an unknown day")
		if one.ID == signed {
			text += ", signed until now"
		}
		all = append(all, text+")")
	}
	return "\nThese keys stay valid: " + strings.Join(all, ", ") + ".\nIf you did not make one of them, another " +
		"client added it, and can sign proofs: forcefence proof keys --revoke ID", nil
}

// revoke removes a public key: no reader then accepts what that key signed.
func (k signingKeys) revoke(ctx context.Context, id string) (string, error) {
	cm, secret, before, err := k.read(ctx)
	if err != nil {
		return "", err
	}
	listed, err := signing.ListKeys(before)
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %s: %w", config.KeysConfigMap, err)
	}
	var left []byte
	found := false
	for _, one := range listed {
		if one.ID == id {
			found = true
			continue
		}
		left = append(left, one.Block...)
	}
	signer, err := signing.ParseSigner(secret.Data[config.KeysEntry])
	switch {
	case !found:
		return "", fmt.Errorf("key %q is not among the %d public keys", id, len(listed))
	case err != nil:
		return "", fmt.Errorf("reading Secret %s: %w", config.SigningSecret, err)
	case signing.KeyID(signer.Key.Public().(ed25519.PublicKey)) == id:
		return "", fmt.Errorf("key %s signs: make another one first, with `forcefence proof keys --new`", id)
	}
	cm.Data[config.KeysEntry] = string(left)
	if err := k.write(ctx, cm); err != nil {
		return "", err
	}
	return fmt.Sprintf("Key %s is revoked: what it signed is not valid any more.", id), nil
}

// read returns both objects, new ones where they do not exist, and the public keys.
func (k signingKeys) read(ctx context.Context) (*corev1.ConfigMap, *corev1.Secret, []byte, error) {
	cm, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	for name, o := range map[string]client.Object{config.KeysConfigMap: cm, config.SigningSecret: secret} {
		err := k.client.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: name}, o)
		if client.IgnoreNotFound(err) != nil {
			return nil, nil, nil, fmt.Errorf("reading %s: %w", name, err)
		}
		o.SetNamespace(k.namespace)
		o.SetName(name)
	}
	return cm, secret, []byte(cm.Data[config.KeysEntry]), nil
}

// write writes the objects in turn, each over the version that was read.
func (k signingKeys) write(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		write := func() error { return k.client.Update(ctx, o) }
		if o.GetResourceVersion() == "" {
			write = func() error { return k.client.Create(ctx, o) }
		}
		if err := write(); apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("another client changed %s at the same time: try again: %w", o.GetName(), err)
		} else if err != nil {
			return fmt.Errorf("writing %s: %w", o.GetName(), err)
		}
	}
	return nil
}
