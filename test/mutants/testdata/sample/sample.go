// Package sample has a place for each kind of change.
package sample

import (
	"fmt"
	"sync"
	"time"
)

// Power is a machine's.
type Power int

// The states.
const (
	Off Power = iota
	On
)

// String is text for people: nothing in it is changed.
func (p Power) String() string {
	if p == Off {
		return "Off"
	}
	return "On"
}

var mu sync.Mutex

// Decide has conditions, statements, constants and arguments.
func Decide(p Power, tries int, ready bool) (next Power, err error) {
	mu.Lock()
	defer mu.Unlock()
	if tries < 3 && p == On {
		next = Off
	}
	switch {
	case ready:
		next = pick(p, next)
	default:
		err = fmt.Errorf("%d tries", tries)
	}
	return next, err
}

func pick(a, b Power) Power { return max(a, b) }

func waits(d time.Duration) bool { return d > 0 }
