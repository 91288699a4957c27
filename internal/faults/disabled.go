//go:build !faults

package faults

// Enabled reports whether the program was built with the tag faults.
const Enabled = false

// At returns nil.
func At(Point) error { return nil }
