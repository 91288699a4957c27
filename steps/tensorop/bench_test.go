package tensorop_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/steptest"
)

// BenchmarkPeer has the cases of bench/peers/steps/tensorop.py: batches of data around
// models, for example embeddings of 384 numbers, scores of 1000 classes and small images.
func BenchmarkPeer(b *testing.B) {
	const rows = 8
	embedding, weights := port("A", tensor.FP32, 384), port("B", tensor.FP32, 384)
	hidden, scores := port("A", tensor.FP32, 32, 384), port("A", tensor.FP32, 1000)
	pixels, picture := port("A", tensor.Uint8, 64, 64, 3), port("A", tensor.FP32, 64, 64, 3)
	numbers := port("A", tensor.Int32, 384)
	for _, c := range []struct {
		name   string
		params map[string]string
		in     []config.Port
	}{
		{"add", params("add"), []config.Port{embedding, weights}},
		{"multiply value", params("multiply", "value", "0.5"), []config.Port{embedding}},
		{"subtract broadcast", params("subtract"), []config.Port{hidden, weights}},
		{"floor divide", params("floor_divide", "value", "7"), []config.Port{numbers}},
		{"less", params("less", "value", "1"), []config.Port{scores}},
		{"exp", params("exp"), []config.Port{embedding}},
		{"clip", params("clip", "low", "0", "high", "1"), []config.Port{scores}},
		{"sum last", params("sum", "axes", "-1"), []config.Port{hidden}},
		{"mean first", params("mean", "axes", "0"), []config.Port{hidden}},
		{"max", params("max"), []config.Port{scores}},
		{"argmax", params("argmax"), []config.Port{scores}},
		{"cast to FP32", params("cast", "dtype", "FP32"), []config.Port{pixels}},
		{"cast to FP16", params("cast", "dtype", "FP16"), []config.Port{scores}},
		{"cast to INT32", params("cast", "dtype", "INT32"), []config.Port{scores}},
		{"add FP16", params("add", "value", "1"), []config.Port{port("A", tensor.FP16, 384)}},
		{"transpose UINT8", params("transpose", "axes", "2,0,1"), []config.Port{pixels}},
		{"transpose FP32", params("transpose", "axes", "2,0,1"), []config.Port{picture}},
		{"transpose matrix", params("transpose"), []config.Port{hidden}},
		{"reshape", params("reshape", "dims", "-1"), []config.Port{hidden}},
		{"slice", params("slice", "slice", "0"), []config.Port{hidden}},
		{"slice step", params("slice", "slice", "::2, ::-2"), []config.Port{picture}},
		{"concat", params("concat"), []config.Port{embedding, weights}},
		{"stack", params("stack"), []config.Port{embedding, weights}},
		{"split", params("split", "sizes", "2"), []config.Port{embedding}},
		{"gather", params("gather", "indices", "3, 1, 4, 1, 5, 9, 2, 6"), []config.Port{hidden}},
		{"where", params("where"), []config.Port{port("C", tensor.Bool, 384), embedding, weights}},
		{"pad", params("pad", "pads", "4,4,4,4,0,0"), []config.Port{pixels}},
		{"one hot", params("one_hot", "depth", "100"), []config.Port{port("A", tensor.Int64, 10)}},
	} {
		steptest.Peer(b, c.name, rows, batch(b, c.params, rows, c.in...))
	}
}
