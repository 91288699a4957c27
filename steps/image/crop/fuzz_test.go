package crop_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// FuzzCrop checks that any corners give a crop of the size in SHAPES, or an error of their request.
func FuzzCrop(f *testing.F) {
	for _, v := range [][8]float32{{0, 0, 2, 0, 2, 2, 0, 2}, {-1e9, 0, 3e8, 1, 2, 2}, {}, {1, 1, 1, 1, 1, 1, 1, 9}, {float32(math.Inf(1))}} {
		var data []byte
		for _, x := range v {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		f.Add(data)
	}
	step := newStep(f, map[string]string{"count": "false", "turn": "1.5", "max_pixels": "4096"}, 0)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 32 {
			return
		}
		var box [8]float32
		for i := range box {
			box[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		b := batch(t, 5, 4, make([]byte, 60), [][8]float32{box}, 2)
		if err := step.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if b.Requests[0].Err != nil {
			return
		}
		pix, rest, ok := tensor.NextBytes(b.Out[0].Bytes())
		shape := tensor.Slice[int32](&b.Out[1])
		if !ok || len(rest) > 0 || len(pix) != 3*int(shape[0])*int(shape[1]) || len(pix) == 0 {
			t.Fatalf("%d bytes for shape %v", len(pix), shape)
		}
	})
}
