package detect_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/steptest"
)

// predictions returns outputs of YOLO v8 at 640 x 640 with 80 classes and some objects, each detected by a
// few boxes.
func predictions(n, classes, objects int) array {
	rng := rand.New(rand.NewPCG(1, 2))
	v := make([]float32, (4+classes)*n)
	for i := range n {
		v[i], v[n+i], v[2*n+i], v[3*n+i] = rng.Float32()*640, rng.Float32()*640, 20+rng.Float32()*100, 20+rng.Float32()*100
	}
	for i := 4 * n; i < len(v); i++ {
		v[i] = rng.Float32() * 0.1
	}
	for o := range objects {
		x, y, w, h := 640*rng.Float32(), 640*rng.Float32(), 30+100*rng.Float32(), 30+100*rng.Float32()
		for k := range 8 {
			i := (o*8 + k) * (n / (objects * 8))
			v[i], v[n+i], v[2*n+i], v[3*n+i] = x+4*rng.Float32(), y+4*rng.Float32(), w, h
			v[(4+o%classes)*n+i] = 0.4 + 0.6*rng.Float32()
		}
	}
	a := array{Dims: []int64{1, int64(4 + classes), int64(n)}}
	for _, x := range v {
		a.Data = binary.LittleEndian.AppendUint32(a.Data, math.Float32bits(x))
	}
	return a
}

// crowd returns boxes and scores of one class, all above the threshold.
func crowd(n int) []array {
	rng := rand.New(rand.NewPCG(3, 4))
	boxes, scores := array{Dims: []int64{1, int64(n), 4}}, array{Dims: []int64{1, int64(n), 1}}
	for range n {
		x, y := 600*rng.Float32(), 600*rng.Float32()
		for _, v := range []float32{x, y, x + 20 + 80*rng.Float32(), y + 20 + 80*rng.Float32()} {
			boxes.Data = binary.LittleEndian.AppendUint32(boxes.Data, math.Float32bits(v))
		}
		scores.Data = binary.LittleEndian.AppendUint32(scores.Data, math.Float32bits(0.3+0.7*rng.Float32()))
	}
	return []array{boxes, scores}
}

// BenchmarkPeer measures against bench/peers/steps/detect.py.
func BenchmarkPeer(b *testing.B) {
	for _, tc := range []struct {
		name, format, nms string
		inputs            []array
	}{
		{"yolov8, 8400 boxes, 80 classes", "yolov8", "hard", []array{predictions(8400, 80, 20)}},
		{"hard, 1000 boxes", "boxes", "hard", crowd(1000)},
		{"gaussian, 300 boxes", "boxes", "gaussian", crowd(300)},
	} {
		step, err := newStep(b, map[string]string{"format": tc.format, "nms": tc.nms, "max_detections": "300"}, 1)
		if err != nil {
			b.Fatal(err)
		}
		batch := batch(b, tensor.NewPool(), tc.inputs)
		steptest.Peer(b, tc.name, 1, func() {
			if err := step.Run(b.Context(), batch); err != nil || batch.Requests[0].Err != nil {
				b.Fatal(err, batch.Requests[0].Err)
			}
		})
	}
}
