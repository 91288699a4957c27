package classify_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/classify"
	"github.com/tutti-server/tutti/steps/steptest"
)

func TestScores(t *testing.T) {
	t.Parallel()
	log2 := float32(math.Log(2))
	for _, tc := range []struct {
		name, op, temperature string
		scores, want          []float32
	}{
		{"softmax", "softmax", "1", []float32{0, 0}, []float32{0.5, 0.5}},
		{"temperature", "softmax", "0.5", []float32{0, log2}, []float32{0.2, 0.8}},
		{"large", "softmax", "1", []float32{3e38, -3e38}, []float32{1, 0}},
		{"nan", "softmax", "1", []float32{nan, 1, 1}, []float32{nan, 0.5, 0.5}},
		{"all nan", "softmax", "1", []float32{nan, nan}, []float32{nan, nan}},
		{"infinite", "softmax", "1", []float32{inf, nan, inf, 3}, []float32{0.5, nan, 0.5, 0}},
		{"minus infinite", "softmax", "1", []float32{-inf, -inf}, []float32{0.5, 0.5}},
		{"log", "log_softmax", "1", []float32{0, 0, -inf}, []float32{-log2, -log2, -inf}},
		{"log nan", "log_softmax", "1", []float32{nan, 3}, []float32{nan, 0}},
		{"log infinite", "log_softmax", "1", []float32{inf, 3, inf}, []float32{-log2, -inf, -log2}},
		{"sigmoid", "sigmoid", "1", []float32{0, inf, -inf, nan, -90}, []float32{0.5, 1, 0, nan, 8.194e-40}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			params := map[string]string{"op": tc.op, "temperature": tc.temperature}
			out := run(t, classify.NewScoresFactory(), params, 1, len(tc.scores), tc.scores)
			got := tensor.Slice[float32](&out[0])
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-6)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestScoresContract runs the suite that every step passes.
func TestScoresContract(t *testing.T) {
	t.Parallel()
	labels := map[string][]byte{"names.txt": []byte("a\nb\n")}
	arg := map[string]string{"op": "arg_max", "labels_file": "names.txt"}
	two, one := []int64{2, 2}, []int64{2, 1}
	scores := steptest.F32(two, nan, -inf, 5, 5)
	fixed := []config.Port{{Name: "scores", DType: tensor.FP32, Dims: tensor.Of(3)}}
	steptest.Run(
		t, classify.NewScoresFactory(),
		steptest.Case{Name: "softmax", MaxBatch: 4, Requests: []steptest.Request{
			{Inputs: []steptest.Value{scores}, Want: []steptest.Value{steptest.F32(two, nan, 1, 0.5, 0.5)}},
			{Inputs: []steptest.Value{steptest.F32([]int64{1, 2}, 3, 3)}, Want: []steptest.Value{steptest.F32([]int64{1, 2}, 0.5, 0.5)}},
		}},
		steptest.Case{Name: "arg max", MaxBatch: 4, Params: arg, Files: labels, Requests: []steptest.Request{
			{
				Inputs: []steptest.Value{scores},
				Want:   []steptest.Value{steptest.I64(one, 1, 0), steptest.F32(one, -inf, 5), steptest.Text(one, "b", "a")},
			},
		}},
		steptest.Case{Name: "labels known", Params: arg, Files: labels, Inputs: fixed, WantNewErr: "expected at most 2 classes, one per line of labels_file, found 3"},
		steptest.Case{Name: "labels for what", Params: map[string]string{"labels_file": "names.txt"}, Files: labels, WantNewErr: "has no meaning with op 'softmax'"},
		steptest.Case{Name: "cold", Params: map[string]string{"temperature": "0"}, WantNewErr: "expected a number above 0"},
		steptest.Case{Name: "warm", Params: map[string]string{"temperature": "2", "op": "sigmoid"}, WantNewErr: "has no meaning with op 'sigmoid'"},
	)
}

// TestThresholdContract is top_k for models of several labels.
func TestThresholdContract(t *testing.T) {
	t.Parallel()
	params := map[string]string{"k": "2", "activation": "sigmoid", "threshold": "0.5", "labels_file": "names.txt"}
	labels := map[string][]byte{"names.txt": []byte("a\nb\nc\n")}
	one, two := []int64{1, 1}, []int64{1, 2}
	count := func(n int32) steptest.Value { return steptest.I32(one, n) }
	fixed := []config.Port{{Name: "scores", DType: tensor.FP32, Dims: tensor.Of(1)}}
	steptest.Run(
		t, classify.NewFactory(),
		steptest.Case{Name: "threshold", MaxBatch: 8, Params: params, Files: labels, Requests: []steptest.Request{
			{
				Inputs: []steptest.Value{steptest.F32([]int64{1, 3}, -1, 0, -2)},
				Want:   []steptest.Value{steptest.F32(two, 0.5, 0), steptest.I32(two, 1, -1), steptest.Text(two, "b", ""), count(1)},
			},
			{
				Inputs: []steptest.Value{steptest.F32([]int64{1, 3}, nan, nan, -inf)},
				Want:   []steptest.Value{steptest.F32(two, 0, 0), steptest.I32(two, -1, -1), steptest.Text(two, "", ""), count(0)},
			},
			{
				Inputs: []steptest.Value{steptest.F32([]int64{1, 3}, inf, 0, inf)},
				Want:   []steptest.Value{steptest.F32(two, 1, 1), steptest.I32(two, 0, 2), steptest.Text(two, "a", "c"), count(2)},
			},
		}},
		steptest.Case{Name: "classes known", Params: params, Files: labels, Inputs: fixed, WantNewErr: "expected at least k = 2 classes, found 1"},
		steptest.Case{Name: "not a number", Params: map[string]string{"threshold": "high"}, WantNewErr: "parameter 'threshold'"},
	)
}

// FuzzScores checks that for any scores the probabilities are from 0 to 1, or NaN where the score is.
func FuzzScores(f *testing.F) {
	f.Add([]byte("\x00\x00\xc0\x7f\x00\x00\x80\x7f\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		scores := decode[float32](t, data[:len(data)&^3])
		if len(scores) == 0 || len(scores) > 1000 {
			return
		}
		for _, op := range []string{"softmax", "sigmoid", "log_softmax"} {
			out := run(t, classify.NewScoresFactory(), map[string]string{"op": op}, 1, len(scores), scores)
			for i, v := range tensor.Slice[float32](&out[0]) {
				x := float64(v)
				switch nan := math.IsNaN(float64(scores[i])); {
				case nan != math.IsNaN(x), op == "log_softmax" && x > 1e-6, op != "log_softmax" && (x < 0 || x > 1.000001):
					t.Fatalf("%s of %v is %v", op, scores, v)
				}
			}
		}
		params := map[string]string{"k": "1", "activation": "softmax", "threshold": "0.1"}
		out := run(t, classify.NewFactory(), params, 3, len(scores), scores)
		best := tensor.Slice[int32](&out[1])[0]
		if n := tensor.Slice[int32](&out[2])[0]; n < 0 || n > 1 || best >= int32(len(scores)) || n == 1 != (best >= 0) {
			t.Fatalf("index %d, count %d of %v", best, n, scores)
		}
	})
}

// peerScores measures the operations of the step scores on a batch and on one row.
func peerScores(b *testing.B, op, name string, rows, classes int) {
	b.Helper()
	f := classify.NewScoresFactory()
	params, err := f.Resolve(map[string]string{"op": op})
	if err != nil {
		b.Fatal(err)
	}
	step, err := f.New(&steps.Settings{Params: params, MaxBatch: rows})
	if err != nil {
		b.Fatal(err)
	}
	pool := tensor.NewPool()
	in, err := tensor.New(pool, tensor.FP32, tensor.Of(int64(rows), int64(classes)))
	if err != nil {
		b.Fatal(err)
	}
	for i, scores := 0, tensor.Slice[float32](&in); i < len(scores); i++ {
		scores[i] = float32(i*7919%1009)/200 - 2
	}
	batch := &backends.Batch{Rows: rows, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 2), Allocator: pool}
	steptest.Peer(b, name, rows, func() {
		if err := step.Run(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	})
}
