package dataset_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// TestPartCSV writes CSV and reads it again.
func TestPartCSV(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := openOutput(t, dir, "csv")
	info, r := results(t, o, "p", rows(t, []string{"x", "id"}, `{"x":1,"id":"a, \"b\""}`, `{"x":2}`), true)
	want := "id,label,Score,n,ok,h\n\"a, \"\"b\"\"\",\"a\"\"b,\n\",\"[0.1,Infinity]\",-9223372036854775808,true,\"[[1,0.099975586]]\"\n" +
		",\"{\"\"b64\"\":\"\"/9g=\"\"}\",\"[NaN,-0]\",7,false,\"[[-2,0]]\"\n"
	got, err := os.ReadFile(dir + "/p.csv")
	if d := cmp.Diff(want, string(got)); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if again := copyPart(t, o, "p.csv", "copy", r.Columns(), []int64{0, 1}); again.Sum != info.Sum || again.SHA256 != info.SHA256 {
		t.Errorf("copied: %+v, want %+v", again, info)
	}
	one := []dataset.Column{{Name: "s", Kind: dataset.JSON}}
	p, err := o.Part(t.Context(), "one", one)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(3) {
		if err := p.Write(i, []dataset.Cell{{Kind: dataset.JSON, Data: []byte(`""`)}}); err != nil {
			t.Fatal(err)
		}
	}
	first, err := p.Close()
	if err != nil {
		t.Fatal(err)
	}
	if again := copyPart(t, o, "one.csv", "copy", one, []int64{0, 1, 2}); again.Sum != first.Sum || again.Rows != 3 {
		t.Errorf("rows of one empty field: %+v", again)
	}
}

// typed renders tensors of all types to a part, and returns the columns.
func typed(tb testing.TB, o *dataset.Output, keep bool) (*dataset.PartInfo, []dataset.Column) {
	tb.Helper()
	d := model(8, port("x", tensor.Int8, 1))
	var out []infer.Named
	for dt := tensor.Bool; dt <= tensor.BF16; dt++ {
		if dt == tensor.Bytes {
			continue
		}
		for _, dims := range [][]int64{{}, {1}, {2, 3}, {0, 2}} {
			name := fmt.Sprintf("%s%d", strings.ToLower(dt.String()), len(out)%4)
			d.Outputs = append(d.Outputs, port(name, dt, dims...))
			n := tensor.Of(dims...).Elements() * 2 * int64(dt.Size())
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(i * 7)
				if dt == tensor.Bool {
					data[i] &= 1
				}
			}
			out = append(out, named(tb, name, dt, data, append([]int64{2}, dims...)...))
		}
	}
	spec := &job.Spec{}
	columns := []dataset.Column{{Name: "x", Kind: dataset.JSON}, {Name: "id", Kind: dataset.JSON}}
	if keep {
		spec.Keep = []string{"id"}
		d.Outputs = append(d.Outputs, port("words", tensor.Bytes, -1), port("word", tensor.Bytes, 1), port("open", tensor.FP32, -1, 2))
		out = append(out, named(tb, "words", tensor.Bytes, texts("a", "", "é", "d"), 2, 2), named(tb, "word", tensor.Bytes, texts("x", "y"), 2, 1),
			named(tb, "open", tensor.FP32, make([]byte, 48), 2, 3, 2))
	}
	b, err := dataset.NewBinder(d, spec, columns)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := dataset.NewRenderer(d, spec, b, columns)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := o.Part(tb.Context(), "typed", r.Columns())
	if err != nil {
		tb.Fatal(err)
	}
	list := rows(tb, b.Columns(), `{"x":1,"id":17}`, `{"x":2}`)
	if err := r.Render(out, list, func(row *dataset.Row, cells []dataset.Cell) error { return p.Write(row.Number, cells) }); err != nil {
		tb.Fatal(err)
	}
	info, err := p.Close()
	if err != nil {
		tb.Fatal(err)
	}
	for i := range out {
		out[i].Tensor.Release()
	}
	return info, r.Columns()
}

// TestPartTypes writes tensors of every type in every format, reads them again and writes them once more.
func TestPartTypes(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"jsonl", "csv", "parquet", "npz"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			o := openOutput(t, t.TempDir(), format)
			info, columns := typed(t, o, format != "npz")
			again := copyPart(t, o, info.Path, "copy", columns, []int64{0, 1})
			if again.Sum != info.Sum || again.SHA256 != info.SHA256 || again.Rows != 2 {
				t.Errorf("copied: %+v, want %+v", again, info)
			}
			for row, err := range o.Rows(t.Context(), info.Path, 1, names(columns)) {
				if err != nil || row.Number != 1 {
					t.Fatalf("the second row: %+v, %v", row, err)
				}
			}
			for range o.Rows(t.Context(), info.Path, 2, names(columns)) {
				t.Error("a row behind the last")
			}
			// The bytes of all types are those that were written, when they are bound as inputs again.
			if format == "npz" || format == "parquet" {
				checkBack(t, o, info.Path, columns)
			}
		})
	}
}

