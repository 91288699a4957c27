package dataset_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
)

// port describes an input or output of a model with batches; dims are without the batch dimension.
func port(name string, d tensor.DType, dims ...int64) infer.Port {
	return infer.Port{Name: name, DType: d, Shape: tensor.Of(dims...).Prepend(-1)}
}

func model(maxBatch int, inputs ...infer.Port) *infer.Description {
	return &infer.Description{Model: "m", Version: 1, MaxBatch: maxBatch, Inputs: inputs}
}

// rows makes rows of JSON Lines.
func rows(tb testing.TB, columns []string, lines ...string) (list []*dataset.Row) {
	tb.Helper()
	s := open(tb, write(tb, map[string]string{"a.jsonl": strings.Join(lines, "\n")}), "").Select(columns...)
	list, err := s.Head(tb.Context(), len(lines))
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

// show prints tensors.
func show(in []infer.Named) string {
	var b strings.Builder
	for i := range in {
		t := &in[i].Tensor
		fmt.Fprintf(&b, "%s %s%s %x ", in[i].Name, t.DType, t.Shape, t.Bytes())
	}
	return strings.TrimSpace(b.String())
}

// bindOne binds a JSON cell to one input and returns the tensor.
func bindOne(tb testing.TB, p infer.Port, mapping, cell string) (string, error) {
	tb.Helper()
	spec := &job.Spec{Columns: map[string]string{"X": mapping}}
	b, err := dataset.NewBinder(model(4, p), spec, []dataset.Column{{Name: "c", Kind: dataset.JSON}})
	if err != nil {
		tb.Fatal(err)
	}
	pool := tensor.NewPool()
	batch := b.NewBatch(pool)
	ok, err := batch.Add(rows(tb, b.Columns(), `{"c":`+cell+`}`)[0])
	if err != nil {
		return "", err
	}
	if !ok {
		tb.Fatal("the first row does not fit")
	}
	in, err := batch.Inputs()
	if err != nil {
		tb.Fatal(err)
	}
	defer in[0].Tensor.Release()
	return show(in), nil
}

func TestBind(t *testing.T) {
	t.Parallel()
	tests := []struct {
		dtype tensor.DType
		dims  []int64
		cell  string
		want  string // the tensor without its name, or the error behind "input 'X', column 'c': "
	}{
		{tensor.FP32, []int64{2}, `[1, -2.5]`, "FP32[1,2] 0000803f000020c0"},
		{tensor.FP32, []int64{1}, `0.1`, "FP32[1,1] cdcccc3d"},
		{tensor.FP32, nil, `[1]`, "FP32[1] 0000803f"},
		{tensor.FP32, []int64{1, 1}, `1`, "FP32[1,1,1] 0000803f"},
		{tensor.FP32, []int64{-1}, `[NaN, -Infinity]`, "FP32[1,2] 0000c07f000080ff"},
		{tensor.FP32, []int64{-1}, `[]`, "FP32[1,0] "},
		{tensor.FP32, []int64{-1, 2}, `[]`, "FP32[1,0,2] "},
		{tensor.FP32, []int64{-1, 2}, `[[1,2],[3,4]]`, "FP32[1,2,2] 0000803f000000400000404000008040"},
		{tensor.FP32, []int64{-1, 2}, `[1,2,3,4]`, "FP32[1,2,2] 0000803f000000400000404000008040"},
		{tensor.FP32, []int64{2, 2}, `[1,2,3,4]`, "FP32[1,2,2] 0000803f000000400000404000008040"},
		{tensor.FP32, []int64{-1, -1}, `[1,2,3,4]`, "expected the shape [-1,-1], found [4]"},
		{tensor.FP32, []int64{3}, `[1,2]`, "expected the shape [3], found [2]"},
		{tensor.FP32, []int64{2, 2}, `[[1,2,3,4]]`, "expected the shape [2,2], found [1,4]"},
		{tensor.FP32, []int64{-1, -1}, `[[1,2],[3]]`, "the list is ragged: a list has 1 elements, and one before it has 2"},
		{tensor.FP32, []int64{-1, -1}, `[[1],2]`, "the list is ragged: an element is at another depth than those before it"},
		{tensor.FP32, []int64{-1, -1}, `[1,[2]]`, "the list is ragged: an element is at another depth than those before it"},
		{tensor.FP32, []int64{-1, -1}, `[[],1]`, "the list is ragged: an element is at another depth than those before it"},
		{tensor.FP32, []int64{1}, `1e39`, "value 1e39 is out of range for FP32"},
		{tensor.FP32, []int64{1}, `"1"`, "expected a number, found a string"},
		{tensor.FP32, []int64{1}, `true`, "expected a number, found a boolean"},
		{tensor.FP32, []int64{2}, `[1,null]`, "element 1: expected a number, found null"},
		{tensor.FP32, []int64{1}, `null`, "the column has no value"},
		{tensor.FP64, []int64{1}, `0.1`, "FP64[1,1] 9a9999999999b93f"},
		{tensor.FP16, []int64{2}, `[1, -65504]`, "FP16[1,2] 003cfffb"},
		{tensor.FP16, []int64{1}, `65520`, "value 65520 is out of range for FP16"},
		{tensor.BF16, []int64{2}, `[1, Infinity]`, "BF16[1,2] 803f807f"},
		{tensor.BF16, []int64{1}, `3.4e38`, "value 3.4e+38 is out of range for BF16"},
		{tensor.Uint8, []int64{2}, `[0, 255]`, "UINT8[1,2] 00ff"},
		{tensor.Uint8, []int64{3}, `[0, 300, 1]`, "element 1: value 300 is out of range for UINT8"},
		{tensor.Uint8, []int64{1}, `-1`, "value -1 is out of range for UINT8"},
		{tensor.Uint8, []int64{1}, `-0`, "UINT8[1,1] 00"},
		{tensor.Uint16, []int64{1}, `65536`, "value 65536 is out of range for UINT16"},
		{tensor.Uint32, []int64{1}, `4294967295`, "UINT32[1,1] ffffffff"},
		{tensor.Uint64, []int64{1}, `18446744073709551615`, "UINT64[1,1] ffffffffffffffff"},
		{tensor.Uint64, []int64{1}, `18446744073709551616`, "value 18446744073709551616 is out of range for every integer type"},
		{tensor.Int8, []int64{2}, `[-128,127]`, "INT8[1,2] 807f"},
		{tensor.Int8, []int64{1}, `-129`, "value -129 is out of range for INT8"},
		{tensor.Int16, []int64{1}, `-2`, "INT16[1,1] feff"},
		{tensor.Int32, []int64{1}, `2147483648`, "value 2147483648 is out of range for INT32"},
		{tensor.Int64, []int64{1}, `-9223372036854775808`, "INT64[1,1] 0000000000000080"},
		{tensor.Int64, []int64{1}, `9223372036854775808`, "value 9223372036854775808 is out of range for INT64"},
		{tensor.Int64, []int64{1}, `3.0`, "INT64[1,1] 0300000000000000"},
		{tensor.Int64, []int64{1}, `1e3`, "INT64[1,1] e803000000000000"},
		{tensor.Int64, []int64{1}, `1.5`, "value 1.5 is no integer"},
		{tensor.Int64, []int64{1}, `NaN`, "value NaN is no integer of 64 bits"},
		{tensor.Bool, []int64{3}, `[true, false, true]`, "BOOL[1,3] 010001"},
		{tensor.Bool, []int64{2}, `[1, 0]`, "BOOL[1,2] 0100"},
		{tensor.Bool, []int64{1}, `2`, "value 2 is out of range for BOOL"},
		{tensor.Bool, []int64{1}, `"true"`, "expected true or false, found a string"},
		{tensor.Bytes, []int64{1}, `"é\n\ud83d\ude00"`, "BYTES[1,1] 07000000c3a90af09f9880"},
		{tensor.Bytes, []int64{2}, `["", "ab"]`, "BYTES[1,2] 00000000020000006162"},
		{tensor.Bytes, []int64{1}, `{"b64": "/9j/"}`, "BYTES[1,1] 03000000ffd8ff"},
		{tensor.Bytes, []int64{1}, `{"b64": "?"}`, "not Base64: illegal base64 data at input byte 0"},
		{tensor.Bytes, []int64{1}, `{"url": "x"}`, `expected a string or {"b64": "..."}, found another object`},
		{tensor.Bytes, []int64{1}, `7`, "expected a string, found a number"},
	}
	for _, tt := range tests {
		got, err := bindOne(t, port("X", tt.dtype, tt.dims...), "c", tt.cell)
		got, _ = strings.CutPrefix(got, "X ")
		if err != nil {
			if status.CodeOf(err) != status.InvalidArg {
				t.Errorf("%s: %v", tt.cell, err)
			}
			got, _ = strings.CutPrefix(err.Error(), "input 'X', column 'c': ")
		}
		if got != strings.TrimSpace(tt.want) {
			t.Errorf("%s of %s as %v: got %s, want %s", tt.cell, tt.dtype, tt.dims, got, tt.want)
		}
	}
	if got, err := bindOne(t, port("X", tensor.Bytes, 1), "base64:c", `"/9j\/"`); err != nil || got != "X BYTES[1,1] 03000000ffd8ff" {
		t.Errorf("base64: %s, %v", got, err)
	}
}

// TestBatch checks how rows are divided into requests.
func TestBatch(t *testing.T) {
	t.Parallel()
	opt := port("O", tensor.Int32, 1)
	opt.Optional = true
	d := model(3, port("X", tensor.Uint8, -1), opt)
	b, err := dataset.NewBinder(d, &job.Spec{Keep: []string{"id"}}, []dataset.Column{{Name: "X", Kind: dataset.JSON}, {Name: "O", Kind: dataset.JSON}, {Name: "id", Kind: dataset.JSON}})
	if err != nil {
		t.Fatal(err)
	}
	list := rows(t, b.Columns(), `{"X":[1,2]}`, `{"X":[3,4]}`, `{"X":[3000]}`, `{"X":[5,6]}`, `{"X":[7,8]}`, `{"X":[9]}`, `{"X":[9],"O":1}`, `{"X":[10],"O":2}`, `{"X":[1]`)
	pool := tensor.NewPool()
	batch := b.NewBatch(pool)
	var got []string
	flush := func() {
		in, err := batch.Inputs()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, show(in))
		for i := range in {
			in[i].Tensor.Release()
		}
	}
	for _, row := range list {
		ok, err := batch.Add(row)
		if err != nil {
			got = append(got, fmt.Sprintf("row %d: %v", row.Number, err))
			continue
		}
		if !ok {
			flush()
			if ok, err := batch.Add(row); !ok || err != nil {
				t.Fatalf("row %d: %v, %v", row.Number, ok, err)
			}
		}
	}
	flush()
	want := []string{
		"row 2: input 'X', column 'X': element 0: value 3000 is out of range for UINT8",
		"X UINT8[3,2] 010203040506",
		"X UINT8[1,2] 0708",
		"X UINT8[1,1] 09",
		"row 8: not JSON: expected ',' or '}', found the end of the text",
		"X UINT8[2,1] 090a O INT32[2,1] 0100000002000000",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if pool.InUse() != 0 {
		t.Errorf("%d bytes are in use", pool.InUse())
	}
}

// TestNoBatch binds to a model without a batch dimension.
func TestNoBatch(t *testing.T) {
	t.Parallel()
	d := model(0, infer.Port{Name: "X", DType: tensor.Int8, Shape: tensor.Of(-1, 2)})
	b, err := dataset.NewBinder(d, &job.Spec{}, []dataset.Column{{Name: "X", Kind: dataset.JSON}})
	if err != nil {
		t.Fatal(err)
	}
	list := rows(t, b.Columns(), `{"X":[[1,2]]}`, `{"X":[[3,4]]}`)
	batch := b.NewBatch(tensor.NewPool())
	if ok, err := batch.Add(list[0]); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := batch.Add(list[1]); ok || err != nil {
		t.Fatal("two rows in a request without a batch dimension", err)
	}
	in, err := batch.Inputs()
	if err != nil || show(in) != "X INT8[1,2] 0102" {
		t.Errorf("%s, %v", show(in), err)
	}
	in[0].Tensor.Release()
}

func TestBinderRefusals(t *testing.T) {
	t.Parallel()
	columns := []dataset.Column{
		{Name: "text", Kind: dataset.JSON, Sample: "a string"},
		{Name: "n", Kind: dataset.JSON, Sample: "a number"},
		{Name: "o", Kind: dataset.JSON, Sample: "an object"},
		{Name: "t", Kind: dataset.Tensor, DType: tensor.FP32, Shape: []int64{3, 4}},
		{Name: "b", Kind: dataset.Bytes},
		{Name: "yes", Kind: dataset.JSON, Sample: "a boolean"},
		{Name: "s", Kind: dataset.Tensor, DType: tensor.Bytes},
	}
	opt := port("X", tensor.FP32, 1)
	opt.Optional = true
	for _, tt := range []struct {
		port infer.Port
		spec job.Spec
		want string
	}{
		{port("X", tensor.FP32, 1), job.Spec{}, "the dataset has no column 'X' for the input 'X' of model 'm'; its columns are text, n, o, t, b, yes, s"},
		{port("X", tensor.FP32, 1), job.Spec{Columns: map[string]string{"X": "y"}}, "the dataset has no column 'y' for the input 'X' of model 'm'; its columns are text"},
		{port("X", tensor.FP32, 1), job.Spec{Columns: map[string]string{"Y": "n"}}, "model 'm' has no input 'Y' for the column 'n'; its inputs are X"},
		{port("X", tensor.FP32, 1), job.Spec{Columns: map[string]string{"X": "text"}}, "input 'X' has the type FP32, and the column 'text' has strings"},
		{port("X", tensor.FP32, 1), job.Spec{Columns: map[string]string{"X": "b"}}, "input 'X' has the type FP32, and the column 'b' has strings"},
		{port("X", tensor.FP32, 1), job.Spec{Columns: map[string]string{"X": "o"}}, "input 'X' has the type FP32, and the column 'o' has objects"},
		{port("X", tensor.FP32, 1), job.Spec{Columns: map[string]string{"X": "yes"}}, "input 'X' has the type FP32, and the column 'yes' has booleans"},
		{port("X", tensor.FP32, 1), job.Spec{Columns: map[string]string{"X": "s"}}, "input 'X' has the type FP32, and the column 's' has BYTES"},
		{port("X", tensor.Bytes, 1), job.Spec{Columns: map[string]string{"X": "n"}}, "input 'X' has the type BYTES, and the column 'n' has numbers"},
		{port("X", tensor.FP32, 3, 5), job.Spec{Columns: map[string]string{"X": "t"}}, "input 'X' has the shape [3,5] in each row, and the column 't' has [3,4]"},
		{port("X", tensor.FP32, 1), job.Spec{Columns: map[string]string{"X": "base64:n"}}, "input 'X' has the type FP32; base64:n is for BYTES"},
		{opt, job.Spec{}, "no column of the dataset is bound to an input of model 'm'; the columns are text, n"},
		{opt, job.Spec{Columns: map[string]string{"X": "y"}}, "the dataset has no column 'y' for the input 'X'"},
		{port("n", tensor.FP32, 1), job.Spec{Keep: []string{"id"}}, "the dataset has no column 'id' that is kept; its columns are text"},
	} {
		_, err := dataset.NewBinder(model(1, tt.port), &tt.spec, columns)
		if status.CodeOf(err) != status.InvalidArg || err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %s", tt.spec, err, tt.want)
		}
	}
	if _, err := dataset.NewBinder(model(1, port("text", tensor.Bytes, 1), port("t", tensor.Int8, -1, 4), opt), &job.Spec{}, columns); err != nil {
		t.Error(err)
	}
}
