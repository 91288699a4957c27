package infer_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		want int64
		err  string
	}{
		{"", 0, ""},
		{"3", 3, ""},
		{"9223372036854775807", 9223372036854775807, ""},
		{"0", 0, "failed to get model version from specified version string '0', version should be an integral value > 0"},
		{"-1", 0, "failed to get model version from specified version string '-1', version should be an integral value > 0"},
		{"1x", 0, "failed to get model version from specified version string '1x' (details: stol), version should be an integral value > 0"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			t.Parallel()
			got, err := infer.ParseVersion(tt.in)
			if got != tt.want || errText(err) != tt.err {
				t.Errorf("got %d, %v; want %d, %q", got, err, tt.want, tt.err)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestCheckNames checks duplicate names below and above the length from which names are hashed.
func TestCheckNames(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 32, 33, 100} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			r := infer.NewRequest()
			defer r.Release()
			for i := range n {
				s := strconv.Itoa(i)
				r.Inputs = append(r.Inputs, infer.Named{Name: s})
				r.Outputs = append(r.Outputs, s)
				r.Params = append(r.Params, infer.Param{Key: s, Int: int64(i)})
			}
			r.Params = append(r.Params, infer.Param{Key: "0", Int: -1})
			if err := r.CheckNames(); err != nil {
				t.Error(err)
			}
			if len(r.Params) != n || r.Params[0].Int != 0 {
				t.Errorf("%d parameters left, the first is %v", len(r.Params), r.Params[0])
			}
			r.Outputs[n-1] = "0"
			if got := errText(r.CheckNames()); got != "[request id: <id_unknown>] output '0' already exists in request" {
				t.Error(got)
			}
			r.Inputs[n-1].Name = "0"
			if got := errText(r.CheckNames()); got != "[request id: <id_unknown>] input '0' already exists in request" {
				t.Error(got)
			}
		})
	}
}

// TestCheckInputsFromTheLast checks that the error names the last of two invalid inputs, as in Triton.
func TestCheckInputsFromTheLast(t *testing.T) {
	t.Parallel()
	alloc := tensor.NewPool()
	r := infer.NewRequest()
	defer r.Release()
	r.ID, r.Model = "7", "m"
	for _, name := range []string{"A", "B", "C"} {
		v, err := tensor.NewBytes(alloc, tensor.Of(2), 4)
		if err != nil {
			t.Fatal(err)
		}
		v.DType = tensor.FP32
		if name == "C" {
			v.DType = tensor.Int16
		}
		r.Inputs = append(r.Inputs, infer.Named{Name: name, Tensor: v})
	}
	if got, want := errText(r.CheckInputs()), "[request id: 7] input byte size mismatch for input 'B' for model 'm'. Expected 8, got 4"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCheckInput(t *testing.T) {
	t.Parallel()
	const prefix = "[request id: 9] "
	tests := []struct {
		name  string
		dtype tensor.DType
		shape []int64
		data  string
		want  string
	}{
		{"fits", tensor.Int16, []int64{2, 1}, "abcd", ""},
		{"no elements", tensor.Bytes, []int64{0}, "", ""},
		{"strings", tensor.Bytes, []int64{1}, "\x01\x00\x00\x00a", ""},
		{"size", tensor.Int16, []int64{2}, "abc", prefix + "input byte size mismatch for input 'X' for model 'm'. Expected 4, got 3"},
		{"type", tensor.Invalid, []int64{2}, "abc", "invalid datatype for input X"},
		{"dimension", tensor.Int8, []int64{-2}, "", "invalid shape for input 'X': shape [-2] contains one or more invalid dimensions"},
		{"elements", tensor.Bytes, []int64{1 << 62, 4}, "", "invalid shape for input 'X': shape [4611686018427387904,4] causes total element count to exceed maximum size of 9223372036854775807"},
		{"bytes", tensor.FP64, []int64{1 << 60}, "", "byte size overflow for input 'X': shape [1152921504606846976] of FP64"},
		{"missing string", tensor.Bytes, []int64{2}, "\x00\x00\x00\x00", prefix + "expected 2 string elements for inference input 'X' for model 'm', got 1"},
		{"extra string", tensor.Bytes, []int64{0}, "\x00\x00\x00\x00", prefix + "unexpected number of string elements 1 for inference input 'X' for model 'm', expecting 0"},
		{"cut length", tensor.Bytes, []int64{1}, "\x00", prefix + "incomplete string length indicator for inference input 'X' for model 'm', expecting 4 bytes but only 1 bytes available"},
		{"cut string", tensor.Bytes, []int64{1}, "\xff\xff\xff\xffa", prefix + "incomplete string data for inference input 'X' for model 'm', expecting string of length 4294967295 but only 1 bytes available"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := infer.NewRequest()
			defer r.Release()
			r.ID, r.Model = "9", "m"
			b, err := tensortest.NewChecked(t, nil).Alloc(len(tt.data))
			if err != nil {
				t.Fatal(err)
			}
			copy(b.Bytes(), tt.data)
			r.Inputs = append(r.Inputs, infer.Named{Name: "X", Tensor: tensor.Tensor{
				DType: tt.dtype, Shape: tensor.Of(tt.shape...), Buf: b, Len: len(tt.data),
			}})
			if diff := cmp.Diff(tt.want, errText(r.CheckInput(&r.Inputs[0]))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReservedParam(t *testing.T) {
	t.Parallel()
	if !infer.ReservedParam("triton_x") || infer.ReservedParam("x_triton_") || infer.ReservedParam(strings.ToUpper("triton_")) {
		t.Error("reserved parameters begin with triton_")
	}
}

// TestCheckInputsOncePerRequest checks that a request is checked once, and again when it is reused after its
// release.
func TestCheckInputsOncePerRequest(t *testing.T) {
	t.Parallel()
	r := infer.NewRequest()
	if err := r.CheckInputs(); err != nil {
		t.Fatal(err)
	}
	r.Inputs = append(r.Inputs, infer.Named{Name: "X"}) // no type
	if err := r.CheckInputs(); err != nil {
		t.Errorf("the second check: %v, want none", err)
	}
	r.Release()
	for range rounds {
		r := infer.NewRequest()
		r.Inputs = append(r.Inputs, infer.Named{Name: "X"})
		if err := r.CheckInputs(); err == nil {
			t.Error("a new request counts as checked")
		}
		r.Release()
	}
}
