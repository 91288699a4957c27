package tensor_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor"
)

func TestNextBytes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in, elem, rest string
		ok             bool
	}{
		{"", "", "", false},
		{"\x00\x00\x00", "", "", false},
		{"\x00\x00\x00\x00", "", "", true},
		{"\x01\x00\x00\x00", "", "", false},
		{"\x02\x00\x00\x00abc", "ab", "c", true},
		{"\xff\xff\xff\xffabc", "", "", false},
		{"\xff\xff\xff\x7fabc", "", "", false},
		{"\x00\x01\x00\x00abc", "", "", false},
	}
	for _, tt := range tests {
		elem, rest, ok := tensor.NextBytes([]byte(tt.in))
		if string(elem) != tt.elem || string(rest) != tt.rest || ok != tt.ok {
			t.Errorf("%q splits into %q and %q, %v", tt.in, elem, rest, ok)
		}
		if cap(elem) != len(elem) {
			t.Errorf("%q: appending to the element would overwrite what follows", tt.in)
		}
	}
}

func TestCheckBytes(t *testing.T) {
	t.Parallel()
	const a, ab = "\x01\x00\x00\x00a", "\x02\x00\x00\x00ab"
	tests := []struct {
		in   string
		want int64
		err  *tensor.BytesError
		text string
	}{
		{"", 0, nil, ""},
		{a + ab, 2, nil, ""},
		{"\x00\x00\x00\x00", 1, nil, ""},
		{"", 1, &tensor.BytesError{Want: 1, Got: 0}, "expected 1 string elements, got 0"},
		{"", -1, &tensor.BytesError{Want: -1, Got: 0}, "expected -1 string elements, got 0"},
		{a + ab, 3, &tensor.BytesError{Want: 3, Got: 2}, "expected 3 string elements, got 2"},
		{a + ab, 1, &tensor.BytesError{Want: 1, Got: 2}, "expected 1 string elements, got 2"},
		{a + "x", 1, &tensor.BytesError{Want: 1, Got: 2}, "expected 1 string elements, got 2"},
		{
			a + "\x01\x00\x00", 2, &tensor.BytesError{Want: 2, Got: 2, Left: 3},
			"incomplete string length indicator, expecting 4 bytes but only 3 bytes available",
		},
		{
			a + "\xfe\xff\xff\xffbc", 3, &tensor.BytesError{Want: 3, Got: 3, Left: 2, Need: 1<<32 - 2},
			"incomplete string data, expecting string of length 4294967294 but only 2 bytes available",
		},
	}
	for _, tt := range tests {
		var got *tensor.BytesError
		if err := tensor.CheckBytes([]byte(tt.in), tt.want); err != nil && !errors.As(err, &got) {
			t.Errorf("%q: error %v", tt.in, err)
		}
		if diff := cmp.Diff(tt.err, got); diff != "" {
			t.Errorf("%q as %d elements (-want +got):\n%s", tt.in, tt.want, diff)
		}
		if got != nil && got.Error() != tt.text {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.text)
		}
	}
}

// FuzzBytes checks that CheckBytes, NextBytes and AppendBytes are consistent.
func FuzzBytes(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00a\x00\x00\x00\x00"), int64(2))
	f.Add([]byte("\x05\x00\x00\x00a"), int64(1))
	f.Add([]byte("\xff\xff\xff\xff"), int64(-1))
	f.Fuzz(func(t *testing.T, in []byte, want int64) {
		var again []byte
		n, rest := int64(0), in
		for {
			elem, next, ok := tensor.NextBytes(rest)
			if !ok {
				break
			}
			if tensor.EncodedLen(len(elem)) != len(rest)-len(next) {
				t.Fatalf("an element of %d bytes takes %d", len(elem), len(rest)-len(next))
			}
			again, rest = tensor.AppendBytes(again, elem), next
			n++
		}
		if string(again)+string(rest) != string(in) {
			t.Errorf("%q encodes as %q with a rest of %q", in, again, rest)
		}
		err := tensor.CheckBytes(in, want)
		if whole := len(rest) == 0 && n == want; whole != (err == nil) {
			t.Errorf("%q holds %d elements and %d bytes, want %d: %v", in, n, len(rest), want, err)
		}
	})
}
