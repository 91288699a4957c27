//go:build cgo

package tensorrt_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
)

const scale = `input x FP32 -1,4
	range x 0 1,4 2,4 8,4
	output y FP32 -1,4
	op affine y x 2 1
	memory 4096`

// TestExecute executes batches of several sizes, and checks that nothing is copied between host and device for it.
func TestExecute(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, k *kit) {
		t.Helper()
		m := k.model(t, scale, "")
		x := instance(t, m)
		for _, rows := range []int64{1, 3, 3, 8, 1} {
			in, want := make([]float32, 4*rows), make([]float32, 4*rows)
			for i := range in {
				in[i] = float32(i) - 3
				want[i] = 2*in[i] + 1
			}
			got, err := k.execute(t, m, x, fp32([]int64{rows, 4}, in...))
			if diff := cmp.Diff([]backendtest.Value{fp32([]int64{rows, 4}, want...)}, got); err != nil || diff != "" {
				t.Errorf("%d rows: %v %s", rows, err, diff)
			}
		}
	})
}

// TestSignature checks what the configuration gets from the plan.
func TestSignature(t *testing.T) {
	t.Parallel()
	k := newKit(t, 11, cuda.Options{}, nil)
	sig := func(plan, pbtxt string) string {
		t.Helper()
		m := k.model(t, plan, pbtxt)
		var text []string
		for _, p := range slices.Concat(m.Signature().Inputs, m.Signature().Outputs) {
			one := p.Name + " " + p.DType.ConfigName() + " " + p.Dims.String()
			if p.ShapeTensor {
				one += " shape"
			}
			text = append(text, one)
		}
		c, ok := m.(backends.ConfigCompleter)
		if ok && c.CompletedConfig().GetDynamicBatching() != nil {
			text = append(text, "dynamic")
		}
		return strings.Join(append(text, "max "+tensor.Of(int64(m.Signature().MaxBatch)).String()), "; ")
	}
	for name, tc := range map[string]struct{ plan, pbtxt, want string }{
		"completed":        {scale, "", "x TYPE_FP32 [4]; y TYPE_FP32 [4]; dynamic; max [8]"},
		"smaller batch":    {scale, "max_batch_size: 3", "x TYPE_FP32 [4]; y TYPE_FP32 [4]; dynamic; max [3]"},
		"own scheduler":    {scale, "max_batch_size: 3 dynamic_batching { max_queue_delay_microseconds: 5 }", "x TYPE_FP32 [4]; y TYPE_FP32 [4]; max [3]"},
		"whole shapes":     {scale, `input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }`, "x TYPE_FP32 [-1,4]; y TYPE_FP32 [-1,4]; max [0]"},
		"declared batched": {scale, `input { name: "x" data_type: TYPE_FP32 dims: 4 }`, "x TYPE_FP32 [4]; y TYPE_FP32 [4]; dynamic; max [8]"},
		"second profile": {
			scale + "\nrange x 1 1,4 16,4 32,4", `instance_group { kind: KIND_GPU gpus: 0 profile: [ "0", "1" ] }`,
			"x TYPE_FP32 [4]; y TYPE_FP32 [4]; dynamic; max [32]",
		},
		"fixed batch":   {"input x FP32 1,4\noutput y FP32 1,4\nop affine y x 1 0", "", "x TYPE_FP32 [4]; y TYPE_FP32 [4]; max [1]"},
		"shape tensors": {resize, "", "x TYPE_FP32 [4]; s TYPE_INT64 [1] shape; y TYPE_FP32 [-1]; t TYPE_INT64 [1] shape; dynamic; max [8]"},
	} {
		if got := sig(tc.plan, tc.pbtxt); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}

// TestTypes passes a tensor of each type through.
func TestTypes(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, k *kit) {
		t.Helper()
		for _, d := range []tensor.DType{tensor.FP32, tensor.FP16, tensor.BF16, tensor.Int8, tensor.Uint8, tensor.Int32, tensor.Int64, tensor.Bool} {
			name := strings.TrimPrefix(d.ConfigName(), "TYPE_")
			m := k.model(t, "input x "+name+" 5\noutput y "+name+" 5\nop copy y x", `input { name: "x" data_type: TYPE_`+name+` dims: 5 }`)
			data := make([]byte, 5*d.Size())
			for i := range data {
				data[i] = byte(i * 37)
			}
			v := backendtest.Value{DType: d, Dims: []int64{5}, Data: data}
			got, err := k.execute(t, m, instance(t, m), v)
			if diff := cmp.Diff([]backendtest.Value{v}, got); err != nil || diff != "" {
				t.Errorf("%s: %v %s", name, err, diff)
			}
		}
	})
}

const profiles = `input x FP32 -1,-1
	range x 0 1,1 1,4 2,8
	range x 1 1,8 4,16 8,32
	range x 2 1,2 8,4 16,8
	output y FP32 -1,-1
	op affine y x 1 1
	memory 512`

