package config

import (
	"fmt"

	"github.com/forcefence/forcefence/providers"
)

// warnOfCautions tells of each provider's settings that are allowed and have a risk.
func (r *reader) warnOfCautions(c *Config) {
	for i, p := range c.Providers {
		settings, ok := p.Config.(providers.Cautious)
		if !ok {
			continue
		}
		for _, problem := range settings.Cautions() {
			r.warn(c, join(fmt.Sprintf("providers[%d].%s", i, p.Type), problem.Path), problem.Text)
		}
	}
}
