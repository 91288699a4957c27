package detect_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/detect"
	"github.com/tutti-server/tutti/steps/steptest"
)

// array is a tensor of the gold file.
type array struct {
	Dims []int64
	Data []byte
}

// gold is one case of testdata/gold.json.gz, made by testdata/make_gold.py.
type gold struct {
	Params                 map[string]string
	Inputs                 []array
	Boxes, Scores, Classes []array // by row
}

func readGold(t *testing.T) (list []gold) {
	t.Helper()
	steptest.ReadGold(t, "gold.json.gz", &list)
	return list
}

func decode[T any](t *testing.T, a array) []T {
	t.Helper()
	var v T
	out := make([]T, len(a.Data)/binary.Size(v))
	if _, err := binary.Decode(a.Data, binary.LittleEndian, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func newStep(tb testing.TB, params map[string]string, maxBatch int) (steps.Step, error) {
	tb.Helper()
	f := detect.NewFactory()
	resolved, err := f.Resolve(params)
	if err != nil {
		return nil, err
	}
	return f.New(&steps.Settings{Model: "m", MaxBatch: maxBatch, Params: resolved})
}

// batch has one request per row.
func batch(tb testing.TB, alloc tensor.Allocator, inputs []array) *backends.Batch {
	tb.Helper()
	b := &backends.Batch{Rows: int(inputs[0].Dims[0]), Out: make([]tensor.Tensor, 5), Allocator: alloc}
	for _, a := range inputs {
		in, err := tensor.New(alloc, tensor.FP32, tensor.Of(a.Dims...))
		if err != nil {
			tb.Fatal(err)
		}
		copy(in.Bytes(), a.Data)
		b.In = append(b.In, in)
	}
	for i := range b.Rows {
		b.Requests = append(b.Requests, backends.Request{Ctx: tb.Context(), First: i, Rows: 1})
	}
	tb.Cleanup(func() {
		tensor.ReleaseAll(b.In)
		tensor.ReleaseAll(b.Out)
	})
	return b
}

func TestGold(t *testing.T) {
	t.Parallel()
	for i, g := range readGold(t) {
		for _, output := range []string{"padded", "rows"} {
			t.Run(fmt.Sprint(i, " ", g.Params["format"], " ", g.Params["nms"], " ", output), func(t *testing.T) {
				t.Parallel()
				params := map[string]string{"output": output}
				maps.Copy(params, g.Params)
				step, err := newStep(t, params, 8)
				if err != nil {
					t.Fatal(err)
				}
				b := batch(t, tensortest.NewChecked(t, nil), g.Inputs)
				if err := step.Run(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				for row := range b.Rows {
					if b.Requests[row].Err != nil {
						t.Fatal(b.Requests[row].Err)
					}
					checkRow(t, b, row, &g)
				}
			})
		}
	}
}

// checkRow compares the boxes of a row, and checks that the elements after them are empty.
func checkRow(t *testing.T, b *backends.Batch, row int, g *gold) {
	t.Helper()
	places := int(b.Out[1].Shape.Dim(1))
	boxes := tensor.Slice[float32](&b.Out[0])[4*places*row:][:4*places]
	scores := tensor.Slice[float32](&b.Out[1])[places*row:][:places]
	classes := tensor.Slice[int32](&b.Out[2])[places*row:][:places]
	n := int(tensor.Slice[int32](&b.Out[3])[row])
	want := decode[int32](t, g.Classes[row])
	if diff := cmp.Diff(want, classes[:n]); diff != "" {
		t.Fatal(diff)
	}
	near(t, scores[:n], decode[float32](t, g.Scores[row]), 1e-5)
	near(t, boxes[:4*n], decode[float32](t, g.Boxes[row]), 1e-3)
	for i := n; i < places; i++ {
		if classes[i] != -1 || scores[i] != 0 || boxes[4*i] != 0 || boxes[4*i+3] != 0 {
			t.Fatalf("place %d after the last box holds class %d", i, classes[i])
		}
	}
}

func near(t *testing.T, got, want []float32, within float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("found %d numbers, expected %d", len(got), len(want))
	}
	for i, w := range want {
		if d := math.Abs(float64(got[i] - w)); !(d <= within) {
			t.Fatalf("number %d is %v, expected %v", i, got[i], w)
		}
	}
}
