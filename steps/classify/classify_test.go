package classify_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/classify"
	"github.com/tutti-server/tutti/steps/steptest"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// settings returns those of a model whose folder has labels.txt.
func settings(t *testing.T, labels string, params map[string]string) (*steps.Settings, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "labels.txt"), []byte(labels), 0o600); err != nil {
		t.Fatal(err)
	}
	f := classify.NewFactory()
	resolved, err := f.Resolve(params)
	return &steps.Settings{Model: "top", ModelDir: dir, Dir: filepath.Join(dir, "1"), MaxBatch: 8, Params: resolved}, err
}

// batch returns rows of scores, one request per row.
func batch(t *testing.T, outputs int, rows ...[]float32) *backends.Batch {
	t.Helper()
	alloc := tensortest.NewChecked(t, nil)
	in, err := tensor.New(alloc, tensor.FP32, tensor.Of(int64(len(rows)), int64(len(rows[0]))))
	if err != nil {
		t.Fatal(err)
	}
	b := &backends.Batch{Rows: len(rows), In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, outputs), Allocator: alloc}
	for i, r := range rows {
		copy(tensor.Slice[float32](&in)[i*len(r):], r)
		b.Requests = append(b.Requests, backends.Request{Ctx: t.Context(), First: i, Rows: 1})
	}
	t.Cleanup(func() {
		b.In[0].Release()
		for i := range b.Out {
			b.Out[i].Release()
		}
	})
	return b
}

