package ocr_test

import "testing"

// BenchmarkBoxes is text_boxes on a map of 1312 x 736 with 30 lines of text.
func BenchmarkBoxes(b *testing.B) {
	const w, h = 1312, 736
	values := make([]float32, w*h)
	for line := range 30 {
		for y := 24 * line; y < 24*line+14; y++ {
			for x := 40; x < 700+20*line; x++ {
				values[y*w+x] = 0.9
			}
		}
	}
	step := newBoxes(b, map[string]string{"unclip_ratio": "0.35"})
	batch := mapBatch(b, w, h, values, [2]float32{w, h})
	b.ReportAllocs()
	for b.Loop() {
		if err := step.Run(b.Context(), batch); err != nil || batch.Requests[0].Err != nil {
			b.Fatal(err, batch.Requests[0].Err)
		}
		for i := range batch.Out {
			batch.Out[i].Release()
		}
	}
}
