package app

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/signing"
)

// recordSigner signs the records of fences. It reads the key at each signature, because a Secret's file changes while
// the process runs. A record that it cannot sign keeps the proof that it has: the fence goes on.
type recordSigner struct {
	keyFile func() string // of the configuration in force; "": records are not signed
	by      string        // this process's identity
	log     *slog.Logger
}

func newRecordSigner(
	keyFile func() string, by string, log *slog.Logger, reg prometheus.Registerer,
) *recordSigner {
	s := &recordSigner{keyFile: keyFile, by: by, log: log}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "forcefence_signing_key_usable",
		Help: "1 if records of fences can be signed, or signing.keyFile is not set; 0 if it has no usable key.",
	}, func() float64 {
		if file := keyFile(); file != "" {
			if _, err := readSigner(file); err != nil {
				return 0
			}
		}
		return 1
	}))
	return s
}

// sign returns the proof of a record (controller.Options.SignRecord). It blocks for the key's file alone.
func (s *recordSigner) sign(l taint.Look, rec taint.Record, proven bool) string {
	file := s.keyFile()
	if file == "" {
		return rec.Proof
	}
	signer, err := readSigner(file)
	if err != nil {
		s.log.Error("Record is not signed; the fence continues", "node", l.Name, "fence", rec.ID, "error", err)
		return rec.Proof
	}
	signer.By = s.by
	return signer.Sign(l, rec, proven)
}

func readSigner(file string) (signing.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return signing.Signer{}, fmt.Errorf("reading signing.keyFile: %w", err)
	}
	signer, err := signing.ParseSigner(text)
	if err != nil {
		return signing.Signer{}, fmt.Errorf("signing.keyFile %s: %w", file, err)
	}
	return signer, nil
}
