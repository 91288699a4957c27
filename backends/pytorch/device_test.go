//go:build cgo

package pytorch_test

import (
	"archive/zip"
	"bytes"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/pytorch"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

// machine is PyTorch on GPUs of the checking driver, whose CUDA library is the stand-in.
type machine struct {
	devices []*cuda.Device
	backend backends.Backend
	lost    bool // a test lost a device, which its driver reports when it is closed
}

// newMachine opens the backend on n GPUs. At its end the driver must have found no fault, and every buffer and stream must be gone.
func newMachine(tb testing.TB, n int, config map[string]string) *machine {
	tb.Helper()
	lib := pytorch.GPULibraryPath(tb)
	driver, err := cuda.Open(cudatest.Library(tb))
	if err != nil {
		tb.Fatal(err)
	}
	m := &machine{}
	if m.devices, err = driver.Devices(cuda.Options{Only: []int{0, 1}[:n]}); err != nil {
		tb.Fatal(err)
	}
	places := tensor.NewPlaces(tensor.NewPool())
	for _, d := range m.devices {
		if err := places.Add(d); err != nil {
			tb.Fatal(err)
		}
	}
	values := map[string]string{"library-path": lib}
	maps.Copy(values, config)
	m.backend, err = pytorch.NewFactory().New(backends.Options{Log: slog.New(slog.DiscardHandler), Config: values, Places: places})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.backend.Close(); err != nil {
			tb.Error(err)
		}
		if err := driver.Close(); (err != nil) != m.lost {
			tb.Error(err)
		}
		cudatest.Check(tb)
	})
	return m
}

const onGPU = ` instance_group { kind: KIND_GPU gpus: 0 }`

func gpuPlace(i int) tensor.Place { return tensor.Place{Kind: tensor.Device, ID: int16(i)} }

// load loads a model, which the test closes.
func (m *machine) load(tb testing.TB, s backends.Settings) backends.Model {
	tb.Helper()
	model, err := m.backend.Load(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = model.Close() })
	return model
}

// instance makes an instance at a GPU, which the test closes.
func instanceAt(tb testing.TB, model backends.Model, gpu int) backends.DeviceInstance {
	tb.Helper()
	x, err := model.NewInstance(tb.Context(), gpuPlace(gpu))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := x.Close(); err != nil {
			tb.Error(err)
		}
	})
	return x.(backends.DeviceInstance)
}

// deviceBatch puts host values on the instance's GPU: as the server does it, in the instance's stream.
func deviceBatch(tb testing.TB, x backends.DeviceInstance, model backends.Model, in []backendtest.Value) *backends.Batch {
	tb.Helper()
	s, host := x.Stream(), tensor.NewPool()
	b := &backends.Batch{
		Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, len(model.Signature().Outputs)),
		Stream: s, Allocator: s, HostAllocator: tensortest.NewChecked(tb, nil),
	}
	for _, v := range in {
		if v.DType == tensor.Invalid {
			b.In = append(b.In, tensor.Tensor{})
			continue
		}
		t := v.Tensor(tb, host)
		if t.DType != tensor.Bytes {
			t = upload(tb, s, t)
		}
		b.In = append(b.In, t)
		if model.Signature().MaxBatch > 0 {
			b.Rows = int(v.Dims[0])
		}
	}
	return b
}

// upload moves a host tensor to the stream's device.
func upload(tb testing.TB, s tensor.Stream, t tensor.Tensor) tensor.Tensor {
	tb.Helper()
	buf, err := s.Alloc(t.Len)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Copy(buf, 0, t.Buf, t.Off, t.Len); err != nil {
		tb.Fatal(err)
	}
	buf.SetReady(s.Record())
	moved := tensor.Tensor{DType: t.DType, Shape: t.Shape, Buf: buf, Len: t.Len}
	t.Release()
	return moved
}

// run executes a batch, and marks its end as the server does.
func runBatch(tb testing.TB, x backends.DeviceInstance, b *backends.Batch) error {
	tb.Helper()
	err := x.Execute(tb.Context(), b)
	end := x.Stream().Record()
	for i := range b.Out {
		if t := &b.Out[i]; t.Present() && t.Buf.Place().Kind == tensor.Device && t.Buf.Ready() == nil {
			t.Buf.SetReady(end)
		}
	}
	for i := range b.In {
		if t := &b.In[i]; t.Present() && t.Buf.Place().Kind == tensor.Device {
			t.Buf.UsedUntil(end)
		}
	}
	return err
}

