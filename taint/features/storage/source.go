package storage

import (
	"context"
	"time"
)

// Source reads the objects of a system from an API of its own.
type Source interface {
	// Read returns the objects of all kinds as they are now, or an error if any of them cannot be read. It returns by
	// ctx's deadline.
	Read(ctx context.Context) (Objects, error)
	// Interval returns how often to read.
	Interval() time.Duration
	// Equals reports whether another Source reads the same API in the same way.
	Equals(Source) bool
}

// Objects are a system's objects by kind. Each is a JSON value.
type Objects map[Kind][]any
