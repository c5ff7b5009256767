package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/forcefence/forcefence/cmd/internal/proofguard"
)

// newProofGuard returns the command that runs the admission webhook of proofs.
func newProofGuard() *cobra.Command {
	var cluster clusterFlags
	var listen, certs, path string
	var pathHash []byte
	var maxAge time.Duration
	cmd := &cobra.Command{
		Use:   "proof-guard",
		Short: "Run the webhook that lets volumes and pods of a silent node go only by a proof",
		Long: `Run the admission webhook of the chart's proofGuard. It allows three things only
while a signed proof or a person's confirmation shows that the machine is off:
to set the taint out-of-service and, of a node that is not Ready, to delete a
VolumeAttachment, and to delete a StatefulSet's pod by force. The webhook writes
nothing.`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			if pathHash, err = hex.DecodeString(path); err != nil || len(pathHash) != sha256.Size {
				return errors.New("--path-hash: use the SHA-256 of the webhook's path, in hex")
			}
			if maxAge < time.Minute || maxAge > 24*time.Hour {
				return errors.New("--max-age: use 1m to 24h")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			rest, err := cluster.restConfig()
			if err != nil {
				return err
			}
			rest.QPS = -1                 // the API server bounds how many requests it sends
			log.SetLogger(logr.Discard()) // of the libraries
			c, err := client.New(rest, client.Options{})
			if err != nil {
				return fmt.Errorf("making client: %w", err)
			}
			namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
			if named := cluster.overrides.Context.Namespace; named == "" && err != nil {
				return errors.New("name the controller's namespace with --namespace")
			}
			return proofguard.Serve(cmd.Context(), listen, certs, proofguard.Options{
				Live: c, Namespace: cmp.Or(cluster.overrides.Context.Namespace, string(namespace)), MaxAge: maxAge,
				Log: slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil)), Now: time.Now, PathHash: pathHash,
			})
		},
	}
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	f := cmd.Flags()
	f.Lookup("namespace").Usage = "the controller's namespace (default: the pod's own)"
	f.StringVar(&listen, "listen", ":8443", "the address for the API server's reviews")
	f.StringVar(&certs, "certificates", "/etc/forcefence-proof-guard", "the folder with tls.crt and tls.key")
	f.StringVar(&path, "path-hash", "", "the SHA-256 of the webhook's path, in hex; it answers no other path")
	f.DurationVar(&maxAge, "max-age", 15*time.Minute,
		"how old a proof or a confirmation may be; longer than detachTimeout")
	completeFlag(cmd, "max-age", completeDurations)
	if err := cmd.MarkFlagDirname("certificates"); err != nil {
		panic(err)
	}
	return cmd
}
