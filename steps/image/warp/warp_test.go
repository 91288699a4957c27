package warp

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestShift compares crops that are copied with the same ones computed pixel by pixel.
func TestShift(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	src := &Image{W: 97, H: 61}
	src.Pix = make([]byte, 3*src.W*src.H)
	for i := range src.Pix {
		src.Pix[i] = byte(r.Uint32())
	}
	copied := 0
	for range 300 {
		w, h := 1+r.IntN(110), 1+r.IntN(70)
		left, top, right, bottom := float32(r.IntN(110)-6), float32(r.IntN(70)-6), float32(w), float32(h)
		m := Transform(
			&[4]Point{{left, top}, {left + right, top}, {left + right, top + bottom}, {left, top + bottom}},
			&[4]Point{{}, {X: right}, {X: right, Y: bottom}, {Y: bottom}},
		)
		back := m.Inverse()
		var f [9]float32
		for i, v := range back {
			f[i] = float32(v)
		}
		got, want := &Image{W: w, H: h, Pix: make([]byte, 3*w*h)}, &Image{W: w, H: h, Pix: make([]byte, 3*w*h)}
		if _, ok := shift(&f, got); ok {
			copied++
		}
		Cubic(got, src, &back)
		for y := range h {
			line(want, src, &f, y, 0, w)
		}
		if !bytes.Equal(got.Pix, want.Pix) {
			t.Fatalf("%d x %d pixels at %v, %v differ", w, h, left, top)
		}
	}
	if copied < 280 {
		t.Errorf("%d of 300 crops were copied, expected nearly all", copied)
	}
}

// TestNoShift checks that transforms which only come close to a shift are not taken for one.
func TestNoShift(t *testing.T) {
	t.Parallel()
	size := &Image{W: 400, H: 40}
	for i := range 9 {
		m := [9]float32{0: 1, 2: 20, 4: 1, 5: 30, 8: 1}
		if by, ok := shift(&m, size); !ok || by != (offset{20, 30}) {
			t.Fatalf("shift is %v, %v, expected 20, 30", by, ok)
		}
		m[i] += 1e-5
		if by, ok := shift(&m, size); ok {
			t.Errorf("coefficient %d: a shift by %v", i, by)
		}
	}
}
