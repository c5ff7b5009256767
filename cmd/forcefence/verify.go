package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/features/signing"
	"github.com/forcefence/forcefence/taint/view"
)

// newVerify returns the command that checks the signed proof of a fence.
func newVerify() *cobra.Command {
	var cluster clusterFlags
	var file, keyFile string
	cmd := &cobra.Command{
		Use:   "verify [NODE|ID]",
		Short: "Check the signed proof of a fence, and show it",
		Long: `Check the signed proof in the Fencing of a node's last fence, or of the fence
with an id or the name of its Fencing. It shows which device answered what and
when, and fails if a part was changed, removed, or signed by an unknown key.

The public keys are those in the ConfigMap forcefence-public-keys, or in --keys.
With -f and --keys the command needs no cluster.`,
		Example: `  # The last fence of a node
  forcefence proof verify n3
  # From files alone
  kubectl get fcg n3.f-8bd391b2f0c0 -o yaml > fence.yaml
  forcefence proof verify -f fence.yaml --keys keys.pem`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cluster.completeFences,
		PreRunE: func(_ *cobra.Command, args []string) error {
			switch {
			case (file == "") == (len(args) == 0):
				return errors.New("name a NODE or ID, or a file with -f")
			case file != "" && keyFile == "":
				return errors.New("-f needs --keys FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if file != "" {
				f, err := readFencingFile(file)
				if err != nil {
					return err
				}
				return verifyFencing(out, f, func() ([]byte, error) { return os.ReadFile(keyFile) })
			}
			c, err := cluster.newClient()
			if err != nil {
				return err
			}
			found, err := findFencings(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return fmt.Errorf("no fence of %s is recorded: `kubectl get fcg` lists them", args[0])
			}
			view.SortNewestFirst(found)
			return verifyFencing(out, &found[0].Fencing, func() ([]byte, error) {
				if keyFile != "" {
					return os.ReadFile(keyFile)
				}
				namespace, err := controllerNamespace(cmd.Context(), c, cluster.overrides.Context.Namespace)
				if err != nil {
					return nil, err
				}
				return readPublicKeys(cmd.Context(), c, namespace)
			})
		},
	}
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	f := cmd.Flags()
	f.StringVarP(&file, "filename", "f", "", "a file with the Fencing, as YAML or JSON")
	f.StringVar(&keyFile, "keys", "", "a file with the public keys, as \"proof keys\" prints them")
	for _, flag := range []string{"filename", "keys"} {
		if err := cmd.MarkFlagFilename(flag); err != nil {
			panic(err)
		}
	}
	return withRole(cmd, roleLook)
}

func readFencingFile(file string) (*api.Fencing, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the Fencing: %w", err)
	}
	var f api.Fencing
	if err := yaml.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s is no Fencing: %w", file, err)
	}
	if f.Kind != api.Kind {
		return nil, fmt.Errorf("%s is no Fencing: its kind is %q", file, f.Kind)
	}
	return &f, nil
}

// errNoKeys says that no ConfigMap has public keys.
var errNoKeys = errors.New("signing is off")

// readPublicKeys reads the ConfigMap with the public keys. The error is errNoKeys if there is none.
func readPublicKeys(ctx context.Context, c client.Reader, namespace string) ([]byte, error) {
	var cm corev1.ConfigMap
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: config.KeysConfigMap}, &cm)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: there is no ConfigMap %s/%s with public keys. `forcefence proof keys --new` makes "+
			"the first key, and the configuration's signing.keyFile switches signing on", errNoKeys, namespace,
			config.KeysConfigMap)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the public keys: %w", err)
	}
	return []byte(cm.Data[config.KeysEntry]), nil
}

// verifyFencing prints a Fencing's proof, and returns why it is not valid.
func verifyFencing(out io.Writer, f *api.Fencing, readKeys func() ([]byte, error)) error {
	text, err := readKeys()
	if err != nil {
		return err
	}
	keys, err := signing.ParseKeys(text)
	if err != nil {
		return fmt.Errorf("reading the public keys: %w", err)
	}
	p, bad := signing.CheckFencing(f, keys)
	for _, l := range p.Links {
		proven := ""
		if l.Proven {
			proven = ", which proves the machine off"
		}
		entered := strings.TrimSpace(string(l.Phase) + " " + string(l.Result))
		printText(out, "", "%s %s by %s, boot %s%s", l.At.Format(time.RFC3339Nano), view.OneLine(entered, 64),
			view.OneLine(l.By, 253), view.OneLine(cmp.Or(l.BootID, "unknown"), 64), proven)
		for _, a := range l.Answers {
			printText(out, "  ", "%s: %s said %s (%s), machine %s", a.At.Format(time.RFC3339Nano),
				view.OneLine(a.From, 253), view.OneLine(a.State, 64), view.OneLine(a.Raw, 240),
				view.OneLine(cmp.Or(a.SystemUUID, "without a UUID"), 64))
		}
	}
	if bad != nil {
		return fmt.Errorf("fence %s of node %s: %w", view.OneLine(f.Spec.ID, 63), view.OneLine(f.Spec.Node, 253), bad)
	}
	printText(out, "", "Valid: fence %s of node %s, signed by key %s.", f.Spec.ID, f.Spec.Node, p.Key)
	return nil
}
