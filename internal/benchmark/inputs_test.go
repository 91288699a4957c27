package benchmark_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/benchmark"
	"github.com/tutti-server/tutti/internal/load"
)

func port(name string, d tensor.DType, dims ...int64) infer.Port {
	return infer.Port{Name: name, DType: d, Shape: tensor.Of(dims...)}
}

func TestRandom(t *testing.T) {
	t.Parallel()
	d := &infer.Description{Model: "m", MaxBatch: 8, Outputs: []infer.Port{port("OUT", tensor.FP32, -1, 1)}}
	sizes := map[string]int{}
	for x := tensor.Bool; x <= tensor.BF16; x++ {
		if x.Size() > 0 || x == tensor.Bytes {
			d.Inputs = append(d.Inputs, port(x.String(), x, -1, 3, -1))
			sizes[x.String()] = x.Size()
		}
	}
	sizes["BYTES"] = 4 + 5
	optional := port("maybe", tensor.FP32, -1, 1)
	optional.Optional = true
	d.Inputs = append(d.Inputs, optional)
	o := benchmark.Random{Batch: 2, Shapes: map[string][]int64{"FP32": {3, 7}}, TextLength: 5}
	list, err := o.Requests(d)
	if err != nil || len(list) != 8 {
		t.Fatalf("%d requests: %v", len(list), err)
	}
	again, err := o.Requests(d)
	if err != nil || !cmp.Equal(list, again) || cmp.Equal(list[0], list[1]) {
		t.Errorf("the values do not depend on the seed alone, or requests are the same: %v", err)
	}
	for _, in := range list[0].Inputs {
		want := []int64{2, 3, 1}
		if in.Name == "FP32" {
			want[2] = 7
		}
		n := int(want[0] * want[1] * want[2])
		if !cmp.Equal(in.Shape, want) || len(in.Data) != n*sizes[in.Name] || in.Datatype != in.Name {
			t.Errorf("%s is %s %v with %d bytes", in.Name, in.Datatype, in.Shape, len(in.Data))
		}
	}
	if len(list[0].Inputs) != len(d.Inputs)-1 || !cmp.Equal(list[0].Outputs, []string{"OUT"}) {
		t.Errorf("%d inputs, outputs %v", len(list[0].Inputs), list[0].Outputs)
	}
}

func TestRandomErrors(t *testing.T) {
	t.Parallel()
	d := &infer.Description{Model: "m", MaxBatch: 4, Inputs: []infer.Port{port("X", tensor.FP32, -1, 3, -1)}}
	for _, tt := range []struct {
		name string
		o    benchmark.Random
		want string
	}{
		{"batch", benchmark.Random{Batch: 5}, "larger than max_batch_size 4"},
		{"input", benchmark.Random{Shapes: map[string][]int64{"Y": {1}}}, "no input 'Y' for a shape, expected one of: X"},
		{"rank", benchmark.Random{Shapes: map[string][]int64{"X": {3}}}, "has 1 dimensions, expected 2"},
		{"fixed", benchmark.Random{Shapes: map[string][]int64{"X": {4, 1}}}, "does not fit"},
		{"huge", benchmark.Random{Shapes: map[string][]int64{"X": {3, 1 << 40}}}, "more than 256 MiB"},
	} {
		if _, err := tt.o.Requests(d); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, expected '%s'", tt.name, err, tt.want)
		}
	}
}

// npy returns an array of FP32 in numpy's format.
func npy(shape string, values ...float32) string {
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }\n"
	b := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	b = append(b, header...)
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return string(b)
}

