package xgboost_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/backends/fil/forest"
	"github.com/tutti-server/tutti/backends/fil/xgboost"
)

// plain writes predictions as they are.
type plain struct{}

func (plain) Write(out []float32, predictions []float64) {
	for i, p := range predictions {
		out[i] = float32(p)
	}
}

// check reads a file. What is read must predict without a crash.
func check(t *testing.T, read func() (*forest.Forest, error)) {
	t.Helper()
	f, err := read()
	if err != nil || f.Features > 1000 {
		return
	}
	x := make([]float32, 9*f.Features)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	f.Predict(x, make([]float32, 9*f.Outputs), plain{})
	if f.Explains() {
		f.Shapley(x[:f.Features], make([]float32, (f.Features+1)*f.Outputs))
	}
}

// FuzzRead reads damaged files.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("../testdata/xgb_*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(data) < 20_000 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range []xgboost.Format{xgboost.JSON, xgboost.UBJSON, xgboost.Binary} {
			check(t, func() (*forest.Forest, error) {
				return xgboost.Read(data, format, xgboost.Options{AllowUnknown: true, Explain: len(data)%2 == 0})
			})
		}
	})
}
