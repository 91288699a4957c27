package treelite_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends/fil/forest/foresttest"
	"github.com/tutti-server/tutti/backends/fil/treelite"
)

// FuzzRead reads damaged files.
func FuzzRead(f *testing.F) {
	foresttest.Seeds(f, "*.tl")
	f.Fuzz(func(_ *testing.T, data []byte) { foresttest.Check(treelite.Read(data, len(data)%2 == 0)) })
}
