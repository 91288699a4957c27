package xgboost_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends/fil/forest/foresttest"
	"github.com/tutti-server/tutti/backends/fil/xgboost"
)

// FuzzRead reads damaged files in each format.
func FuzzRead(f *testing.F) {
	foresttest.Seeds(f, "xgb_*")
	f.Fuzz(func(_ *testing.T, data []byte) {
		for _, format := range []xgboost.Format{xgboost.JSON, xgboost.UBJSON, xgboost.Binary} {
			foresttest.Check(xgboost.Read(data, format, xgboost.Options{AllowUnknown: true, Explain: len(data)%2 == 0}))
		}
	})
}
