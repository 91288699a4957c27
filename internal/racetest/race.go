//go:build race

package racetest

// Enabled is true where the race detector is on.
const Enabled = true
