//go:build !race

package sim

const race = false
