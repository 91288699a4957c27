// Package foresttest has what the tests of forests and of the readers of model files share.
package foresttest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/backends/fil/forest"
)

// Plain is a forest.Writer that writes predictions as they are.
type Plain struct{}

// Write implements forest.Writer.
func (Plain) Write(out []float32, predictions []float64) {
	for i, p := range predictions {
		out[i] = float32(p)
	}
}

// maxSeed bounds the files that Seeds adds: changes of large files are slow and find less.
const maxSeed = 20_000

// Seeds adds the smaller files of backends/fil/testdata that match a pattern to the corpus of a fuzz test of a reader. It must be called
// from the folder of a reader. It fails the test if there are none.
func Seeds(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("..", "testdata", pattern))
	if err != nil {
		f.Fatal(err)
	}
	added := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(data) < maxSeed {
			f.Add(data)
			added++
		}
	}
	if added == 0 {
		f.Fatalf("no file '%s' of less than %d bytes", pattern, maxSeed)
	}
}

// maxFeatures bounds the rows of Check: a damaged file may have any number of features.
const maxFeatures = 1000

// Check calls what a reader returned for a file that may be damaged. It accepts an error. A forest must predict without a panic: it gets nine
// rows, which are a full group and one more, and one row for Shapley values if it has what they need.
func Check(f *forest.Forest, err error) {
	if err != nil || f.Features > maxFeatures {
		return
	}
	x := make([]float32, 9*f.Features)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	f.Predict(x, make([]float32, 9*f.Outputs), Plain{})
	if f.Explains() {
		f.Shapley(x[:f.Features], make([]float32, (f.Features+1)*f.Outputs))
	}
}
