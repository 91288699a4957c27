package embed_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/embed"
	"github.com/tutti-server/tutti/steps/steptest"
)

// found are numpy's nearest vectors.
type found struct{ Scores, Indices []byte }

// gold is one case of testdata/gold.json.gz, made by testdata/make_gold.py.
type gold struct {
	Width, K        int
	Matrix, Queries []byte
	Dot, Cosine     found
}

func newStep(tb testing.TB, npy []byte, params map[string]string) (steps.Step, error) {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.npy"), npy, 0o600); err != nil {
		tb.Fatal(err)
	}
	f := embed.NewFactory()
	given := map[string]string{"matrix_file": "m.npy"}
	maps.Copy(given, params)
	resolved, err := f.Resolve(given)
	if err != nil {
		tb.Fatal(err)
	}
	return f.New(&steps.Settings{Model: "m", ModelDir: dir, Dir: dir, MaxBatch: 8, Params: resolved})
}

func batch(tb testing.TB, alloc tensor.Allocator, width int, queries []byte) *backends.Batch {
	tb.Helper()
	rows := len(queries) / 4 / width
	in, err := tensor.New(alloc, tensor.FP32, tensor.Of(int64(rows), int64(width)))
	if err != nil {
		tb.Fatal(err)
	}
	copy(in.Bytes(), queries)
	b := &backends.Batch{
		Rows: rows, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 3), Allocator: alloc,
		Requests: []backends.Request{{Ctx: tb.Context(), Rows: rows}},
	}
	tb.Cleanup(func() {
		tensor.ReleaseAll(b.In)
		tensor.ReleaseAll(b.Out)
	})
	return b
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

func TestGold(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/gold.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var list []gold
	if err := json.NewDecoder(z).Decode(&list); err != nil {
		t.Fatal(err)
	}
	for _, g := range list {
		for metric, want := range map[string]found{"dot": g.Dot, "cosine": g.Cosine} {
			t.Run(fmt.Sprint(g.Width, " ", metric), func(t *testing.T) {
				t.Parallel()
				step, err := newStep(t, g.Matrix, map[string]string{"metric": metric, "k": strconv.Itoa(g.K)})
				if err != nil {
					t.Fatal(err)
				}
				b := batch(t, tensortest.NewChecked(t, nil), g.Width, g.Queries)
				if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
					t.Fatal(err, b.Requests[0].Err)
				}
				compare(t, b, decode[float64](t, want.Scores), decode[int64](t, want.Indices))
			})
		}
	}
}

// compare asks for numpy's scores, and for its order where scores are not as good as equal.
func compare(t *testing.T, b *backends.Batch, scores []float64, indices []int64) {
	t.Helper()
	for i, v := range tensor.Slice[float32](&b.Out[0]) {
		if d := math.Abs(float64(v) - scores[i]); !(d <= 1e-5) {
			t.Fatalf("score %d is %v, expected %v", i, v, scores[i])
		}
		alone := (i == 0 || math.Abs(scores[i-1]-scores[i]) > 1e-5) && (i == len(scores)-1 || math.Abs(scores[i+1]-scores[i]) > 1e-5)
		if got := tensor.Slice[int64](&b.Out[1])[i]; alone && got != indices[i] {
			t.Fatalf("index %d is %d, expected %d", i, got, indices[i])
		}
	}
}

// npy writes a file of the given header and numbers.
func npy(header string, v ...float32) []byte {
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0)
	out = append(out, header...)
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

const three = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }"

