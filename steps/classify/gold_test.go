package classify_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/classify"
	"github.com/tutti-server/tutti/steps/steptest"
)

// gold is one case of testdata/gold.json.gz, made by testdata/make_gold.py.
type gold struct {
	Rows, Classes       int
	Scores, Order, Best []byte
	Softmax, Sigmoid    []byte
	LogSoftmax          []byte `json:"log_softmax"`
}

func readGold(t *testing.T) (list []gold) {
	t.Helper()
	steptest.ReadGold(t, "gold.json.gz", &list)
	return list
}

func decode[T any](t *testing.T, data []byte) []T {
	t.Helper()
	var v T
	out := make([]T, len(data)/binary.Size(v))
	if _, err := binary.Decode(data, binary.LittleEndian, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// run makes a step of the factory and runs it on rows of scores.
func run(t *testing.T, f steps.Factory, params map[string]string, outputs, classes int, scores []float32) []tensor.Tensor {
	t.Helper()
	resolved, err := f.Resolve(params)
	if err != nil {
		t.Fatal(err)
	}
	step, err := f.New(&steps.Settings{Model: "m", MaxBatch: 64, Params: resolved})
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]float32
	for ; len(scores) > 0; scores = scores[classes:] {
		rows = append(rows, scores[:classes])
	}
	b := batch(t, outputs, rows...)
	if err := step.Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return b.Out
}

// close compares within a few roundings of FP32.
func checkClose(t *testing.T, got []float32, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("found %d values, expected %d", len(got), len(want))
	}
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= 3e-7*math.Abs(w)+1e-44) {
			t.Errorf("value %d is %v, expected %v", i, got[i], w)
		}
	}
}

func TestGold(t *testing.T) {
	t.Parallel()
	for _, g := range readGold(t) {
		t.Run(fmt.Sprint(g.Rows, " of ", g.Classes), func(t *testing.T) {
			t.Parallel()
			scores := decode[float32](t, g.Scores)
			for op, want := range map[string][]byte{"softmax": g.Softmax, "log_softmax": g.LogSoftmax, "sigmoid": g.Sigmoid} {
				out := run(t, classify.NewScoresFactory(), map[string]string{"op": op}, 1, g.Classes, scores)
				checkClose(t, tensor.Slice[float32](&out[0]), decode[float64](t, want))
			}
			out := run(t, classify.NewScoresFactory(), map[string]string{"op": "arg_max"}, 2, g.Classes, scores)
			same(t, tensor.Slice[int64](&out[0]), decode[int64](t, g.Best))
			for op, p := range map[string][]byte{"softmax": g.Softmax, "sigmoid": g.Sigmoid} {
				k := strconv.Itoa(g.Classes)
				out := run(t, classify.NewFactory(), map[string]string{"activation": op, "k": k}, 2, g.Classes, scores)
				order, want := decode[int32](t, g.Order), decode[float64](t, p)
				same(t, tensor.Slice[int32](&out[1]), order)
				for i, v := range tensor.Slice[float32](&out[0]) {
					w := want[i/g.Classes*g.Classes+int(order[i])]
					checkClose(t, []float32{v}, []float64{w})
				}
			}
		})
	}
}

func same[T comparable](t *testing.T, got, want []T) {
	t.Helper()
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("found %v, expected %v", got, want)
		}
	}
}
