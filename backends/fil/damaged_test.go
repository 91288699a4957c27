package fil_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/tensor"
)

// TestDamaged loads each model of testdata with bytes that were changed, removed and repeated. It must be refused or predict; it must
// not crash or take long.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for _, g := range goldens(t) {
		for _, file := range g.Files {
			t.Run(file, func(t *testing.T) {
				t.Parallel()
				whole, err := os.ReadFile(filepath.Join("testdata", file))
				if err != nil {
					t.Fatal(err)
				}
				s := settings(t, file, "")
				s.Dir = t.TempDir()
				r := rand.New(rand.NewPCG(uint64(len(file)), 7))
				for range 40 {
					if err := os.WriteFile(filepath.Join(s.Dir, file), damage(r, slices.Clone(whole)), 0o600); err != nil {
						t.Fatal(err)
					}
					m, err := load(t, s)
					if err != nil {
						continue
					}
					width := m.Signature().Inputs[0].Dims.Dim(0)
					if width > 1000 {
						continue
					}
					if _, err := predict(t, m, backendtest.Of(tensor.FP32, []int64{9, width}, make([]float32, 9*width)...)); err != nil {
						t.Errorf("a model that was loaded does not predict: %v", err)
					}
				}
			})
		}
	}
}

// damage changes a few places of a file.
func damage(r *rand.Rand, data []byte) []byte {
	for range 1 + r.IntN(3) {
		at := r.IntN(len(data))
		end := min(at+1+r.IntN(8), len(data))
		switch r.IntN(4) {
		case 0:
			data[at] ^= 1 << r.IntN(8)
		case 1:
			for i := at; i < end; i++ {
				data[i] = byte(r.Uint32())
			}
		case 2:
			data = slices.Delete(data, at, end)
		default:
			data = slices.Insert(data, at, data[at:end]...)
		}
	}
	return data
}
