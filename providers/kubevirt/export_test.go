package kubevirt

import (
	"path/filepath"
	"time"
)

// SetTiming replaces how long a question waits, and how often it looks. No call may be in flight.
func SetTiming(p *Provider, hold, pause time.Duration) { p.timing = timing{hold, pause} }

// Dir returns the folder of the kubeconfig.
func Dir(p *Provider) string { return filepath.Dir(p.cfg.Kubeconfig) }
