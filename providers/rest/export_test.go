package rest

import (
	"time"

	"github.com/forcefence/forcefence/providers"
)

// MetadataAddress is the only address of the metadata server.
const MetadataAddress = metadataAddress

// SetMetadata moves a provider's metadata server to this machine.
func SetMetadata(p providers.Provider, address string) { p.(*Provider).metadata = address }

// Metadata returns the address of a provider's metadata server.
func Metadata(p providers.Provider) string { return p.(*Provider).metadata }

// SetRhythm changes how a Watch keeps its streams.
func SetRhythm(p providers.Provider, first, last, open, quiet time.Duration) {
	p.(watcher).timing = watchTiming{first, last, open, quiet}
}
