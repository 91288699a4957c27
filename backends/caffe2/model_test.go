//go:build cgo

package caffe2_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// example is the version folder of the example.
const example = "../../examples/backends/caffe2/simple_caffe2/1"

// signature is the configuration of the example.
const signature = `max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 } input { name: "INPUT1" data_type: TYPE_FP32 dims: 16 }
	output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 } output { name: "OUTPUT1" data_type: TYPE_FP32 dims: 16 }`

// expected is a request of the example with Caffe2's response.
type expected struct {
	Name            string
	Inputs, Outputs []struct {
		Name  string
		Shape []int64
		Data  []float32
	}
}

// requests reads the requests of the example.
func requests(tb testing.TB) []expected {
	tb.Helper()
	var file struct{ Requests []expected }
	data, err := os.ReadFile("../../examples/backends/caffe2/expected.json")
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return file.Requests
}

func fp32(dims []int64, elems ...float32) backendtest.Value {
	return backendtest.Of(tensor.FP32, dims, elems...)
}

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	r := requests(t)[1]
	x, y := fp32(r.Inputs[0].Shape, r.Inputs[0].Data...), fp32(r.Inputs[1].Shape, r.Inputs[1].Data...)
	backendtest.Run(t, factory(), options(t), backendtest.Fixture{
		Name: "batch", Rows: 3, Settings: settings(t, example, signature), In: []backendtest.Value{x, y},
		Want: []backendtest.Value{fp32(r.Outputs[0].Shape, r.Outputs[0].Data...), fp32(r.Outputs[1].Shape, r.Outputs[1].Data...)},
		Bad: []backendtest.Bad{
			{Name: "dtype", In: []backendtest.Value{backendtest.Of(tensor.Int32, x.Dims, make([]int32, 48)...), y}},
			{Name: "shape", In: []backendtest.Value{fp32([]int64{3, 8}, make([]float32, 24)...), y}},
			{Name: "short", In: []backendtest.Value{{DType: tensor.FP32, Dims: x.Dims, Data: x.Data[:100]}, y}},
			{Name: "absent", In: []backendtest.Value{{}, y}},
		},
	})
}

// TestExample compares the responses of the example with those of Caffe2.
func TestExample(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, example, signature))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests(t) {
		got, err := backendtest.Once(t, m, int(r.Inputs[0].Shape[0]), fp32(r.Inputs[0].Shape, r.Inputs[0].Data...), fp32(r.Inputs[1].Shape, r.Inputs[1].Data...))
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range r.Outputs {
			if diff := cmp.Diff(floats(fp32(o.Shape, o.Data...)), floats(got[i]), cmpopts.EquateApprox(0, 1e-6)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", r.Name, o.Name, diff)
			}
		}
	}
}