// TestContract runs the suite that every step passes.
func TestContract(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	files := map[string][]byte{"m": npy(three, 1, 0, 0, 2, 1, 0), "big": npy(three, 3e38, 3e38, 3e38, -3e38, 1, 1), "ids": []byte("a\nb\nc\n"), "two": []byte("a\nb\n")}
	query := func(v ...float32) []steptest.Value {
		return []steptest.Value{steptest.F32([]int64{1, int64(len(v))}, v...)}
	}
	answer := func(scores []float32, indices []int64, ids ...string) []steptest.Value {
		dims := []int64{1, 2}
		return []steptest.Value{steptest.F32(dims, scores...), steptest.I64(dims, indices...), steptest.Text(dims, ids...)}
	}
	params := map[string]string{"matrix_file": "m", "k": "2", "ids_file": "ids"}
	with := func(key, value string) map[string]string {
		out := maps.Clone(params)
		out[key] = value
		return out
	}
	refuse := func(name, header, want string, v ...float32) steptest.Case {
		return steptest.Case{Name: name, Params: params, Files: map[string][]byte{"m": npy(header, v...), "ids": files["ids"]}, WantNewErr: want}
	}
	steptest.Run(
		t, embed.NewFactory(),
		steptest.Case{Name: "cosine", MaxBatch: 8, Params: params, Files: files, Tolerance: 1e-6, Requests: []steptest.Request{
			{Inputs: query(5, 0), Want: answer([]float32{1, 1}, []int64{0, 2}, "a", "c")},
			{Inputs: query(3e38, 3e38), Want: answer([]float32{0.70710677, 0.70710677}, []int64{0, 1}, "a", "b")},
			{Inputs: query(0, 0), Want: answer([]float32{0, 0}, []int64{0, 1}, "a", "b")},
			{Inputs: query(nan, 1), WantErr: "input 'embedding': expected finite numbers, found NaN at 0"},
			{Inputs: query(1, inf), WantErr: "input 'embedding': expected finite numbers, found +Inf at 1"},
			{Inputs: query(-1, -1e-40), Want: answer([]float32{0, -1}, []int64{1, 0}, "b", "a")},
		}},
		steptest.Case{Name: "beyond", MaxBatch: 8, Params: with("metric", "dot"), Files: map[string][]byte{"m": files["big"], "ids": files["ids"]}, Requests: []steptest.Request{
			{Inputs: query(1e20, 1e20), Want: nil},
			{Inputs: query(1e-20, 0)},
		}},
		steptest.Case{
			Name: "unbatched", Params: map[string]string{"matrix_file": "m", "k": "1", "metric": "dot"}, Files: files,
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{steptest.F32([]int64{2}, 3, 1)},
					Want:   []steptest.Value{steptest.F32([]int64{1}, 3), steptest.I64([]int64{1}, 0)},
				},
			},
		},
		steptest.Case{
			Name: "width known", Params: params, Files: files, Inputs: []config.Port{{Name: "embedding", DType: tensor.FP32, Dims: tensor.Of(3)}},
			WantNewErr: "expected 2 numbers, as the rows of matrix_file have, found 3",
		},
		steptest.Case{Name: "k", Params: with("k", "4"), Files: files, WantNewErr: "expected at most 3, the rows of matrix_file"},
		steptest.Case{Name: "ids", Params: with("ids_file", "two"), Files: files, WantNewErr: "expected 3 lines, one for each row of matrix_file, found 2"},
		steptest.Case{Name: "no file", Params: with("matrix_file", "x"), Files: files, WantNewErr: "file 'x' of model 'tested'"},
		refuse("not npy", "{}", "expected a file of NumPy's NPY format"),
		refuse("type", "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 1), }", "expected numbers of type <f4 or <f8, found <i4", 1),
		refuse("order", "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }", "found Fortran order", 1),
		refuse("rank", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "expected a shape of two dimensions", 1),
		refuse("short", three, "expected (3, 2) numbers, at least one, found 4 bytes", 1),
		refuse("huge", "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "found 0 bytes"),
		refuse("nan", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }", "expected finite numbers of FP32, found NaN in row 0", nan),
	)
}

// FuzzMatrix asks that no file makes the step panic, and that what it takes can be searched.
func FuzzMatrix(f *testing.F) {
	f.Add(npy(three, 1, 0, 0, 2, 1, 0))
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		step, err := newStep(t, data, map[string]string{"k": "1"})
		if err != nil {
			return
		}
		b := batch(t, tensortest.NewChecked(t, nil), 2, make([]byte, 8))
		if err := step.Run(t.Context(), b); err == nil && tensor.Slice[int64](&b.Out[1])[0] != 0 {
			t.Fatal("zeros are nearest to the first vector")
		}
	})
}

// BenchmarkPeer searches vectors such as a sentence encoder's.
func BenchmarkPeer(b *testing.B) {
	const n, width = 10000, 384
	v := make([]float32, n*width)
	for i := range v {
		v[i] = float32(i*7919%1009)/500 - 1
	}
	file := npy(fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", n, width), v...)
	step, err := newStep(b, file, map[string]string{"k": "10"})
	if err != nil {
		b.Fatal(err)
	}
	for _, rows := range []int{1, 8} {
		query := make([]byte, 0, 4*rows*width)
		for i := range rows * width {
			query = binary.LittleEndian.AppendUint32(query, math.Float32bits(float32(i%13)))
		}
		batch := batch(b, tensor.NewPool(), width, query)
		steptest.Peer(b, fmt.Sprintf("10 of 10000 x 384, rows %d", rows), rows, func() {
			if err := step.Run(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		})
	}
}
