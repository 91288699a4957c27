//go:build cgo

package openvino_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/tensor"
)

// request is a request of expected.json with its response.
type request struct {
	Name            string
	Inputs, Outputs []struct {
		Name, Datatype string
		Shape          []int64
		Data           []float64
	}
}

// TestExample compares the responses of the example with those of OpenVINO's Python interface.
func TestExample(t *testing.T) {
	t.Parallel()
	const dir = "../../examples/backends/openvino"
	pbtxt, err := os.ReadFile(filepath.Join(dir, "simple_openvino", "config.pbtxt"))
	if err != nil {
		t.Fatal(err)
	}
	var expected struct{ Requests []request }
	data, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err == nil {
		err = json.Unmarshal(data, &expected)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := settings(t, "simple_openvino", string(pbtxt))
	s.Config.DefaultModelFilename = "model.xml"
	s.Dir = filepath.Join(dir, "simple_openvino", "1")
	m, err := load(t, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range expected.Requests {
		var in []backendtest.Value
		for _, p := range r.Inputs {
			in = append(in, valueOf(p.Datatype, p.Shape, p.Data))
		}
		got, err := backendtest.Once(t, m, int(r.Inputs[0].Shape[0]), in...)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range r.Outputs {
			if diff := cmp.Diff(p.Data, floats(got[i]), cmpopts.EquateApprox(0, 1e-6)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", r.Name, p.Name, diff)
			}
			if diff := cmp.Diff(p.Shape, got[i].Dims); diff != "" {
				t.Errorf("%s, shape of %s (-want +got):\n%s", r.Name, p.Name, diff)
			}
		}
	}
}

func valueOf(datatype string, shape []int64, data []float64) backendtest.Value {
	if tensor.ParseDType(datatype) == tensor.Int64 {
		return backendtest.Of(tensor.Int64, shape, cast[int64](data)...)
	}
	return backendtest.Of(tensor.FP32, shape, cast[float32](data)...)
}

func cast[T int64 | float32](data []float64) []T {
	out := make([]T, len(data))
	for i, x := range data {
		out[i] = T(x)
	}
	return out
}

func floats(v backendtest.Value) []float64 {
	var out []float64
	for b := v.Data; len(b) >= 4; b = b[4:] {
		out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	}
	return out
}
