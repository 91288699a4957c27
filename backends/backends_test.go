package backends_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func TestRegistry(t *testing.T) {
	t.Parallel()
	list := []backends.Factory{
		{Name: "a", Platforms: []string{"a_graph", "a_saved"}, DefaultFile: "a.bin"},
		{Name: "b", Platforms: []string{"b_plan"}},
		{Name: "c"},
	}
	r, err := backends.NewRegistry(list...)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"a": "a", "b": "b", "c": "c", "": "", "A": "", "a_graph": ""}
	platforms := map[string]string{"a_graph": "a", "a_saved": "a", "b_plan": "b", "": "", "a": ""}
	for name, want := range names {
		if got := nameOf(r.ByName(name)); got != want {
			t.Errorf("backend %q is %q, want %q", name, got, want)
		}
	}
	for platform, want := range platforms {
		if got := nameOf(r.ByPlatform(platform)); got != want {
			t.Errorf("platform %q is of %q, want %q", platform, got, want)
		}
	}
	for want, twice := range map[string]backends.Factory{
		"backend 'b' is listed twice":        {Name: "b"},
		"platform 'a_saved' is listed twice": {Name: "d", Platforms: []string{"d", "a_saved"}},
		"platform 'd' is listed twice":       {Name: "d", Platforms: []string{"d", "d"}},
	} {
		if _, err := backends.NewRegistry(append(slices.Clip(list), twice)...); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func nameOf(f *backends.Factory) string {
	if f == nil {
		return ""
	}
	return f.Name
}

func TestSettings(t *testing.T) {
	t.Parallel()
	value := func(s string) *modelconfig.ModelParameter { return &modelconfig.ModelParameter{StringValue: s} }
	s := backends.Settings{Dir: "repo/m/1"}
	if s.Param("k") != "" || s.File("model.bin") != filepath.Join("repo/m/1", "model.bin") {
		t.Errorf("without a configuration: parameter %q, file %q", s.Param("k"), s.File("model.bin"))
	}
	s.Config = &modelconfig.ModelConfig{
		DefaultModelFilename: "other.bin",
		Parameters:           map[string]*modelconfig.ModelParameter{"k": value("v"), "nil": nil},
	}
	if s.Param("k") != "v" || s.Param("nil") != "" || s.Param("K") != "" {
		t.Errorf("parameters %q, %q and %q", s.Param("k"), s.Param("nil"), s.Param("K"))
	}
	if got := s.File("model.bin"); got != filepath.Join("repo/m/1", "other.bin") {
		t.Errorf("file %q, want the configured one", got)
	}
}

// TestFail checks which of three requests fail with rows 0 and 1, with no rows, and with row 2.
func TestFail(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	tests := []struct {
		name string
		rows []int
		want []error
	}{
		{"none", nil, []error{nil, nil, nil}},
		{"first row", []int{0}, []error{first, nil, nil}},
		{"another row of the same", []int{1}, []error{first, nil, nil}},
		{"a request without rows in front", []int{2}, []error{nil, nil, first}},
		{"the first failure stays", []int{1, 0}, []error{first, nil, nil}},
		{"two", []int{2, 0}, []error{second, nil, first}},
		{"no such row", []int{-1, 3}, []error{nil, nil, nil}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := backends.Batch{Rows: 3, Requests: []backends.Request{{First: 0, Rows: 2}, {First: 2, Rows: 0}, {First: 2, Rows: 1}}}
			for i, row := range tt.rows {
				b.Fail(row, []error{first, second}[i])
			}
			for i, want := range tt.want {
				if got := b.Requests[i].Err; !errors.Is(got, want) {
					t.Errorf("request %d failed with %v, want %v", i, got, want)
				}
			}
		})
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	a := tensortest.NewChecked(t, nil)
	b := &backends.Batch{Out: make([]tensor.Tensor, 2), Allocator: a}
	x, err := b.Alloc(0, tensor.FP32, tensor.Of(2, 3))
	if err != nil || x != &b.Out[0] || x.Len != 24 || x.Shape.String() != "[2,3]" || b.Out[1].Present() {
		t.Fatalf("output %v, %v", x, err)
	}
	y, err := b.AllocBytes(1, tensor.Of(1), 7)
	if err != nil || y != &b.Out[1] || y.Len != 7 || y.DType != tensor.Bytes || a.Held() != 2 {
		t.Fatalf("output %v, %v", y, err)
	}
	// A rejected output keeps the existing one.
	_, err = b.Alloc(0, tensor.FP32, tensor.Of(-1))
	_, err2 := b.AllocBytes(1, tensor.Of(1), -1)
	if err == nil || err2 == nil || !x.Present() || !y.Present() || a.Held() != 2 {
		t.Errorf("errors %v and %v, %d outputs held", err, err2, a.Held())
	}
	// A new output replaces the existing one, also if it is a view of the same memory.
	if _, err = b.Alloc(1, tensor.Int8, tensor.Of(1)); err != nil {
		t.Fatal(err)
	}
	view := b.Out[0].Retain()
	view.Off, view.Len = 4, 4
	b.SetOutput(0, view)
	if diff := cmp.Diff([]int{2, 4, 1}, []int{a.Held(), b.Out[0].Len, b.Out[1].Len}); diff != "" {
		t.Errorf("held, and the outputs' sizes (-want +got):\n%s", diff)
	}
	b.SetOutput(0, tensor.Tensor{})
	b.Out[1].Release()
	if a.Held() != 0 {
		t.Errorf("%d outputs are held at the end", a.Held())
	}
}
