//go:build cgo

package tritonlib

// Calls returns the names of the calls that are provided.
func Calls() []string { return calls() }

// CheckLibrary checks a file as Load does.
func CheckLibrary(path string) error { return checkLibrary(path) }