func TestTopK(t *testing.T) {
	t.Parallel()
	ties := make([]float32, 100)
	ties[70] = 1
	for _, tc := range []struct {
		name    string
		k       string
		softmax string
		scores  []float32
		indices []int32
		values  []float32
	}{
		{"raw", "2", "false", []float32{0.5, -1, 3, 2}, []int32{2, 3}, []float32{3, 2}},
		{"softmax", "3", "true", []float32{1, 3, 2}, []int32{1, 2, 0}, []float32{0.66524096, 0.24472847, 0.09003057}},
		{"large scores", "2", "true", []float32{1e38, 1e38}, []int32{0, 1}, []float32{0.5, 0.5}},
		{"ties keep order", "4", "false", ties, []int32{70, 0, 1, 2}, []float32{1, 0, 0, 0}},
		{"nan last", "3", "true", []float32{nan, 0, nan, 0}, []int32{1, 3, 0}, []float32{0.5, 0.5, nan}},
		{"all nan", "2", "true", []float32{nan, nan}, []int32{0, 1}, []float32{nan, nan}},
		{"infinite", "3", "true", []float32{1, inf, inf}, []int32{1, 2, 0}, []float32{0.5, 0.5, 0}},
		{"minus infinite", "2", "true", []float32{-inf, -inf}, []int32{0, 1}, []float32{0.5, 0.5}},
		{"one class", "1", "true", []float32{-7}, []int32{0}, []float32{1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := settings(t, "", map[string]string{"step": "top_k", "k": tc.k, "softmax": tc.softmax})
			if err != nil {
				t.Fatal(err)
			}
			step, err := classify.NewFactory().New(s)
			if err != nil {
				t.Fatal(err)
			}
			b := batch(t, 2, tc.scores)
			if err := step.Run(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.indices, tensor.Slice[int32](&b.Out[1])); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.values, tensor.Slice[float32](&b.Out[0]), cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-7)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOrder compares with a sort on many scores in which most repeat.
func TestOrder(t *testing.T) {
	t.Parallel()
	scores := make([]float32, 1000)
	for i := range scores {
		scores[i] = float32(i * 7919 % 13)
	}
	var want []int32
	for v := 12; v >= 0; v-- {
		for i, s := range scores {
			if s == float32(v) {
				want = append(want, int32(i))
			}
		}
	}
	s, err := settings(t, "", map[string]string{"k": "1000"})
	if err != nil {
		t.Fatal(err)
	}
	step, err := classify.NewFactory().New(s)
	if err != nil {
		t.Fatal(err)
	}
	b := batch(t, 2, scores)
	if err := step.Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, tensor.Slice[int32](&b.Out[1])); diff != "" {
		t.Error(diff)
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	s, err := settings(t, "zéro\r\n\ntwo\n", map[string]string{"k": "2", "labels_file": "labels.txt"})
	if err != nil {
		t.Fatal(err)
	}
	f := classify.NewFactory()
	sig, err := f.Signature(s)
	if err != nil || len(sig.Outputs) != 3 || sig.Outputs[2].Name != "labels" {
		t.Fatalf("signature %+v, %v", sig, err)
	}
	step, err := f.New(s)
	if err != nil {
		t.Fatal(err)
	}
	b := batch(t, 3, []float32{3, 2, 1}, []float32{0, 1, 2})
	if err := step.Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	var got []string
	rest := b.Out[2].Bytes()
	for len(rest) > 0 {
		var elem []byte
		var ok bool
		if elem, rest, ok = tensor.NextBytes(rest); !ok {
			t.Fatal("labels are cut short")
		}
		got = append(got, string(elem))
	}
	if diff := cmp.Diff([]string{"zéro", "", "two", ""}, got); diff != "" {
		t.Error(diff)
	}
	err = step.Run(t.Context(), batch(t, 3, make([]float32, 4)))
	wantError(t, err, "input 'scores': expected at most 3 classes, one per line of labels_file, found 4")
}

func TestFewClasses(t *testing.T) {
	t.Parallel()
	s, err := settings(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	step, err := classify.NewFactory().New(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 4} {
		err = step.Run(t.Context(), batch(t, 2, make([]float32, n)))
		wantError(t, err, "input 'scores': expected at least k = 5 classes, found ")
		if got := status.CodeOf(err); got != status.InvalidArg {
			t.Errorf("code %v", got)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, labels string
		params       map[string]string
		want         string
	}{
		{"unknown", "", map[string]string{"top": "5"}, "unknown parameter 'top'"},
		{"k", "", map[string]string{"k": "0"}, "parameter 'k' of model 'top' is '0'"},
		{"huge k", "", map[string]string{"k": "3000000000"}, "at most 2147483647"},
		{"softmax", "", map[string]string{"softmax": "yes"}, "expected one of true, false"},
		{"no file", "", map[string]string{"labels_file": "other.txt"}, "other.txt"},
		{"outside", "", map[string]string{"labels_file": "../labels.txt"}, "outside the model folder"},
		{"few labels", "a\nb\n", map[string]string{"labels_file": "labels.txt"}, "expected at least k = 5 lines, found 2"},
		{"not utf-8", "a\n\xff\n", map[string]string{"k": "1", "labels_file": "labels.txt"}, "line 2: expected UTF-8, found ff"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := settings(t, tc.labels, tc.params)
			if err == nil {
				_, err = classify.NewFactory().New(s)
			}
			wantError(t, err, tc.want)
		})
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func BenchmarkPeer(b *testing.B) {
	const rows, classes = 64, 1000
	step, err := classify.NewFactory().New(&steps.Settings{Params: map[string]string{"k": "5", "activation": "softmax", "threshold": "none"}, MaxBatch: rows})
	if err != nil {
		b.Fatal(err)
	}
	pool := tensor.NewPool()
	in, err := tensor.New(pool, tensor.FP32, tensor.Of(rows, classes))
	if err != nil {
		b.Fatal(err)
	}
	for i, scores := 0, tensor.Slice[float32](&in); i < len(scores); i++ {
		scores[i] = float32(i*7919%1009) / 200
	}
	batch := &backends.Batch{Rows: rows, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 2), Allocator: pool}
	steptest.Peer(b, "top 5 of 1000", rows, func() {
		if err := step.Run(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	})
	peerScores(b, "softmax", "softmax of 10, one row", 1, 10)
	peerScores(b, "softmax", "softmax of 1000", rows, classes)
	peerScores(b, "sigmoid", "sigmoid of 1000", rows, classes)
	peerScores(b, "arg_max", "arg max of 1000", rows, classes)
}
