//go:build cgo

package tensorrt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/tensorrt"
	"github.com/tutti-server/tutti/backends/tensorrt/tensorrttest"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
)

// TestRefusedPlans checks the errors of plans and configurations that do not load.
func TestRefusedPlans(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, k *kit) {
		t.Helper()
		plan := func(ports string) string { return ports + "\noutput y FP32 -1\nop affine y x 1 0" }
		for name, tc := range map[string]struct {
			plan, pbtxt string
			code        status.Code
			want        string
		}{
			"FP8":         {plan("input x FP8 4"), "", status.Unsupported, "unsupported: input 'x' has TensorRT's data type FP8"},
			"INT4":        {plan("input x INT4 4"), "", status.Unsupported, "TensorRT's data type INT4"},
			"format":      {plan("input x FP16 4 format CHW32"), "", status.Unsupported, "unsupported: input 'x' uses a non-linear IO format (CHW32)"},
			"shape rank":  {plan("input x FP32 4\ninput s INT64 2,2 shape"), "", status.Unsupported, "shape tensor 's' can only have 0 or 1 dimensions, got [2,2]"},
			"shape type":  {plan("input x FP32 4\ninput s FP32 2 shape"), "", status.Unsupported, "shape tensor 's' has data type FP32, expected INT32 or INT64"},
			"no value":    {plan("input x FP32 4\ninput s INT64 0 shape"), "", status.Unsupported, "shape tensor 's' has shape [0], expected a fixed number of values"},
			"any value":   {plan("input x FP32 4\ninput s INT64 -1 shape"), "", status.Unsupported, "shape tensor 's' has shape [-1], expected a fixed number of values"},
			"host code":   {plan("input x FP32 4\nhostcode"), "", status.InvalidArg, "host code is not allowed"},
			"batch":       {scale, "max_batch_size: 9", status.InvalidArg, "autofill failed for model 'm': configuration specified max-batch 9 but TensorRT engine only supports max-batch 8"},
			"type":        {scale, `input { name: "x" data_type: TYPE_FP16 dims: 4 }`, status.InvalidArg, "expects datatype TYPE_FP16 for input 'x', model provides TYPE_FP32"},
			"dims":        {scale, `max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 5 }`, status.InvalidArg, "the model expects 2 dimensions (shape [-1,4]) but the model configuration specifies 2 dimensions"},
			"name":        {scale, `input { name: "z" data_type: TYPE_FP32 dims: 4 }`, status.InvalidArg, "unexpected inference input 'z', allowed inputs are: x"},
			"contradict":  {scale, `input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: [ -1, 4 ] }`, status.InvalidArg, "model tensor configurations are contradicting each other"},
			"marked":      {scale, `input { name: "x" data_type: TYPE_FP32 dims: 4 is_shape_tensor: true }`, status.InvalidArg, "input 'x' for model 'm' is incorrectly marked as a shape tensor"},
			"profile":     {scale, `instance_group { kind: KIND_GPU gpus: 0 profile: "1" }`, status.InvalidArg, "Can not set the specified optimization profile 1[1] for m. Expected optimization profile index range 0-0"},
			"CPU":         {scale, `instance_group { kind: KIND_CPU }`, status.InvalidArg, "unable to load model 'm', TensorRT backend supports only GPU device"},
			"no such GPU": {scale, `instance_group { kind: KIND_GPU gpus: 7 }`, status.InvalidArg, "there is no GPU at device:7"},
			"strategy":    {scale, `parameters { key: "execution_context_allocation_strategy" value { string_value: "FAST" } }`, status.InvalidArg, "Supported values are 'STATIC' and 'ON_PROFILE_CHANGE'"},
		} {
			_, err := k.Load(t.Context(), k.settings(t, tc.plan, tc.pbtxt))
			if status.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %s %v, want %s", name, status.CodeOf(err), err, tc.want)
			}
		}
	})
}

