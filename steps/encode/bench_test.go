package encode_test

import (
	"math"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/steptest"
)

var nan = float32(math.NaN())

// BenchmarkPeer encodes a smooth image of 640 x 480 in every format.
func BenchmarkPeer(b *testing.B) {
	const w, h = 640, 480
	in, err := tensor.New(tensor.NewPool(), tensor.Uint8, tensor.Of(1, h, w, 3))
	if err != nil {
		b.Fatal(err)
	}
	defer in.Release()
	for i, pix := 0, in.Bytes(); i < w*h; i++ {
		x, y := float64(i%w), float64(i/w)
		pix[3*i], pix[3*i+1], pix[3*i+2] = byte(127+90*math.Sin(x/97)), byte(127+90*math.Cos(y/61-x/97)), byte(127+60*math.Sin(x*y/6000))
	}
	for _, format := range []string{"jpeg", "png", "webp"} {
		step, err := mustStep(b, map[string]string{"format": format})
		if err != nil {
			b.Fatal(err)
		}
		batch := &backends.Batch{
			Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: tensor.NewPool(),
			Requests: []backends.Request{{Ctx: b.Context(), Rows: 1}},
		}
		steptest.Peer(b, format+" 640 x 480", 1, func() {
			if err := step.Run(b.Context(), batch); err != nil || batch.Requests[0].Err != nil {
				b.Fatal(err, batch.Requests[0].Err)
			}
		})
		batch.Out[0].Release()
	}
}
