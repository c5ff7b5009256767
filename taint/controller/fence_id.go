package controller

import (
	"crypto/rand"
	"encoding/hex"
)

// NewFenceID returns a random id for a fence. It is a valid label value, and unique for all practical purposes.
func NewFenceID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return "f-" + hex.EncodeToString(b[:])
}
