//go:build invariants

package tensor_test

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/tutti-server/tutti/core/tensor"
)

// TestPoison checks that the last release overwrites host memory, and only that.
func TestPoison(t *testing.T) {
	t.Parallel()
	for kind, want := range map[tensor.Kind]byte{tensor.Host: 0xdb, tensor.Pinned: 0xdb, tensor.Device: 1} {
		mem := bytes.Repeat([]byte{1}, 16)
		b := tensor.NewBuffer(&owner{}, tensor.Place{Kind: kind}, unsafe.Pointer(&mem[0]), 15)
		b.Retain()
		b.Release()
		if mem[0] != 1 {
			t.Errorf("%s: poisoned while it is held", b.Place())
		}
		b.Release()
		if bytes.Count(mem[:15], []byte{want}) != 15 || mem[15] != 1 {
			t.Errorf("%s: memory is % x after the last release, want 15 times %x", b.Place(), mem, want)
		}
	}
}