// TestStrict checks that nothing is completed when auto-completion is off.
func TestStrict(t *testing.T) {
	t.Parallel()
	k := newKit(t, 11, cuda.Options{}, nil)
	s := k.settings(t, resize, `max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 4 } input { name: "s" data_type: TYPE_INT64 dims: 1 }
		output { name: "y" data_type: TYPE_FP32 dims: -1 }`)
	s.Strict = true
	if _, err := k.Load(t.Context(), s); err == nil || !strings.Contains(err.Error(), "input 's' for model 'm' is a shape tensor but the model configuration doesn't mark it as a shape tensor.") {
		t.Errorf("not marked: %v", err)
	}
	s.Config.Input[1].IsShapeTensor = true
	m, err := k.Load(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := m.(backends.ConfigCompleter); !ok || c.CompletedConfig() != nil {
		t.Error("the configuration was completed")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	alias := k.settings(t, "input x FP32 4\noutput y FP32 4 alias x\nop copy y x", "")
	if _, err := k.Load(t.Context(), alias); status.CodeOf(err) != status.Unsupported || !strings.Contains(err.Error(), "output 'y' shares the memory of input 'x'") {
		t.Errorf("alias: %v", err)
	}
}

// TestRefusedFiles checks the errors of files that are no plans, and that TensorRT's text reaches the log.
func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, k *kit) {
		t.Helper()
		for name, tc := range map[string]struct{ text, want string }{
			"empty":         {"", "expected a TensorRT plan at"},
			"other file":    {"ONNX", "magicTagRead == kMAGIC_TAG failed."},
			"truncated":     {tensorrttest.Versions[k.major] + scale, "the plan is truncated"},
			"other version": {"TUTTI-PLAN 8.6\nend\n", "Version tag does not match. Note: Current Version: "},
		} {
			s := k.settings(t, scale, "")
			path := filepath.Join(s.Dir, "model.plan")
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(tc.text, "\t", "")), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := k.Load(t.Context(), s)
			if status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, want %s", name, err, tc.want)
			}
			if name != "empty" && !strings.Contains(k.log.String(), tc.want) {
				t.Errorf("%s: the log has not %q", name, tc.want)
			}
		}
		s := k.settings(t, scale, `default_model_filename: "other.plan"`)
		if _, err := k.Load(t.Context(), s); status.CodeOf(err) != status.NotFound || !strings.Contains(err.Error(), "other.plan") {
			t.Errorf("missing: %v", err)
		}
		k.model(t, scale, "")
		if text := k.log.String(); !strings.Contains(text, "level=WARN msg=TensorRT message=\"Using an engine plan file") || !strings.Contains(text, "level=DEBUG msg=TensorRT message=\"Loaded engine\"") {
			t.Errorf("the log lacks TensorRT's messages:\n%s", text)
		}
	})
}

// TestVersionCompatible loads a plan with host code where the setting allows it.
func TestVersionCompatible(t *testing.T) {
	t.Parallel()
	k := newKit(t, 10, cuda.Options{}, map[string]string{"version-compatible": "true", "execution-policy": "DEVICE_BLOCKING", "coalesce-request-input": "true"})
	m := k.model(t, scale+"\nhostcode", "")
	if got, err := k.execute(t, m, instance(t, m), fp32([]int64{1, 4}, 0, 1, 2, 3)); err != nil || !cmp.Equal(got[0], fp32([]int64{1, 4}, 1, 3, 5, 7)) {
		t.Error(got, err)
	}
}

// TestPlugins checks the settings of plugin libraries.
func TestPlugins(t *testing.T) {
	t.Parallel()
	library := tensorrttest.Library(t, 11)
	err := openError(t, map[string]string{"library-path": library, "plugins": library + ";/none/plugin.so"})
	if status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "unable to open the TensorRT plugin '/none/plugin.so'") {
		t.Errorf("a missing plugin: %v", err)
	}
	if err := openError(t, map[string]string{"library-path": library, "plugins": library}); err != nil {
		t.Errorf("a plugin: %v", err)
	}
}