// TestLoadRefuses checks the errors for configurations and files that do not fit. Each names the model and the user's file, and leaves no
// temporary folder.
func TestLoadRefuses(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	predict, err := os.ReadFile(filepath.Join(example, "model.netdef"))
	if err != nil {
		t.Fatal(err)
	}
	initial, err := os.ReadFile(filepath.Join(example, "init_model.netdef"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		predict, initial []byte
		pbtxt            string
		want             []string
	}{
		"text":         {[]byte("GIF89a, and no model"), initial, signature, []string{"unable to read the predict net", "expected a NetDef of Caffe2", `begin with "GIF89a`}},
		"empty":        {[]byte{}, initial, signature, []string{"the predict net is empty", "found an empty file"}},
		"truncated":    {predict[:len(predict)-3], initial, signature, []string{"the file is truncated", "expected a NetDef of Caffe2, found"}},
		"init":         {predict, initial[:50], signature, []string{"unable to read the init net", "the file is truncated"}},
		"no init":      {predict, nil, signature, []string{"unable to find the init net", "init_model.netdef"}},
		"no weights":   {predict, []byte{}, signature, []string{`operator 2 "shift" (type "Add") of the predict net: it reads blob 'bias'`}},
		"swapped":      {initial, predict, signature, []string{"unexpected inference input 'INPUT0', allowed inputs are: none"}},
		"input":        {predict, initial, strings.Replace(signature, "INPUT1", "INPUT9", 1), []string{"unexpected inference input 'INPUT9', allowed inputs are: 'INPUT0', 'INPUT1'"}},
		"output":       {predict, initial, strings.Replace(signature, "OUTPUT0", "OUTPUT9", 1), []string{"unexpected inference output 'OUTPUT9'"}},
		"no inputs":    {predict, initial, "max_batch_size: 8", []string{"it reads blob 'INPUT0', which no operator before it writes and which is no input of the configuration"}},
		"output dims":  {predict, initial, strings.Replace(signature, `"OUTPUT1" data_type: TYPE_FP32 dims: 16`, `"OUTPUT1" data_type: TYPE_FP32 dims: 8`, 1), []string{"OUTPUT1", "[-1,16]", "[-1,8]"}},
		"output type":  {predict, initial, strings.Replace(signature, `"OUTPUT1" data_type: TYPE_FP32`, `"OUTPUT1" data_type: TYPE_INT32`, 1), []string{"OUTPUT1", "TYPE_INT32", "TYPE_FP32"}},
		"input type":   {predict, initial, strings.Replace(signature, `"INPUT1" data_type: TYPE_FP32`, `"INPUT1" data_type: TYPE_INT32`, 1), []string{`operator 0 "sum" (type "Add") of the predict net: input 1 has type int32, expected that of the first, float`}},
		"inputs' type": {predict, initial, strings.ReplaceAll(signature, `TYPE_FP32`, `TYPE_BF16`), []string{"input 'INPUT0' has datatype TYPE_BF16, which Caffe2 does not have"}},
		"param":        {predict, initial, signature + `parameters { key: "execution_mode" value { string_value: "sideways" } }`, []string{"unexpected value 'sideways' of parameter 'execution_mode'"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, data := range map[string][]byte{"model.netdef": tc.predict, "init_model.netdef": tc.initial} {
				if data == nil {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := load(t, settings(t, dir, tc.pbtxt))
			if err == nil {
				t.Fatal("Load succeeded")
			}
			for _, want := range append(tc.want, "model 'm'", filepath.Join(dir, "model.netdef")) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Load = %v\nwant it to say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "tutti-caffe2-") {
				t.Errorf("Load = %v, want the user's file only", err)
			}
		})
	}
	checkEmpty(t, temp)
}

// checkEmpty checks that a folder has no converted models.
func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*tutti-caffe2-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestFiles checks other names of the files, and that the converted model is removed.
func TestFiles(t *testing.T) {
	temp, dir := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	for from, to := range map[string]string{"model.netdef": "net.pb", "init_model.netdef": "init_net.pb"} {
		data, err := os.ReadFile(filepath.Join(example, from))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := factory().New(options(t))
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Load(t.Context(), settings(t, dir, signature+`default_model_filename: "net.pb"`))
	if err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, temp)
	if _, ok := m.(backends.ThreadedModel); !ok {
		t.Errorf("%T does not report its threads", m)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	checkEmpty(t, temp)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Load(ctx, settings(t, dir, signature)); status.CodeOf(err) != status.Cancelled {
		t.Errorf("cancelled: %v", err)
	}
	if d, ok := b.(backends.Describer); !ok || !strings.Contains(d.Describe(), "ONNX Runtime 1.") {
		t.Errorf("%T does not name ONNX Runtime", b)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestLibraryMissing(t *testing.T) {
	t.Parallel()
	_, err := factory().New(backends.Options{Others: map[string]map[string]string{"onnxruntime": {"library-path": filepath.Join(t.TempDir(), "none.so")}}})
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "tutti runtime fetch onnxruntime") {
		t.Errorf("New = %v, want it unavailable with the command", err)
	}
}
