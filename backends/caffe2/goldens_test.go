//go:build cgo

package caffe2_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/caffe2/convert"
	"github.com/tutti-server/tutti/backends/caffe2/netdef"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// golden is a model with the results of Caffe2: see testdata/make.py.
type golden struct {
	Name            string
	Predict, Init   []byte
	Atol            float64
	Inputs, Outputs []goldenTensor
}

type goldenTensor struct {
	Name, Datatype string
	Shape          []int64
	Data           []byte
}

func (g *goldenTensor) value() backendtest.Value {
	return backendtest.Value{DType: tensor.ParseDType(g.Datatype), Dims: g.Shape, Data: g.Data}
}

// goldens reads the stored models.
func goldens(tb testing.TB) (all []golden) {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", "operators.json.gz"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(z).Decode(&all)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// write writes the nets into a new version folder.
func (g *golden) write(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, data := range map[string][]byte{"model.netdef": g.Predict, "init_model.netdef": g.Init} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// config returns a configuration in which the first variable dimensions of each input are left open.
func (g *golden) config(variable int) string {
	var b strings.Builder
	for i := range g.Inputs {
		t := &g.Inputs[i]
		dims := make([]string, len(t.Shape))
		for k, d := range t.Shape {
			if k < variable {
				d = -1
			}
			dims[k] = strconv.FormatInt(d, 10)
		}
		fmt.Fprintf(&b, "input { name: %q data_type: %s dims: [%s] }\n", t.Name, tensor.ParseDType(t.Datatype).ConfigName(), strings.Join(dims, ","))
	}
	return b.String()
}

// TestOperators compares each operator with Caffe2's own results: with declared dimensions that are fixed, with a variable first one, as
// models with a batch have it, and with variable ones only, where a model may be refused by name.
// shows: backends.caffe2
func TestOperators(t *testing.T) {
	t.Parallel()
	for _, g := range goldens(t) {
		for _, variable := range []int{0, 1, 32} {
			t.Run(fmt.Sprintf("%s/%d", g.Name, variable), func(t *testing.T) {
				t.Parallel()
				s := settings(t, g.write(t), g.config(variable))
				m, err := load(t, s)
				if err != nil {
					if variable > 1 && status.CodeOf(err) == status.Unsupported && strings.Contains(err.Error(), "operator ") {
						t.Skip(err)
					}
					t.Fatal(err)
				}
				var in []backendtest.Value
				for i := range g.Inputs {
					in = append(in, g.Inputs[i].value())
				}
				got, err := backendtest.Once(t, m, 1, in...)
				if err != nil {
					t.Fatal(err)
				}
				for i := range g.Outputs {
					want := g.Outputs[i].value()
					compare(t, g.Outputs[i].Name, want, got[i], g.Atol)
				}
			})
		}
	}
}

// compare compares a tensor with Caffe2's. A tensor without dimensions is one of a single element in the protocol.
func compare(t *testing.T, name string, want, got backendtest.Value, atol float64) {
	t.Helper()
	if len(want.Dims) == 0 {
		want.Dims = []int64{1}
	}
	if got.DType != want.DType || !cmp.Equal(got.Dims, want.Dims) {
		t.Fatalf("%s is %s %v, want %s %v", name, got.DType, got.Dims, want.DType, want.Dims)
	}
	if want.DType != tensor.FP32 {
		if diff := cmp.Diff(want.Data, got.Data); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		return
	}
	if diff := cmp.Diff(floats(want), floats(got), cmpopts.EquateApprox(1e-5, atol)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestGoldensCover checks that each supported operator has a stored result.
func TestGoldensCover(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, g := range goldens(t) {
		for _, data := range [][]byte{g.Predict, g.Init} {
			n, err := netdef.Parse(data)
			if err != nil {
				t.Fatalf("%s: %v", g.Name, err)
			}
			for i := range n.Operators {
				tested[n.Operators[i].Type] = true
			}
		}
	}
	for _, kind := range []string{"CopyCPUToGPU", "CopyGPUToCPU", "CopyFromCPUInput"} {
		tested[kind] = true // they need a GPU
	}
	for _, kind := range convert.Operators() {
		if !tested[kind] {
			t.Errorf("operator %s has no stored result of Caffe2", kind)
		}
	}
}
