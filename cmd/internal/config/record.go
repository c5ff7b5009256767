package config

import (
	"errors"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Tape is where what is seen and decided is written down, for forcefence replay.
type Tape struct {
	File     string `yaml:"file"`     // an absolute path; "": nothing is
	MaxBytes Bytes  `yaml:"maxBytes"` // of it and the file before it, FILE.1, together; 1Mi to 1Ti; default 64Mi
}

// Bytes is an amount of memory as Kubernetes writes it: 64Mi, 1G.
type Bytes int64

// UnmarshalText reads it. The error says how it is written.
func (b *Bytes) UnmarshalText(text []byte) error {
	q, err := resource.ParseQuantity(string(text))
	if err != nil {
		return errors.New(`must be a number of bytes, such as 64Mi`)
	}
	*b = Bytes(q.Value())
	return nil
}

// defaultTape holds weeks of a cluster in which a few nodes die.
var defaultTape = Tape{MaxBytes: 64 << 20}

func (r *reader) checkTape(c Tape) {
	if c.File != "" && !filepath.IsAbs(c.File) {
		r.report("record.file", "must be an absolute path")
	}
	if c.MaxBytes < 1<<20 || c.MaxBytes > 1<<40 {
		r.report("record.maxBytes", "must be from 1Mi to 1Ti")
	}
}
