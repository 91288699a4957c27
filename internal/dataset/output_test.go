package dataset_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
)

// named makes a tensor of bytes.
func named(tb testing.TB, name string, d tensor.DType, data []byte, dims ...int64) infer.Named {
	tb.Helper()
	x, err := tensor.NewBytes(tensor.NewPool(), tensor.Of(dims...), len(data))
	if err != nil {
		tb.Fatal(err)
	}
	x.DType = d
	copy(x.Bytes(), data)
	return infer.Named{Name: name, Tensor: x}
}

// texts encodes elements of BYTES.
func texts(list ...string) (b []byte) {
	for _, s := range list {
		b = tensor.AppendBytes(b, s)
	}
	return b
}

func openOutput(tb testing.TB, uri, format string) *dataset.Output {
	tb.Helper()
	o, err := dataset.OpenOutput(tb.Context(), job.Place{URI: uri, Format: format}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// objects lists the names of an output.
func objects(tb testing.TB, o *dataset.Output, folder string) (names []string) {
	tb.Helper()
	for obj, err := range o.List(tb.Context(), folder) {
		if err != nil {
			tb.Fatal(err)
		}
		names = append(names, obj.Key)
	}
	return names
}

// results renders two rows with an output of every kind, to a part.
func results(tb testing.TB, o *dataset.Output, part string, rows []*dataset.Row, keep bool) (*dataset.PartInfo, *dataset.Renderer) {
	tb.Helper()
	d := model(8, port("x", tensor.Int8, 1))
	d.Outputs = []infer.Port{port("label", tensor.Bytes, 1), port("score", tensor.FP32, 2), port("n", tensor.Int64, 1), port("ok", tensor.Bool), port("h", tensor.FP16, 1, 2), port("unused", tensor.FP32, 1)}
	spec := &job.Spec{Results: map[string]string{"label": "", "score": "Score", "n": "", "ok": "", "h": ""}}
	columns := []dataset.Column{{Name: "x", Kind: dataset.JSON}, {Name: "id", Kind: dataset.JSON}}
	if keep {
		spec.Keep = []string{"id"}
	}
	b, err := dataset.NewBinder(d, spec, columns)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := dataset.NewRenderer(d, spec, b, columns)
	if err != nil {
		tb.Fatal(err)
	}
	if err := o.Check(r.Columns()); err != nil {
		tb.Fatal(err)
	}
	out := []infer.Named{
		named(tb, "score", tensor.FP32, []byte{0xcd, 0xcc, 0xcc, 0x3d, 0, 0, 0x80, 0x7f, 0, 0, 0xc0, 0x7f, 0, 0, 0, 0x80}, 2, 2),
		named(tb, "label", tensor.Bytes, texts("a\"b,\n", "\xff\xd8"), 2, 1),
		named(tb, "n", tensor.Int64, []byte{0, 0, 0, 0, 0, 0, 0, 0x80, 7, 0, 0, 0, 0, 0, 0, 0}, 2, 1),
		named(tb, "ok", tensor.Bool, []byte{1, 0}, 2),
		named(tb, "h", tensor.FP16, []byte{0, 0x3c, 0x66, 0x2e, 0, 0xc0, 0, 0}, 2, 1, 2),
	}
	p, err := o.Part(tb.Context(), part, r.Columns())
	if err != nil {
		tb.Fatal(err)
	}
	if err := r.Render(out, rows, func(row *dataset.Row, cells []dataset.Cell) error { return p.Write(row.Number, cells) }); err != nil {
		tb.Fatal(err)
	}
	for i := range out {
		out[i].Tensor.Release()
	}
	info, err := p.Close()
	if err != nil {
		tb.Fatal(err)
	}
	return info, r
}

func names(columns []dataset.Column) (list []string) {
	for i := range columns {
		list = append(list, columns[i].Name)
	}
	return list
}

// copyPart writes the rows of a part to another one and returns its description.
func copyPart(tb testing.TB, o *dataset.Output, from, to string, columns []dataset.Column, numbers []int64) *dataset.PartInfo {
	tb.Helper()
	p, err := o.Part(tb.Context(), to, columns)
	if err != nil {
		tb.Fatal(err)
	}
	for row, err := range o.Rows(tb.Context(), from, 0, names(columns)) {
		if err != nil {
			tb.Fatal(err)
		}
		if row.Err != nil {
			tb.Fatal(row.Err)
		}
		if err := p.Write(numbers[row.Number], row.Cells); err != nil {
			tb.Fatal(err)
		}
	}
	info, err := p.Close()
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

func TestPartJSONLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/new/out"
	o := openOutput(t, dir, "")
	list := rows(t, []string{"x", "id"}, `{"x":1,"id": {"a": [1,  2]}}`, `{"x":2}`)
	info, r := results(t, o, "parts/0", list, true)
	want := `{"id":{"a": [1,  2]},"label":"a\"b,\n","Score":[0.1,Infinity],"n":-9223372036854775808,"ok":true,"h":[[1,0.099975586]]}
{"id":null,"label":{"b64":"/9g="},"Score":[NaN,-0],"n":7,"ok":false,"h":[[-2,0]]}
`
	got, err := os.ReadFile(dir + "/" + info.Path)
	if d := cmp.Diff(want, string(got)); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if info.Path != "parts/0.jsonl" || info.Rows != 2 || info.Bytes != int64(len(want)) || len(info.SHA256) != 64 {
		t.Errorf("%+v", info)
	}
	again := copyPart(t, o, info.Path, "copy", r.Columns(), []int64{0, 1})
	if again.SHA256 != info.SHA256 || again.Sum != info.Sum {
		t.Errorf("copied: %+v, want %+v", again, info)
	}
	if other := copyPart(t, o, info.Path, "copy", r.Columns(), []int64{1, 0}); other.Sum == info.Sum {
		t.Error("the sum does not depend on the order of the rows")
	}
	var sum dataset.Sum
	for i := range 2 {
		p, err := o.Part(t.Context(), "one", r.Columns())
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range o.Rows(t.Context(), info.Path, int64(i), names(r.Columns())) {
			if err != nil || row.Number != int64(i) {
				t.Fatal(row, err)
			}
			if err := p.Write(row.Number, row.Cells); err != nil {
				t.Fatal(err)
			}
			break
		}
		one, err := p.Close()
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(one.Sum)
	}
	if back, err := dataset.ParseSum(sum.String()); back != info.Sum || err != nil {
		t.Errorf("two parts have %s, one has %s, %v", back, info.Sum, err)
	}
	if d := cmp.Diff([]string{"copy.jsonl", "one.jsonl", "parts/0.jsonl"}, objects(t, o, "")); d != "" {
		t.Error(d)
	}
}

// objectStore checks small objects.
func objectStore(t *testing.T, o *dataset.Output) {
	t.Helper()
	ctx := t.Context()
	if got := objects(t, o, ""); len(got) != 0 {
		t.Errorf("a new output has %v", got)
	}
	for _, data := range []string{"1", "22", ""} {
		if err := o.Put(ctx, "plan/1.json", []byte(data)); err != nil {
			t.Fatal(err)
		}
		if got, err := o.Get(ctx, "plan/1.json"); err != nil || string(got) != data {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if err := o.Put(ctx, "plan2", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"plan/1.json", "plan2"}, objects(t, o, "")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"plan/1.json"}, objects(t, o, "plan")); d != "" {
		t.Error(d)
	}
	for range 2 {
		if err := o.Delete(ctx, "plan2"); err != nil {
			t.Error(err)
		}
	}
	if _, err := o.Get(ctx, "plan2"); status.CodeOf(err) != status.NotFound {
		t.Errorf("a deleted object: %v", err)
	}
	for _, key := range []string{"", "../x", "/x", "a//b"} {
		if _, err := o.Get(ctx, key); status.CodeOf(err) != status.InvalidArg {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestObjects(t *testing.T) {
	t.Parallel()
	objectStore(t, openOutput(t, t.TempDir()+"/out", ""))
	objectStore(t, openOutput(t, "file://"+t.TempDir()+"/out", ""))
}

// TestFullDisk writes to a device that is always full.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := openOutput(t, dir, "")
	p, err := o.Part(t.Context(), "a", []dataset.Column{{Name: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full")
	}
	dataset.SetPartFile(p, full)
	big := []dataset.Cell{{Kind: dataset.Bytes, Data: []byte(strings.Repeat("x", 1<<20))}}
	err = p.Write(0, big)
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), filepath.Join(dir, "a.jsonl")) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
	if status.RetryAfter(err) == 0 || !strings.Contains(err.Error(), "free space there, or write the results to another disk or a bucket") {
		t.Errorf("got %v, want what to do and when to try again", err)
	}
	if _, err := p.Close(); status.CodeOf(err) != status.Unavailable {
		t.Errorf("Close returns %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestConcurrentParts(t *testing.T) {
	t.Parallel()
	o := openOutput(t, t.TempDir(), "")
	columns := []dataset.Column{{Name: "x"}}
	done := make(chan error)
	for range 8 {
		go func() {
			done <- func() error {
				p, err := o.Part(t.Context(), "a", columns)
				if err != nil {
					return err
				}
				err = p.Write(1, []dataset.Cell{{Kind: dataset.JSON, Data: []byte("1")}})
				_, cerr := p.Close()
				return errors.Join(err, cerr)
			}()
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if data, err := o.Get(t.Context(), "a.jsonl"); string(data) != "{\"x\":1}\n" || err != nil {
		t.Errorf("%s, %v", data, err)
	}
	p, err := o.Part(t.Context(), "a", columns)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Abort(); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"a.jsonl"}, objects(t, o, "")); d != "" {
		t.Error(d)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dir := write(t, map[string]string{"parts/.tutti-1": "", "parts/.tutti-2": "", "parts/a.jsonl": ""})
	for _, name := range []string{"parts/.tutti-1", "parts/a.jsonl"} {
		if err := os.Chtimes(dir+"/"+name, now.Add(-time.Hour), now.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for _, uri := range []string{dir, dir + "/none"} {
		if err := openOutput(t, uri, "").Sweep(t.Context(), now.Add(-time.Minute)); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(dir + "/parts")
	if err != nil || len(left) != 2 || left[0].Name() != ".tutti-2" || left[1].Name() != "a.jsonl" {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestOutputRefusals(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"file": ""})
	for _, tt := range []struct {
		uri, format string
		code        status.Code
		want        string
	}{
		{"", "", status.InvalidArg, "the output has no uri"},
		{dir + "/file", "", status.InvalidArg, "is a file; expected a folder"},
		{dir + "/*", "", status.InvalidArg, "is a pattern; expected a folder"},
		{dir, "xml", status.Unsupported, "unsupported: format 'xml' of the output"},
		{"ftp://x", "", status.Unsupported, "has the scheme 'ftp'"},
	} {
		_, err := dataset.OpenOutput(t.Context(), job.Place{URI: tt.uri, Format: tt.format}, nil)
		if status.CodeOf(err) != tt.code || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %v %s", tt.uri, err, tt.code, tt.want)
		}
	}
	o := openOutput(t, dir+"/file/below", "")
	if err := o.Put(t.Context(), "x", nil); err == nil {
		t.Error("a folder below a file")
	}
}
