package capture_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// written captures a request and returns its file.
func written(t *testing.T, s *capture.Store, record func(f tracing.Snapshot)) []byte {
	t.Helper()
	start(t, s, inspect.CaptureRule{})
	f := s.Select("m", "r1", id(1))
	record(f)
	f.Finish(&tracing.Record{ID: id(1), Model: "m"})
	write, err := s.NPZ(id(1).String())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestReadFile checks that tensors of every type, and what the request said, are read as they were captured.
func TestReadFile(t *testing.T) {
	t.Parallel()
	alloc := tensor.NewPool()
	long, zeros := strings.Repeat("x", 200<<10), "ends with zero\x00"
	contents := map[string]tensor.Tensor{
		"FP32": raw(t, alloc, tensor.FP32, tensor.Of(1, 2), []byte("12345678")), "BF16": raw(t, alloc, tensor.BF16, tensor.Of(2), []byte("abcd")),
		"BOOL": raw(t, alloc, tensor.Bool, tensor.Of(), []byte{1}), "NONE": raw(t, alloc, tensor.Int64, tensor.Of(3, 0), nil),
		"SHORT": bytesOf(t, alloc, "a", "", "abc"), "ZEROS": bytesOf(t, alloc, zeros, "b"), "LONG": bytesOf(t, alloc, long, "b", "c", "d", "e"),
		"EMPTY": bytesOf(t, alloc), "UNFIT": raw(t, alloc, tensor.FP64, tensor.Of(2), []byte("123")),
	}
	want := map[string]string{}
	s := capture.New(capture.Settings{Bytes: 8 << 20, RequestBytes: 8 << 20, RedactTensors: []string{"secret*", "HIDDEN"}})
	file := written(t, s, func(f tracing.Snapshot) {
		f.Describe(&tracing.RequestInfo{Outputs: []string{"O"}, SequenceID: 7, Start: true, Params: []tracing.RequestParam{{Key: "n", Type: "int64", Value: "3"}, {Key: "secret_key", Type: "string", Value: "hush"}}})
		for name, x := range contents {
			want[name] = string(x.Bytes())
			shoot(f, edge("request", name), x)
		}
		shoot(f, edge("request", "HIDDEN"), bytesOf(t, alloc, "hush"))
	})
	if bytes.Contains(file, []byte("hush")) {
		t.Error("the file has what is redacted")
	}
	f, err := capture.ReadFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	sent := &inspect.SentView{
		Outputs: []string{"O"}, Sequence: &inspect.SequenceView{ID: 7, Start: true}, Params: []inspect.ParamView{{Key: "n", Type: "int64", Value: "3"}}, Redacted: []string{"secret_key"},
	}
	if diff := cmp.Diff(sent, f.Sent); diff != "" {
		t.Error(diff)
	}
	for i := range f.List {
		x := &f.List[i]
		data, whole, err := f.Content(i)
		if x.Tensor == "HIDDEN" {
			if err == nil || !strings.Contains(err.Error(), "redacted") {
				t.Error(err)
			}
			continue
		}
		if err != nil || string(data) != want[x.Tensor] || whole != (x.Tensor != "UNFIT") {
			t.Errorf("%s: %d bytes, %v, %v", x.Tensor, len(data), whole, err)
		}
		delete(want, x.Tensor)
	}
	if len(want) > 0 {
		t.Errorf("not in the file: %v", want)
	}
	public, err := s.Tensors(id(1).String(), false)
	if err != nil || public.Sent != nil {
		t.Errorf("%+v is shown without the token, %v", public.Sent, err)
	}
}

// archive returns a zip file of these arrays: the header and the elements of each.
func archive(t *testing.T, arrays ...[3]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, a := range arrays {
		w, err := z.CreateHeader(&zip.FileHeader{Name: a[0] + ".npy", Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(w, "\x93NUMPY\x01\x00%c\x00%s%s", len(a[1]), a[1], a[2]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func header(descr, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", descr, shape)
}

// TestReadHostileFiles checks the errors of files that no server has written.
func TestReadHostileFiles(t *testing.T) {
	t.Parallel()
	about := func(text string) [3]string {
		return [3]string{"__capture__", header("|u1", fmt.Sprint(len(text), ",")), text}
	}
	list := func(tensors string) [3]string { return about(`{"model":"m","list":[` + tensors + `]}`) }
	fp32 := list(`{"name":"a","datatype":"FP32","shape":[2],"kept":true}`)
	text := list(`{"name":"a","datatype":"BYTES","shape":[2],"kept":true}`)
	offsets := func(b string) []byte {
		return archive(t, text, [3]string{"a.data", header("|u1", "3,"), "abc"}, [3]string{"a.offsets", header("<i8", "3,"), b})
	}
	for _, c := range []struct {
		name, want string
		file       []byte
	}{
		{"no zip", "is no .npz file", []byte("hello")},
		{"no list", "expected a file of tutti capture", archive(t, [3]string{"a", header("<f4", "1,"), "1234"})},
		{"no JSON", "cannot be parsed", archive(t, about("{"))},
		{"no model", "names no model", archive(t, about("{}"))},
		{"twice", "has the array 'a' twice", archive(t, fp32, [3]string{"a"}, [3]string{"a"})},
		{"listed twice", "lists tensor 'a' twice", archive(t, list(`{"name":"a","datatype":"FP32"},{"name":"a","datatype":"FP32"}`))},
		{"datatype", "unknown datatype 'FP8'", archive(t, list(`{"name":"a","datatype":"FP8"}`))},
		{"negative shape", "of the shape [-1]", archive(t, list(`{"name":"a","datatype":"FP32","shape":[-1]}`))},
		{"absent", "'a' is listed and is not in the file", archive(t, fp32)},
		{"other type", "'a' is <f8 [2], expected FP32 [2]", archive(t, fp32, [3]string{"a", header("<f8", "2,"), "1234567812345678"})},
		{"short", "has another size than the 8 bytes", archive(t, fp32, [3]string{"a", header("<f4", "2,"), "1234"})},
		{"long", "has another size than the 8 bytes", archive(t, fp32, [3]string{"a", header("<f4", "2,"), "123456789"})},
		{"huge", "expected at most", archive(t, fp32, [3]string{"a", header("<f4", "1099511627776,"), ""})},
		{"overflow", "its shape is", archive(t, fp32, [3]string{"a", header("<f4", "4611686018427387904,4"), ""})},
		{"no width", "its shape is", archive(t, text, [3]string{"a", header("|S0", "1099511627776,"), ""})},
		{"object", "its header is", archive(t, fp32, [3]string{"a", header("|O", "2,"), "1234"})},
		{"other version", "no .npy of version 1.0", func() []byte {
			b := archive(t, fp32, [3]string{"a", header("<f4", "2,"), "12345678"})
			return bytes.ReplaceAll(b, []byte("\x93NUMPY\x01"), []byte("\x93NUMPY\x02"))
		}()},
		{"offsets backwards", "offsets outside of its data", offsets("\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00")},
		{"offsets outside", "offsets outside of its data", offsets("\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff")},
		{"offsets missing", "is not in the file", archive(t, text, [3]string{"a.data", header("|u1", "3,"), "abc"})},
		{"other offsets", "its offsets are of others", archive(t, text, [3]string{"a.data", header("|u1", "3,"), "abc"}, [3]string{"a.offsets", header("<i8", "1,"), "12345678"})},
	} {
		f, err := capture.ReadFile(bytes.NewReader(c.file), int64(len(c.file)))
		for i := 0; err == nil && i < len(f.List); i++ {
			_, _, err = f.Content(i)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || status.CodeOf(err) != status.InvalidArg {
			t.Errorf("%s: %v, expected %q", c.name, err, c.want)
		}
	}
}
