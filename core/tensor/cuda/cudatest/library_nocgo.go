//go:build !cgo

package cudatest

import "testing"

// library is none: without cgo there is no driver.
type library struct{}

func load(tb testing.TB, _ string) library {
	tb.Helper()
	tb.Skip("the checking driver needs cgo")
	return library{}
}

func (library) checking() bool         { return false }
func (library) report() (string, int)  { return "", 0 }
func (library) set(string, int64) bool { return false }
