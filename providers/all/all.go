// Package all is the one list of provider types.
package all

import "github.com/forcefence/forcefence/providers"

// Types returns every provider type.
func Types() providers.Registry { return providers.Registry{} }