// TestBadBatches checks batches that the server would not make, and that the instance executes the next one.
func TestBadBatches(t *testing.T) {
	t.Parallel()
	k := newKit(t, 10, cuda.Options{}, nil)
	m := k.model(t, scale, "")
	x := instance(t, m)
	for name, tc := range map[string]struct {
		in   backendtest.Value
		want string
	}{
		"absent": {backendtest.Value{}, "input 'x': the input is missing"},
		"type":   {backendtest.Of(tensor.Int32, []int64{1, 4}, int32(1), 2, 3, 4), "expected a FP32 tensor of shape [-1,4], got a INT32 tensor"},
		"rank":   {fp32([]int64{4}, 1, 2, 3, 4), "model expected 2 dimensions but received 1 dimensions"},
		"dims":   {fp32([]int64{1, 3}, 1, 2, 3), "model expected the shape of dimension 1 to be between 4 and 4"},
		"short":  {fp32([]int64{1, 4}, 1, 2), "and 8 bytes"},
		"batch":  {fp32([]int64{9, 4}, make([]float32, 36)...), "in a batch of 9: model expected the shape of dimension 0 to be between 1 and 8 (profile 0) but received 9"},
	} {
		if _, err := k.execute(t, m, x, tc.in); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
		if _, err := k.execute(t, m, x, fp32([]int64{1, 4}, 1, 2, 3, 4)); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

// TestUnaligned checks that an input at an address that TensorRT does not take is copied on the device.
func TestUnaligned(t *testing.T) {
	t.Parallel()
	k := newKit(t, 11, cuda.Options{}, nil)
	m := k.model(t, scale, "")
	x := instance(t, m)
	b := k.batch(t, m, x, fp32([]int64{2, 4}, 1, 2, 3, 4, 5, 6, 7, 8))
	defer free(b)
	b.In[0].Off, b.In[0].Len, b.In[0].Shape, b.Rows = 16, 16, tensor.Of(1, 4), 1
	if err := x.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if got := k.read(t, b.Stream, &b.Out[0]); !cmp.Equal(got, fp32([]int64{1, 4}, 11, 13, 15, 17)) {
		t.Error(got)
	}
}

// TestNoMemory checks that an allocation that fails fails its batch, or the load, and nothing else.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	k := newKit(t, 10, cuda.Options{Limit: map[int]int64{0: 8000}}, nil)
	m := k.model(t, scale, "")
	x := instance(t, m) // takes 4096 bytes
	if _, err := newInstance(t.Context(), m, 0); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "model 'm': no memory for executions with TensorRT: cannot allocate 4096 bytes at device:0") {
		t.Errorf("a second instance: %v", err)
	}
	good := fp32([]int64{8, 4}, make([]float32, 32)...)
	hold, err := backends.StreamOf(x).Alloc(3600)
	if err != nil {
		t.Fatal(err)
	}
	b := k.batch(t, m, x, good) // takes 128 bytes
	rest, err := backends.StreamOf(x).Alloc(8000 - 4096 - 3600 - 128)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Execute(t.Context(), b); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "output 'y': cannot allocate 128 bytes") {
		t.Errorf("an output: %v", err)
	}
	free(b)
	rest.Release()
	hold.Release()
	if _, err := k.execute(t, m, x, good); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	m = k.model(t, nonzero, "max_batch_size: 0 "+`input { name: "x" data_type: TYPE_FP32 dims: -1 }`)
	y := instance(t, m)
	b = k.batch(t, m, y, fp32([]int64{4}, 1, 1, 1, 1))
	rest, err = backends.StreamOf(y).Alloc(8000 - 4096 - 16 - 16)
	if err != nil {
		t.Fatal(err)
	}
	if err := y.Execute(t.Context(), b); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "output 'i': cannot allocate 32 bytes") {
		t.Errorf("an output that depends on the data: %v", err)
	}
	free(b)
	rest.Release()
	if got, err := k.execute(t, m, y, fp32([]int64{4}, 1, 1, 1, 1)); err != nil || len(got) != 2 {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

// TestNoMemoryForProfile checks that a batch whose profile needs more memory than there is fails, and that the next one, with the profile
// before, does not execute in the memory that was released for it.
func TestNoMemoryForProfile(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, k *kit) {
		t.Helper()
		m := k.model(t, profiles, `parameters { key: "execution_context_allocation_strategy" value { string_value: "ON_PROFILE_CHANGE" } }
			instance_group { kind: KIND_GPU gpus: 0 profile: [ "0", "1" ] }`)
		x := instance(t, m, "0", "1") // profile 0 needs 512 bytes, profile 1 needs 1024
		small := fp32([]int64{1, 1}, 3)
		if got, err := k.execute(t, m, x, small); err != nil || !cmp.Equal(got[0], fp32([]int64{1, 1}, 4)) {
			t.Fatal(got, err)
		}
		large := fp32([]int64{4, 16}, make([]float32, 64)...)
		s := backends.StreamOf(x)
		d, ok := k.places.Device(s.Place()).(*cuda.Device)
		if !ok {
			t.Fatal("the device is not of the CUDA driver")
		}
		b := k.batch(t, m, x, large)
		rest, err := s.Alloc(8000 - int(d.InUse()) - 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Execute(t.Context(), b); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "no memory for executions with TensorRT: cannot allocate 1024 bytes") {
			t.Errorf("a profile without memory: %v", err)
		}
		free(b)
		for range 2 {
			if got, err := k.execute(t, m, x, small); err != nil || !cmp.Equal(got[0], fp32([]int64{1, 1}, 4)) {
				t.Errorf("the profile before: %v, %v", got, err)
			}
		}
		rest.Release()
		if _, err := k.execute(t, m, x, large); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}, cuda.Options{Limit: map[int]int64{0: 8000}})
}

