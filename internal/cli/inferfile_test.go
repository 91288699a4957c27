package cli

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
)

// npy returns the content of an array file of numpy.
func npy(descr, shape string, elements any) []byte {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", descr, shape)
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	out, _ = binary.Append(append(out, header...), binary.LittleEndian, elements)
	return out
}

// npz returns the content of a file with several arrays.
func npz(t *testing.T, arrays map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, data := range arrays {
		w, err := z.Create(name + ".npy")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fileModel has the inputs of TestInputFiles.
func fileModel() *infer.Metadata {
	return &infer.Metadata{Name: "m", Inputs: []infer.TensorMetadata{
		{Name: "F", Datatype: "FP32", Shape: []int64{-1, 2}}, {Name: "T", Datatype: "BYTES", Shape: []int64{-1, 1}}, {Name: "H", Datatype: "FP16", Shape: []int64{2}},
	}}
}

// TestInputFiles checks the tensors of files, and the errors of those that do not fit.
func TestInputFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	two := npy("<f4", "1, 2", []float32{1, 2.5})
	for name, data := range map[string][]byte{
		"two.npy": two, "row.npy": npy("<f4", "2,", []float32{3, 4}), "big.npy": npy(">f4", "1, 2", []byte{0x3f, 0x80, 0, 0, 0x40, 0, 0, 0}),
		"half.npy": npy("<f2", "2,", []uint16{0x3c00, 0x4000}), "wide.npy": npy("<f4", "1, 3", []float32{1, 2, 3}), "double.npy": npy("<f8", "1, 2", []float64{1, 2}),
		"cut.npy": two[:len(two)-3], "text.npy": npy("<U3", "1,", []uint32{65, 66, 67}), "F.json": []byte(" [[1, 2], [3, 4]]\n"), "bad.json": []byte(`{"a": 1}`),
		"note.txt": []byte("hello"), "raw.bin": {0, 0, 128, 63, 0, 0, 0, 64}, "odd.bin": {1, 2, 3}, "cat.png": []byte("\x89PNG\r\n\x1a\n........"),
		"both.npz": npz(t, map[string][]byte{"F": two, "G": two}), "others.npz": npz(t, map[string][]byte{"A": two, "G": two}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		arg, stdin, err string
		shape           []int64
		data            []byte
	}{
		{"F=@two.npy", "", "", []int64{1, 2}, []byte{0, 0, 128, 63, 0, 0, 32, 64}},
		{"F=@row.npy", "", "", []int64{1, 2}, []byte{0, 0, 64, 64, 0, 0, 128, 64}},
		{"F=@big.npy", "", "", []int64{1, 2}, []byte{0, 0, 128, 63, 0, 0, 0, 64}},
		{"F=@both.npz", "", "", []int64{1, 2}, []byte{0, 0, 128, 63, 0, 0, 32, 64}},
		{"H=@half.npy", "", "", []int64{2}, []byte{0, 0x3c, 0, 0x40}},
		{"F=@F.json", "", "", []int64{2, 2}, []byte{0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 128, 64}},
		{"F=@raw.bin", "", "", []int64{1, 2}, []byte{0, 0, 128, 63, 0, 0, 0, 64}},
		{"T=@note.txt", "", "", []int64{1, 1}, []byte{5, 0, 0, 0, 'h', 'e', 'l', 'l', 'o'}},
		{"T=@-", "piped", "", []int64{1, 1}, []byte{5, 0, 0, 0, 'p', 'i', 'p', 'e', 'd'}},
		{"F=@wide.npy", "", "input 'F': file 'DIR/wide.npy': found the shape [1,3], expected [-1,2]", nil, nil},
		{"F=@double.npy", "", "input 'F': file 'DIR/double.npy': found elements of FP64, expected FP32", nil, nil},
		{"F=@cut.npy", "", "array '' has 5 bytes, and its header says 8", nil, nil},
		{"F=@text.npy", "", "has the type '<U3' (strings)", nil, nil},
		{"F=@others.npz", "", "expected one that is called 'F'", nil, nil},
		{"F=@bad.json", "", "file 'DIR/bad.json': ", nil, nil},
		{"F=@odd.bin", "", "file 'DIR/odd.bin' has 3 bytes, expected FP32 [-1,2]", nil, nil},
		{"F=@cat.png", "", "is an image (image/png), expected elements of FP32", nil, nil},
		{"F=@none.npy", "", "no such file", nil, nil},
	} {
		t.Run(tt.arg, func(t *testing.T) {
			t.Parallel()
			arg := strings.Replace(tt.arg, "@", "@"+dir+"/", 1)
			if tt.stdin != "" {
				arg = tt.arg
			}
			got, err := (&inputFiles{stdin: strings.NewReader(tt.stdin)}).parse(arg, fileModel())
			if tt.err != "" {
				if want := strings.ReplaceAll(tt.err, "DIR", dir); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want %s", err, want)
				}
				return
			}
			if err != nil || !slices.Equal(got.Shape, tt.shape) || !bytes.Equal(got.Data, tt.data) {
				t.Errorf("got %v %v, %v; want %v %v", got.Shape, got.Data, err, tt.shape, tt.data)
			}
		})
	}
}

// TestStdinOnce checks that two inputs cannot both be stdin.
func TestStdinOnce(t *testing.T) {
	t.Parallel()
	f := &inputFiles{stdin: strings.NewReader("a")}
	if _, err := f.parse("T=@-", fileModel()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.parse("T=@-", fileModel()); err == nil || !strings.Contains(err.Error(), "stdin can be read once only") {
		t.Errorf("error = %v", err)
	}
}

// TestDataFile checks the inputs of --data, and the errors of files that are no request for the model.
func TestDataFile(t *testing.T) {
	t.Parallel()
	head := `{"id":"7","inputs":[{"name":"T","datatype":"BYTES","shape":[1,1],"parameters":{"binary_data_size":6}},{"name":"F","datatype":"FP32","shape":[1,2],"data":[[1,2]]}],"outputs":[{"name":"Y"}]}`
	body := func(input string) string { return `{"inputs":[` + input + `]}` }
	for _, tt := range []struct{ name, data, err string }{
		{"JSON and binary", head + "\x02\x00\x00\x00hi", ""},
		{"arrays", string(npz(t, map[string][]byte{"F": npy("<f4", "1, 2", []float32{1, 2}), "H": npy("<f2", "2,", []uint16{1, 2})})), ""},
		{"binary is short", head + "\x02\x00\x00", "input 'T': it has 6 bytes, but 3 are left in the file"},
		{"binary is long", head + "\x02\x00\x00\x00hi!!", "2 bytes follow the request"},
		{"no JSON", "hello", "expected a request as JSON"},
		{"empty", "", "expected a request as JSON"},
		{"no inputs", `{"id":"7"}`, "the request has no inputs"},
		{"unknown input", body(`{"name":"X","datatype":"FP32","shape":[1],"data":[1]}`), "model 'm' has no input 'X', expected one of: F, T, H"},
		{"other type", body(`{"name":"F","datatype":"FP64","shape":[1,2],"data":[1,2]}`), "input 'F': found datatype 'FP64', expected FP32"},
		{"other shape", body(`{"name":"F","datatype":"FP32","shape":[1,3],"data":[1,2,3]}`), "input 'F': found the shape [1,3], expected [-1,2]"},
		{"few elements", body(`{"name":"F","datatype":"FP32","shape":[2,2],"data":[1,2,3]}`), "input 'F': found 3 elements, expected 4 for the shape [2,2]"},
		{"wrong element", body(`{"name":"F","datatype":"FP32","shape":[1,2],"data":[1,"b"]}`), `input 'F': element 1 is "b", expected a number (FP32)`},
		{"no data", body(`{"name":"F","datatype":"FP32","shape":[1,2]}`), "input 'F': it has no data"},
		{"shared memory", body(`{"name":"F","datatype":"FP32","shape":[1,2],"parameters":{"shared_memory_region":"r"}}`), "it is in shared memory"},
		{"one array for several inputs", string(npy("<f4", "1, 2", []float32{1, 2})), "a .npy has one array, and model 'm' has 3 inputs"},
		{"no arrays", string(npz(t, nil)), "expected a request as JSON"}, // an empty archive has another mark
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := &inferCall{req: client.Request{}}
			err := a.readData([]byte(tt.data), fileModel())
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error = %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || len(a.req.Inputs) != 2 {
				t.Fatalf("%+v, %v", a.req, err)
			}
			if tt.name == "JSON and binary" && (a.req.ID != "7" || !slices.Equal(a.req.Outputs, []string{"Y"}) || string(a.req.Inputs[0].Data) != "\x02\x00\x00\x00hi") {
				t.Errorf("request %+v", a.req)
			}
		})
	}
}
