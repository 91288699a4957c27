package kernels_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tutti-server/tutti/steps/image/kernels"
)

// BenchmarkKernels runs each for a row of 1920 pixels or 240 blocks.
func BenchmarkKernels(b *testing.B) {
	const n = 1920
	r := rand.New(rand.NewPCG(1, 1))
	x, y, z, out := noise(r, n), noise(r, n), noise(r, n), make([]byte, 24*n)
	coefs := make([]int16, 8*n)
	for i := range n / 8 {
		for range 6 {
			coefs[64*i+8*r.IntN(4)+r.IntN(4)] = int16(r.IntN(200) - 100)
		}
	}
	rgb := noise(r, 3*n)
	var taps kernels.Taps
	taps.Reset(n, 224, 17)
	for i := range 224 {
		taps.Set(i, i*8, make([]int32, 17))
	}
	sum := make([]int32, 672)
	plane, table := [3][]byte{make([]byte, 4*n), make([]byte, 4*n), make([]byte, 4*n)}, [3]*[256]uint32{new([256]uint32), new([256]uint32), new([256]uint32)}
	lines := kernels.NewLines(&table)
	at, weights, lerped := make([]int32, n), make([]int16, 2*n), make([]int16, 3*n+1) // twice as wide
	for i := range at {
		at[i], weights[2*i], weights[2*i+1] = int32(i/2), 1536, 512
	}
	for _, bc := range []struct {
		name string
		run  func()
	}{
		{"inverse", func() { kernels.Inverse(out, n, coefs) }},
		{"color", func() { kernels.Color(out, x, y, z) }},
		{"widen", func() { kernels.Widen(out, x[:n/2]) }},
		{"stretch", func() { kernels.Stretch(out, x[:n/2], y[:n/2]) }},
		{"lengthen", func() { kernels.Lengthen(out, x, y, 1) }},
		{"along", func() { kernels.Along(out, out[n:], rgb, rgb, &taps) }},
		{"add", func() { kernels.Add(sum, x, y, 1, 2) }},
		{"round", func() { kernels.Round(out, sum) }},
		{"lerp", func() { kernels.Lerp(lerped, rgb, at, weights) }},
		{"planes", func() { kernels.Planes(&plane, rgb, &table, nil) }},
		{"planes of lines", func() { kernels.Planes(&plane, rgb, &table, lines) }},
		{"call", func() { kernels.Round(out, sum[:1]) }},
	} {
		b.Run(bc.name, func(b *testing.B) {
			for b.Loop() {
				bc.run()
			}
		})
	}
}
