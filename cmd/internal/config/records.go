package config

import (
	"time"

	"github.com/forcefence/forcefence/taint/journal"
)

// Retention says how long Fencing objects of finished fences are kept. Without the CustomResourceDefinition there are
// none.
type Retention struct {
	Keep   int           `yaml:"keep"`   // 1 to 1000; default 100
	MaxAge time.Duration `yaml:"maxAge"` // since the fence's end; at least 1h; default 2160h, 90 days
}

// defaultRetention keeps the fences that ended in the last quarter of a year, in 4 MB of etcd at most.
var defaultRetention = Retention{Keep: 100, MaxAge: 90 * 24 * time.Hour}

// JournalKeep returns the retention in the form of package journal, for the writer that deletes old Fencings.
func (r Retention) JournalKeep() journal.Retention {
	return journal.Retention{Count: r.Keep, Age: r.MaxAge}
}

func (r *reader) checkRetention(c Retention) {
	if c.Keep < 1 || c.Keep > 1000 {
		r.report("records.keep", "must be from 1 to 1000")
	}
	r.atLeast("records.maxAge", c.MaxAge, time.Hour)
}
