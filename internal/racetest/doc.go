// Package racetest says to tests whether the race detector is on. With it sync.Pool drops values on purpose, so tests that count allocations
// skip.
package racetest