// download returns the content of a tensor, read by a stream of its own, and releases it.
func download(tb testing.TB, d *cuda.Device, t *tensor.Tensor) backendtest.Value {
	tb.Helper()
	defer t.Release()
	if t.Buf.Place().Kind != tensor.Device {
		return backendtest.ValueOf(t)
	}
	s, err := d.NewStream("reader")
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	host, err := tensor.NewPool().Alloc(t.Len)
	if err != nil {
		tb.Fatal(err)
	}
	if e := t.Buf.Ready(); e != nil {
		if err := e.WaitOn(s); err != nil {
			tb.Fatal(err)
		}
	}
	if err := s.Copy(host, 0, t.Buf, t.Off, t.Len); err != nil {
		tb.Fatal(err)
	}
	if err := s.Record().Wait(); err != nil {
		tb.Fatal(err)
	}
	got := tensor.Tensor{DType: t.DType, Shape: t.Shape, Buf: host, Len: t.Len}
	defer got.Release()
	return backendtest.ValueOf(&got)
}

// executeAt executes host values at an instance's GPU.
func (m *machine) executeAt(tb testing.TB, x backends.DeviceInstance, model backends.Model, in ...backendtest.Value) ([]backendtest.Value, error) {
	tb.Helper()
	b := deviceBatch(tb, x, model, in)
	defer tensor.ReleaseAll(b.In)
	defer tensor.ReleaseAll(b.Out)
	if err := runBatch(tb, x, b); err != nil {
		return nil, err
	}
	var out []backendtest.Value
	for i := range b.Out {
		if t := &b.Out[i]; t.DType != tensor.Bytes && t.Buf.Place() != x.Stream().Place() {
			tb.Errorf("output %d is on %s, expected %s", i, t.Buf.Place(), x.Stream().Place())
		}
		out = append(out, download(tb, m.devices[x.Stream().Place().ID], &b.Out[i]))
	}
	return out, nil
}

// TestExecuteAtGPU runs the models of TestExecute at a GPU, and at two.
func TestExecuteAtGPU(t *testing.T) {
	t.Parallel()
	for name, tc := range executeCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, 2, nil)
			model := m.load(t, settings(t, tc.model, tc.pbtxt+` instance_group { kind: KIND_GPU gpus: [ 0, 1 ] }`))
			for gpu := range 2 {
				x := instanceAt(t, model, gpu)
				for range 3 { // PyTorch profiles the first runs and optimizes the next
					got, err := m.executeAt(t, x, model, tc.in...)
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(tc.want, got); diff != "" {
						t.Errorf("outputs on GPU %d (-want +got):\n%s", gpu, diff)
					}
				}
			}
		})
	}
}

// TestNoGPULibrary checks the error of KIND_GPU with PyTorch for the CPU.
func TestNoGPULibrary(t *testing.T) {
	t.Parallel()
	cpu := pytorch.LibraryPath(t)
	m := newMachine(t, 1, map[string]string{"library-path": cpu})
	_, err := m.backend.Load(t.Context(), settings(t, "embed.pt", embed+onGPU))
	want := "'" + filepath.Join(filepath.Dir(cpu), "libtorch_cpu.so") + "' is PyTorch for the CPU, expected 'libtorch_cuda.so' beside it for KIND_GPU: run 'tutti runtime fetch pytorch-gpu'"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Load = %v, want %q", err, want)
	}
}

// TestAuto checks what KIND_AUTO means with PyTorch for GPUs and for the CPU.
func TestAuto(t *testing.T) {
	t.Parallel()
	auto := pytorch.NewFactory().Auto
	for lib, want := range map[string]config.Auto{pytorch.GPULibraryPath(t): config.AutoGPU, pytorch.LibraryPath(t): config.AutoCPU, "/none": config.AutoCPU} {
		if got := auto(map[string]string{"library-path": lib}); got != want {
			t.Errorf("KIND_AUTO with %s means %d, want %d", lib, got, want)
		}
	}
	if got := auto(map[string]string{"library-path": pytorch.GPULibraryPath(t), "device": "cpu"}); got != config.AutoCPU {
		t.Errorf("KIND_AUTO with the setting device means %d, want %d", got, config.AutoCPU)
	}
}

// TestPackageOfOtherDevice checks that a compiled package is refused where it was not compiled for. The package has only what says so.
func TestPackageOfOtherDevice(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1, nil)
	for compiled, tc := range map[string]struct{ group, want string }{
		"cuda": {` instance_group { kind: KIND_CPU }`, "the package was compiled for cuda, expected one for cpu: compile it on that device, or change the kind of the instance group"},
		"cpu":  {onGPU, "the package was compiled for cpu, expected one for cuda"},
	} {
		var file bytes.Buffer
		z := zip.NewWriter(&file)
		for name, text := range map[string]string{
			"model/data/aotinductor/model/a.wrapper.so": "", "model/data/aotinductor/model/a.wrapper_metadata.json": `{"AOTI_DEVICE_KEY": "` + compiled + `"}`,
			"model/version": "3", "model/archive_format": "pt2", "model/byteorder": "little",
		} {
			w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
			if err == nil {
				_, err = w.Write([]byte(text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		s := settingsOf(t, "model.pt2", file.Bytes(), one+tc.group+` default_model_filename: "model.pt2"`)
		if _, err := m.backend.Load(t.Context(), s); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Load of a package for %s = %v, want %q", compiled, err, tc.want)
		}
	}
}
