package taint

import (
	"fmt"
	"testing"
)

func TestClaims(t *testing.T) {
	many := map[string]bool{}
	for i := range maxRecordClaims {
		many[fmt.Sprintf("ns/data-%d", i)] = true
	}
	more := map[string]bool{"ns/one-more": true}
	for c := range many {
		more[c] = true
	}
	for _, tt := range []struct {
		name       string
		claims     map[string]bool
		claim      string
		known, has bool
	}{
		{"none", nil, "ns/data", true, false},
		{"one", map[string]bool{"ns/data": true}, "ns/data", true, true},
		{"another", map[string]bool{"ns/data": true}, "ns/other", true, false},
		{"another namespace", map[string]bool{"ns/data": true}, "a/data", true, false},
		{"as many as fit", many, "ns/data-7", true, true},
		{"too many are unknown", more, "ns/data-7", false, false},
	} {
		r := &Record{Claims: EncodeClaims(tt.claims)}
		if r.KnowsClaims() != tt.known || r.HasClaim(tt.claim) != tt.has {
			t.Errorf("%s: got known %v, has %v, want %v, %v", tt.name, r.KnowsClaims(), r.HasClaim(tt.claim), tt.known,
				tt.has)
		}
	}
	odd := &Record{Claims: "abc"} // a person edited the record
	if odd.HasClaim("ns/data") {
		t.Error("a broken value has a claim")
	}
}
