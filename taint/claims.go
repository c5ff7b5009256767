package taint

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

// maxRecordClaims is how many claims a record identifies at most. More are unknown: the record must stay small.
const maxRecordClaims = 128

// noClaims is the text of Record.Claims for a node whose pods have none.
const noClaims = "-"

// EncodeClaims returns the value of Record.Claims for these claims, as namespace/name: a short hash of each. It returns
// "" if there are too many.
func EncodeClaims(claims map[string]bool) string {
	switch {
	case len(claims) == 0:
		return noClaims
	case len(claims) > maxRecordClaims:
		return ""
	}
	var all strings.Builder
	for _, claim := range slices.Sorted(maps.Keys(claims)) {
		all.WriteString(hashClaim(claim))
	}
	return all.String()
}

// hashClaim returns eight hexadecimal digits. Two claims with the same hash cost a wait for the volume of another.
func hashClaim(claim string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(claim))
	return fmt.Sprintf("%08x", h.Sum32())
}

// KnowsClaims reports whether the record identifies the claims of the fence's pods.
func (r *Record) KnowsClaims() bool { return r != nil && r.Claims != "" }

// HasClaim reports whether a pod that the node had when the mark was set may have used the claim.
func (r *Record) HasClaim(claim string) bool {
	if r == nil || r.Claims == noClaims {
		return false
	}
	want := hashClaim(claim)
	for rest := r.Claims; len(rest) >= len(want); rest = rest[len(want):] {
		if rest[:len(want)] == want {
			return true
		}
	}
	return false
}
