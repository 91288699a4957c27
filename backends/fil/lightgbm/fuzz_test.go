package lightgbm_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends/fil/forest/foresttest"
	"github.com/tutti-server/tutti/backends/fil/lightgbm"
)

// FuzzRead reads damaged files.
func FuzzRead(f *testing.F) {
	foresttest.Seeds(f, "lgb_*.txt")
	f.Fuzz(func(_ *testing.T, data []byte) { foresttest.Check(lightgbm.Read(data, len(data)%2 == 0)) })
}