const bodyX = `{"inputs":[{"name":"X","datatype":"FP32","shape":[1,2],"data":[1,2]}]}`

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	d := &infer.Description{Model: "m", MaxBatch: 4, Inputs: []infer.Port{port("X", tensor.FP32, -1, 2)}, Outputs: []infer.Port{port("OUT", tensor.FP32, -1, 2)}}
	text := &infer.Description{Model: "t", MaxBatch: 4, Inputs: []infer.Port{port("TEXT", tensor.Bytes, -1, 1)}}
	write("bodies/b.json", strings.ReplaceAll(bodyX, "[1,2]}]", "[3,4]}]"))
	write("bodies/a.json", bodyX)
	write("texts/a.txt", "one")
	write("texts/b.txt", "two")
	floats := func(rows int64, values ...float32) load.Request {
		in := load.Floats("X", []int64{rows, 2}, values)
		return load.Request{Model: "m", Outputs: []string{"OUT"}, Inputs: []load.Tensor{in}}
	}
	for _, tt := range []struct {
		name  string
		d     *infer.Description
		files benchmark.Files
		want  []load.Request
	}{
		{"bodies in lines", d, benchmark.Files{Paths: []string{write("a.jsonl", bodyX+"\n\n"+bodyX+"\n")}}, []load.Request{floats(1, 1, 2), floats(1, 1, 2)}},
		{"a body", d, benchmark.Files{Paths: []string{write("a.json", bodyX)}}, []load.Request{floats(1, 1, 2)}},
		{"a golden request", d, benchmark.Files{Paths: []string{write("raw.json", strings.Replace(bodyX, `"data":[1,2]`, `"raw":"AACAPwAAAEA="`, 1))}}, []load.Request{floats(1, 1, 2)}},
		{"a golden text", text, benchmark.Files{Paths: []string{write("rawtext.json", `{"inputs":[{"name":"TEXT","datatype":"BYTES","shape":[1,1],"raw":"AwAAAG9uZQ=="}],"outputs":[]}`)}}, []load.Request{{
			Model: "t", Inputs: []load.Tensor{load.Bytes("TEXT", []int64{1, 1}, []byte("one"))},
		}}},
		{"a folder of bodies", d, benchmark.Files{Paths: []string{filepath.Join(dir, "bodies")}}, []load.Request{floats(1, 1, 2), floats(1, 3, 4)}},
		{"an array", d, benchmark.Files{Paths: []string{write("a.npy", npy("3, 2", 1, 2, 3, 4, 5, 6))}, Batch: 2}, []load.Request{floats(2, 1, 2, 3, 4), floats(1, 5, 6)}},
		{"rows in lines", d, benchmark.Files{Paths: []string{write("r.jsonl", "{\"X\":[1,2]}\n{\"X\":[3,4]}\n")}}, []load.Request{floats(1, 1, 2), floats(1, 3, 4)}},
		{"a column", d, benchmark.Files{Paths: []string{write("c.csv", "id,v\n1,\"[1,2]\"\n")}, Columns: map[string]string{"X": "v"}}, []load.Request{floats(1, 1, 2)}},
		{"several", d, benchmark.Files{Paths: []string{filepath.Join(dir, "a.json"), filepath.Join(dir, "r.jsonl")}}, []load.Request{floats(1, 1, 2), floats(1, 1, 2), floats(1, 3, 4)}},
		{"texts", text, benchmark.Files{Paths: []string{filepath.Join(dir, "texts")}, Batch: 4}, []load.Request{{
			Model: "t", Inputs: []load.Tensor{load.Bytes("TEXT", []int64{2, 1}, []byte("one"), []byte("two"))},
		}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.files.Requests(t.Context(), tt.d)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFileErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := &infer.Description{Model: "m", MaxBatch: 4, Inputs: []infer.Port{port("X", tensor.FP32, -1, 2)}}
	for _, tt := range []struct{ name, file, text, want string }{
		{"missing", "", "", "no such file"},
		{"not JSON", "a.json", "{", "a.json', line 1"},
		{"no inputs", "b.json", "{}", "the request has no inputs"},
		{"another input", "c.json", strings.ReplaceAll(bodyX, `"X"`, `"Y"`), "no input 'Y', expected one of: X"},
		{"parameters", "d.json", strings.Replace(bodyX, "{", `{"parameters":{"sequence_id":1},`, 1), "parameters, which are not sent"},
		{"raw bytes of another number", "raw.json", strings.Replace(bodyX, `"data":[1,2]`, `"raw":"AACAPw=="`, 1), "input 'X' has 4 bytes, expected 8 for shape [1 2] of FP32"},
		{"raw text of another number", "text.json", `{"inputs":[{"name":"X","datatype":"BYTES","shape":[2],"raw":"AwAAAG9uZQ=="}]}`, "text.json', line 1"},
		{"second line", "e.jsonl", bodyX + "\n{]\n", "e.jsonl', line 2"},
		{"an empty file", "f.json", "", "have no request"},
		{"an unknown format", "g.bin", "x", "g.bin"},
		{"a broken array", "h.npy", "nothing", "no array of numpy"},
		{"a row of another shape", "i.npy", npy("1, 3", 1, 2, 3), "X"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, tt.file, "missing.json")
			if tt.file != "" {
				path = filepath.Join(dir, tt.file)
				if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := (&benchmark.Files{Paths: []string{path}}).Requests(t.Context(), d)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%d requests, %v; expected '%s'", len(got), err, tt.want)
			}
		})
	}
}
