//go:build !linux

package main

import (
	"context"
	"errors"
	"time"
)

// wires are what only Linux has.
type wires struct{}

var errNoWires = errors.New("machines with addresses that fall silent need Linux")

func newWires() (*wires, error) { return nil, errNoWires }

func (*wires) add(string) (string, error)                          { return "", errNoWires }
func (*wires) power(bool, string) error                            { return errNoWires }
func (*wires) open(context.Context, []string, time.Duration) error { return errNoWires }
func (*wires) close()                                              {}
