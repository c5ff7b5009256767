package config

import (
	"time"

	"github.com/forcefence/forcefence/taint/journal"
)

// Records is how long the Fencing objects of fences that are over are kept. Without the CustomResourceDefinition there are none.
type Records struct {
	Keep   int           `yaml:"keep"`   // 1 to 1000; default 100
	MaxAge time.Duration `yaml:"maxAge"` // since the fence's end; at least 1h; default 2160h, 90 days
}

// defaultRecords hold what ended in the last quarter of a year, in 4 MB of etcd at most.
var defaultRecords = Records{Keep: 100, MaxAge: 90 * 24 * time.Hour}

// Kept is what Records say, for those who delete the others.
func (r Records) Kept() journal.Keep { return journal.Keep{Count: r.Keep, Age: r.MaxAge} }

func (r *reader) records(c Records) {
	if c.Keep < 1 || c.Keep > 1000 {
		r.report("records.keep", "must be from 1 to 1000")
	}
	r.atLeast("records.maxAge", c.MaxAge, time.Hour)
}