// TestPartProperty writes random numbers of rows in every format, and reads them in chunks of random bounds.
func TestPartProperty(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	column := []dataset.Column{{Name: "x", Kind: dataset.Tensor, DType: tensor.Uint16, Shape: []int64{2}}}
	for i := range 24 {
		format := []string{"jsonl", "csv", "parquet", "npz"}[i%4]
		o := openOutput(t, t.TempDir(), format)
		rows, want := 0, []string{}
		for part := range 1 + random.IntN(3) {
			p, err := o.Part(t.Context(), strconv.Itoa(part), column)
			if err != nil {
				t.Fatal(err)
			}
			for range random.IntN(700) {
				data := []byte{byte(rows), byte(rows >> 8), 7, 0}
				if err := p.Write(int64(rows), []dataset.Cell{{Kind: dataset.Tensor, DType: tensor.Uint16, Shape: []int64{2}, Data: data}}); err != nil {
					t.Fatal(err)
				}
				text := fmt.Sprintf("[%d,7]", rows)
				if format == "parquet" || format == "npz" {
					text = fmt.Sprintf("UINT16[2]%x", data)
				}
				want = append(want, text)
				rows++
			}
			if _, err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, o.Name("."), "").Select("x")
		co := dataset.CutOptions{MinRows: random.Int64N(50), MaxRows: random.Int64N(300), MaxBytes: random.Int64N(5000)}
		if d := cmp.Diff(want, cells(t, s, co), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s, %+v (-want +got):\n%s", format, co, d)
		}
	}
}

// checkBack binds the columns of a part to inputs of their types.
func checkBack(t *testing.T, o *dataset.Output, path string, columns []dataset.Column) {
	t.Helper()
	var ports []infer.Port
	for i := range columns {
		if c := &columns[i]; c.Kind == dataset.Tensor && c.DType != tensor.Bytes {
			ports = append(ports, port(c.Name, c.DType, c.Shape...))
		}
	}
	s := open(t, o.Name(path), "")
	_, _, in := inputs(t, s, model(8, ports...))
	for i := range in {
		x := &in[i].Tensor
		for j, got := range x.Bytes() {
			want := byte(j * 7)
			if x.DType == tensor.Bool {
				want &= 1
			}
			if in[i].Name == "open" {
				want = 0
			}
			if got != want {
				t.Errorf("%s of %s: byte %d is %x, want %x", in[i].Name, x.Shape, j, got, want)
				break
			}
		}
		x.Release()
	}
}

// TestPartNumPy has numpy read what is written.
func TestPartNumPy(t *testing.T) {
	t.Parallel()
	python := preparedtest.Runtime(t, "python")
	dir := t.TempDir()
	typed(t, openOutput(t, dir, "npz"), false)
	got, err := exec.Command(python, "-c", `
import sys, numpy as np
for name, a in np.load(sys.argv[1], allow_pickle=False).items():
    print(name, a.dtype, a.shape, a.tobytes().hex()[:8])
`, dir+"/typed.npz").CombinedOutput()
	for _, want := range []string{"bool0 bool (2,) 0001\n", "uint161 uint16 (2,) 00070e15\n", "fp642 float64 (2, 2, 3) 00070e15\n", "fp163 float16 (2, 0, 2) \n", "bf160 float32 (2,) 00000007\n"} {
		if err != nil || !strings.Contains(string(got), want) {
			t.Fatalf("%v: %s, want %s", err, got, want)
		}
	}
}

func TestFormatRefusals(t *testing.T) {
	t.Parallel()
	varying := dataset.Column{Name: "o", Kind: dataset.Tensor, DType: tensor.FP32, Shape: []int64{-1}}
	words := dataset.Column{Name: "w", Kind: dataset.Tensor, DType: tensor.Bytes, Shape: []int64{1}}
	id := dataset.Column{Name: "id", Kind: dataset.JSON}
	for _, tt := range []struct {
		column dataset.Column
		want   string
	}{
		{varying, "the rows of an array have one shape, and those of the column 'o' have [-1]; leave it out, or write jsonl or parquet"},
		{words, "an npz has numbers and booleans only, and the column 'w' has others; leave it out, or write jsonl, csv or parquet"},
		{id, "an npz has numbers and booleans only, and the column 'id' has others"},
	} {
		err := openOutput(t, t.TempDir(), "npz").Check([]dataset.Column{tt.column})
		if status.CodeOf(err) != status.InvalidArg || err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
	o := openOutput(t, t.TempDir(), "parquet")
	p, err := o.Part(t.Context(), "p", []dataset.Column{words})
	if err != nil {
		t.Fatal(err)
	}
	bad := dataset.Cell{Kind: dataset.Tensor, DType: tensor.Bytes, Shape: []int64{1}, Data: texts("\xff")}
	if err := p.Write(0, []dataset.Cell{bad}); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "column 'w': it has 1 bytes that are no UTF-8") {
		t.Errorf("no text: %v", err)
	}
	bad.Data = texts("good")
	if err := p.Write(1, []dataset.Cell{bad}); err != nil {
		t.Error(err)
	}
	if info, err := p.Close(); err != nil || info.Rows != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	if got := cells(t, open(t, o.Name("p.parquet"), ""), dataset.CutOptions{}); len(got) != 1 || got[0] != "good" {
		t.Errorf("the rows are %q", got)
	}
}

// inputs binds the first two rows of a dataset to the inputs of a model.
func inputs(t *testing.T, s *dataset.Set, d *infer.Description) (*dataset.Binder, []*dataset.Row, []infer.Named) {
	t.Helper()
	columns, err := s.Columns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := dataset.NewBinder(d, &job.Spec{}, columns)
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.Select(b.Columns()...).Head(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	batch := b.NewBatch(tensor.NewPool())
	for _, row := range list {
		if ok, err := batch.Add(row); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	in, err := batch.Inputs()
	if err != nil {
		t.Fatal(err)
	}
	return b, list, in
}