// TestSizes checks the sizes of shapes that TensorRT reports.
func TestSizes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		d    tensor.DType
		dims []int64
		want int
	}{{tensor.FP32, []int64{3, 4}, 48}, {tensor.FP32, []int64{1 << 62}, -1}, {tensor.Int64, []int64{1 << 31, 1 << 31}, -1}, {tensor.FP16, []int64{-1}, -1}, {tensor.Int8, []int64{0, 5}, 0}} {
		n, err := tensorrt.SizeOf(tc.d, tensor.Of(tc.dims...))
		if err != nil {
			n = -1
		}
		if n != tc.want {
			t.Errorf("%s %v: %d, want %d", tc.d, tc.dims, n, tc.want)
		}
	}
}

// TestClose checks that outputs outlive their instance and model, and that a closed instance refuses batches.
func TestClose(t *testing.T) {
	t.Parallel()
	k := newKit(t, 11, cuda.Options{}, nil)
	m, err := k.Load(t.Context(), k.settings(t, scale, ""))
	if err != nil {
		t.Fatal(err)
	}
	x, err := newInstance(t.Context(), m, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := k.batch(t, m, x, fp32([]int64{1, 4}, 1, 2, 3, 4))
	if err := x.Execute(t.Context(), b); err != nil { // the driver executes it later
		t.Fatal(err)
	}
	end := b.Stream.Record()
	b.In[0].Buf.UsedUntil(end)
	b.Out[0].Buf.UsedUntil(end)
	for range 2 {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := x.Execute(t.Context(), b); status.CodeOf(err) != status.Unavailable {
		t.Errorf("after Close: %v", err)
	}
	if _, err := newInstance(t.Context(), m, 0); status.CodeOf(err) != status.Unavailable {
		t.Errorf("an instance of a closed model: %v", err)
	}
	device, ok := k.places.Device(tensor.Place{Kind: tensor.Device}).(*cuda.Device)
	if !ok {
		t.Fatal("no device")
	}
	s, err := device.NewStream("reader")
	if err != nil {
		t.Fatal(err)
	}
	if got := k.read(t, s, &b.Out[0]); !cmp.Equal(got, fp32([]int64{1, 4}, 3, 5, 7, 9)) {
		t.Error(got)
	}
	tensor.ReleaseAll(b.In)
	tensor.ReleaseAll(b.Out)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestAllocations checks that an execution takes nothing of Go's heap in the steady state.
func TestAllocations(t *testing.T) { // counts the allocations of the process
	k := newKit(t, 11, cuda.Options{}, nil)
	m := k.model(t, scale, "")
	x := instance(t, m)
	b := k.batch(t, m, x, fp32([]int64{2, 4}, 1, 2, 3, 4, 5, 6, 7, 8))
	defer free(b)
	run := func() {
		if err := x.Execute(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		end := b.Stream.Record()
		b.Out[0].Buf.UsedUntil(end)
		if err := end.Wait(); err != nil {
			t.Fatal(err)
		}
		tensor.ReleaseAll(b.Out)
	}
	for range 150 {
		run()
	}
	// Events are allocated 128 at a time.
	if n := testing.AllocsPerRun(200, run); n > 0 {
		t.Errorf("%v allocations per execution, expected 0", n)
	}
}
