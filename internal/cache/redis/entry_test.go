package redis

import (
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

// FuzzDecode checks that any bytes are an error or valid tensors.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{magic, 1, absent}, 1)
	f.Add([]byte{magic, 1, present, byte(tensor.Uint8), 1, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 'a', 'b'}, 1)
	f.Add([]byte{magic, 1, present, byte(tensor.Uint8), 255}, 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if n < 0 || n > 8 {
			return
		}
		out := make([]tensor.Tensor, n)
		if err := decode(tensortest.NewChecked(t, nil), b, out); err != nil {
			return
		}
		if again, ok := encode(out); !ok || string(again) != string(b) {
			t.Errorf("%q is decoded and encoded as %q", b, again)
		}
		tensor.ReleaseAll(out)
	})
}