// TestProfiles checks which profile a batch takes, and the errors of batches that none allows.
func TestProfiles(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, k *kit) {
		t.Helper()
		for _, strategy := range []string{"STATIC", "ON_PROFILE_CHANGE"} {
			m := k.model(t, profiles, `parameters { key: "execution_context_allocation_strategy" value { string_value: "`+strategy+`" } }
				instance_group { kind: KIND_GPU gpus: 0 profile: [ "0", "1", "2" ] }`)
			all, last := instance(t, m, "0", "1", "2"), instance(t, m, "1")
			for _, dims := range [][]int64{{1, 1}, {8, 32}, {16, 4}, {2, 8}, {5, 8}} {
				v := fp32(dims, make([]float32, dims[0]*dims[1])...)
				if got, err := k.execute(t, m, all, v); err != nil || !slices.Equal(got[0].Dims, dims) {
					t.Errorf("%v: %v, %v", dims, got, err)
				}
			}
			for _, tc := range []struct {
				x    backends.Instance
				dims []int64
				want string
			}{
				{last, []int64{9, 8}, "model expected the shape of dimension 0 to be between 1 and 8 (profile 1) but received 9"},
				{last, []int64{1, 7}, "model expected the shape of dimension 1 to be between 8 and 32 (profile 1) but received 7"},
				{all, []int64{16, 32}, "none of the optimization profiles 0, 1, 2 supports the requested dimensions"},
			} {
				_, err := k.execute(t, m, tc.x, fp32(tc.dims, make([]float32, tc.dims[0]*tc.dims[1])...))
				if status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%v: %v, want %s", tc.dims, err, tc.want)
				}
			}
		}
	})
}

// TestOneProfile checks instances with the same profile: where the plan allows it, both execute.
func TestOneProfile(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, k *kit) {
		t.Helper()
		m := k.model(t, scale, "")
		a, b := instance(t, m), instance(t, m, "0", "0")
		for _, x := range []backends.Instance{a, b, a} {
			if got, err := k.execute(t, m, x, fp32([]int64{1, 4}, 1, 2, 3, 4)); err != nil || !cmp.Equal(got[0], fp32([]int64{1, 4}, 3, 5, 7, 9)) {
				t.Error(got, err)
			}
		}
		m = k.model(t, scale+"\nexclusive", "")
		instance(t, m)
		if x, err := newInstance(t.Context(), m, 0); err == nil || !strings.Contains(err.Error(), "Profile 0 has been chosen by another IExecutionContext") {
			t.Errorf("a second instance: %v, %v", x, err)
		}
		for profile, want := range map[string]string{
			"7": "Can not set the specified optimization profile 7[7] for m. Expected optimization profile index range 0-0", "fast": "unable to parse 'fast'", "-1": "index range 0-0",
		} {
			if _, err := newInstance(t.Context(), m, 0, profile); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), want) {
				t.Errorf("profile %s: %v", profile, err)
			}
		}
		if _, err := newInstance(t.Context(), m, 9); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "there is no GPU at device:9") {
			t.Errorf("GPU 9: %v", err)
		}
	})
}

// resize repeats x to the shape in s, of which the batch is the first value.
const resize = `input x FP32 -1,4
	range x 0 1,4 2,4 8,4
	input s INT64 2 shape
	range s 0 2 2 2
	values s 0 1,2 2,4 8,8
	output y FP32 -1,-1
	output t INT64 2 shape
	op resize y x s
	op values t s 10`

// TestShapeTensors checks shape tensors of a model that batches, and of one that does not.
func TestShapeTensors(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, k *kit) {
		t.Helper()
		m := k.model(t, resize, "")
		x := instance(t, m)
		in := fp32([]int64{2, 4}, 1, 2, 3, 4, 5, 6, 7, 8)
		got, err := k.execute(t, m, x, in, backendtest.Of(tensor.Int64, []int64{1}, int64(3)))
		want := []backendtest.Value{fp32([]int64{2, 3}, 1, 2, 3, 4, 5, 6), backendtest.Of(tensor.Int64, []int64{1}, int64(13))}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("batched: %v %s", err, diff)
		}
		_, err = k.execute(t, m, x, in, backendtest.Of(tensor.Int64, []int64{1}, int64(9)))
		if status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "input 's': request specifies invalid shape [2,9] in a batch of 2: model expected the shape value 1 to be between 2 and 8 (profile 0) but received 9") {
			t.Errorf("a value outside the profile: %v", err)
		}
		m = k.model(t, strings.NewReplacer("INT64", "INT32", "output t INT32 2 shape\n", "", "op values t s 10", "").Replace(resize),
			`input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] } input { name: "s" data_type: TYPE_INT32 dims: 2 is_shape_tensor: true }
			output { name: "y" data_type: TYPE_FP32 dims: [ -1, -1 ] }`)
		got, err = k.execute(t, m, instance(t, m), in, backendtest.Of(tensor.Int32, []int64{2}, int32(4), int32(2)))
		if diff := cmp.Diff([]backendtest.Value{fp32([]int64{4, 2}, 1, 2, 3, 4, 5, 6, 7, 8)}, got); err != nil || diff != "" {
			t.Errorf("not batched: %v %s", err, diff)
		}
	})
}

const nonzero = `input x FP32 -1
	range x 0 0 4 64
	output i INT64 -1
	output y FP32 -1
	op nonzero i x
	op affine y x 1 0`

// TestDataDependent checks an output whose size depends on the data.
func TestDataDependent(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, k *kit) {
		t.Helper()
		m := k.model(t, nonzero, `input { name: "x" data_type: TYPE_FP32 dims: -1 } output { name: "i" data_type: TYPE_INT64 dims: -1 }`)
		x := instance(t, m)
		for _, tc := range []struct {
			in   []float32
			want []int64
		}{{[]float32{0, 1, 0, 2}, []int64{1, 3}}, {[]float32{1}, []int64{0}}, {[]float32{0, 0}, nil}, {nil, nil}, {[]float32{3, 2, 1}, []int64{0, 1, 2}}} {
			got, err := k.execute(t, m, x, fp32([]int64{int64(len(tc.in))}, tc.in...))
			want := backendtest.Of(tensor.Int64, []int64{int64(len(tc.want))}, tc.want...)
			if diff := cmp.Diff([]backendtest.Value{want}, got); err != nil || diff != "" {
				t.Errorf("%v: %v %s", tc.in, err, diff)
			}
		}
	})
}
