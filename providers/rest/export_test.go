package rest

import "github.com/forcefence/forcefence/providers"

// MetadataAddress is the only address of the metadata server.
const MetadataAddress = metadataAddress

// SetMetadata moves a provider's metadata server to this machine.
func SetMetadata(p providers.Provider, address string) { p.(*Provider).metadata = address }

// Metadata returns the address of a provider's metadata server.
func Metadata(p providers.Provider) string { return p.(*Provider).metadata }
