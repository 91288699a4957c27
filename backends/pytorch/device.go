//go:build cgo

package pytorch

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// gpuLibrary is the file name of PyTorch's CUDA operators, in the folder of libtorch_cpu.so. Nothing links against it: it registers
// them when it is opened.
const gpuLibrary = "libtorch_cuda.so"

// driverDevice is a device of the CUDA driver, as package cuda has it.
type driverDevice interface {
	tensor.Accelerator
	Trim() error
	Lost() error
	OnPressure(relieve func()) (remove func())
}

// driverStream is a stream of such a device.
type driverStream interface {
	tensor.Stream
	Handle() (unsafe.Pointer, error)
	Used()
}

// gpu is PyTorch at one device of the server.
type gpu struct {
	lib     *library
	name    string // PyTorch's. For example, "cuda:0"
	device  driverDevice
	outputs *outputs
}

// gpus has the devices where models run.
type gpus struct {
	mu     sync.Mutex
	opened bool     // whether PyTorch's CUDA operators are registered, guarded by mu
	list   []*gpu   // guarded by mu
	remove []func() // of the callbacks of the devices, guarded by mu
}

// at returns the device at a place, and prepares PyTorch for it on the first call.
func (b *backend) at(place tensor.Place) (*gpu, error) {
	b.gpus.mu.Lock()
	defer b.gpus.mu.Unlock()
	if i := slices.IndexFunc(b.gpus.list, func(g *gpu) bool { return g.device.Place() == place }); i >= 0 {
		return b.gpus.list[i], nil
	}
	if !b.gpus.opened {
		if err := b.lib.openGPU(b.fraction); err != nil {
			return nil, err
		}
		b.gpus.opened = true
	}
	var device tensor.Accelerator
	if b.places != nil {
		device = b.places.Device(place)
	}
	d, ok := device.(driverDevice)
	if !ok {
		return nil, status.Errorf(status.Unsupported, "%s is not a GPU of the CUDA driver, expected one of those that 'tutti doctor' lists", place)
	}
	g := &gpu{lib: b.lib, name: "cuda:" + strconv.Itoa(int(place.ID)), device: d}
	if n := b.lib.devices(g.name); int(place.ID) >= n {
		return nil, status.Reasonf(status.RuntimeMissing, "PyTorch finds %d GPUs, expected %s among them: check the driver's version and CUDA_VISIBLE_DEVICES", n, place)
	}
	g.outputs = &outputs{at: place, release: b.lib.free}
	b.gpus.list = append(b.gpus.list, g)
	b.gpus.remove = append(b.gpus.remove, d.OnPressure(g.relieve))
	return g, nil
}

// close ends the callbacks of the devices.
func (l *gpus) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, remove := range l.remove {
		remove()
	}
	l.remove = nil
}

// relieve gives PyTorch's unused memory back to the device, for allocations of the server.
func (g *gpu) relieve() {
	g.outputs.collect()
	g.lib.empty(g.name)
}

// openGPU registers PyTorch's CUDA operators. fraction bounds PyTorch's part of each GPU's memory; 0 is no bound.
func (l *library) openGPU(fraction float64) error {
	if !hasGPU(l.path) {
		return status.Errorf(status.Unsupported, "'%s' is PyTorch for the CPU, expected '%s' beside it for KIND_GPU: run 'tutti runtime fetch pytorch-gpu', or use KIND_CPU",
			l.path, gpuLibrary)
	}
	if _, err := dylib.Open(filepath.Join(filepath.Dir(l.path), gpuLibrary), true); err != nil {
		return status.Reasonf(status.RuntimeMissing, "unable to open PyTorch for GPUs: %w", err)
	}
	if fraction == 0 {
		return nil
	}
	return l.setMemory("per_process_memory_fraction:" + strconv.FormatFloat(fraction, 'f', -1, 64))
}

// hasGPU reports whether the CUDA operators are in the folder of a library.
func hasGPU(path string) bool { return files.IsRegular(filepath.Join(filepath.Dir(path), gpuLibrary)) }

// placesItself reports whether a configuration leaves the device to the model: KIND_MODEL.
func placesItself(cfg *modelconfig.ModelConfig) bool {
	return slices.ContainsFunc(cfg.GetInstanceGroup(), func(g *modelconfig.ModelInstanceGroup) bool {
		return g.GetKind() == modelconfig.ModelInstanceGroup_KIND_MODEL
	})
}

// placedModel is a model with instances at GPUs.
type placedModel struct{ *model }

var (
	_ backends.DeviceModel      = placedModel{}
	_ backends.ReadinessChecker = placedModel{}
)

// Places implements backends.DeviceModel.
func (m placedModel) Places() (all []tensor.Place) {
	for i := range m.files {
		all = append(all, m.files[i].at)
	}
	return all
}

// Ready implements backends.ReadinessChecker: a model is not ready once one of its GPUs is lost.
func (m placedModel) Ready() error {
	for i := range m.files {
		if g := m.files[i].gpu; g != nil {
			if err := g.device.Lost(); err != nil {
				return status.Prefixf(err, "model '%s': ", m.Sig.Model)
			}
		}
	}
	return nil
}

// placed returns a placedModel if there is an instance at a GPU, or else the model.
func (m *model) placed() backends.Model {
	if slices.ContainsFunc(m.files, func(f *file) bool { return f.gpu != nil }) {
		return placedModel{m}
	}
	return m
}

// placedInstance is an instance at a GPU.
type placedInstance struct{ *instance }

var _ backends.DeviceInstance = placedInstance{}

// Stream implements backends.DeviceInstance.
func (x placedInstance) Stream() tensor.Stream { return x.stream }

// Close waits for the instance's work and closes it. Outputs of earlier executions stay valid. That the device is lost is no error
// here: the executions have reported it.
func (x placedInstance) Close() error {
	if x.call == nil {
		return nil
	}
	err := x.stream.Close()
	if x.f.gpu.device.Lost() != nil {
		err = nil
	}
	x.f.gpu.outputs.leave()
	return errors.Join(err, x.instance.Close())
}

// atDevice makes the runs of an instance use a stream of its own. It takes the instance over.
func (x *instance) atDevice() (backends.Instance, error) {
	g := x.f.gpu
	s, err := g.device.NewStream(x.m.Sig.Model)
	if err == nil {
		err = x.attach(s)
	}
	if err != nil {
		if s != nil {
			_ = s.Close()
		}
		_ = x.Close()
		return nil, status.Prefixf(err, "model '%s': ", x.m.Sig.Model)
	}
	g.outputs.join()
	return placedInstance{x}, nil
}

// runAtDevice puts a run into the stream. When PyTorch has no memory, the server's pool gives its unused memory back, and the model
// runs once more, unless the first attempt may have changed its state.
//
// hot: no allocation in the steady state.
func (x *instance) runAtDevice() error {
	f := x.f
	f.gpu.outputs.collect()
	if f.state {
		f.order.Lock()
		defer f.order.Unlock()
		if f.last != nil {
			if err := f.last.WaitOn(x.stream); err != nil {
				return x.m.Errorf(status.Unavailable, "%w", err)
			}
		}
		defer func() { f.last = x.stream.Record() }()
	}
	result := x.runOnce()
	if result == noMemory {
		f.gpu.outputs.collect()
		if err := f.gpu.device.Trim(); err == nil && f.repeatable() {
			result = x.runOnce()
		}
	}
	if result == succeeded {
		return nil
	}
	err := x.runError(result)
	if _ = x.stream.Record().Wait(); f.gpu.device.Lost() != nil { // the device's own calls notice that it is lost
		return x.m.Errorf(status.Unavailable, "%w: %w", f.gpu.device.Lost(), err)
	}
	return err
}

// runOnce puts one run into the stream.
func (x *instance) runOnce() int {
	result := x.callRun()
	x.stream.Used()
	return result
}

// passThrough returns the tensor of an output that is memory of input k: all of it, or a part.
func (x *instance) passThrough(b *backends.Batch, i, k int, shape tensor.Shape) tensor.Tensor {
	v, in := &x.out[i], &x.in[k]
	t := b.In[k].Retain()
	t.Off += int(uintptr(v.data) - uintptr(in.data))
	t.Len, t.Shape, t.DType = int(v.bytes), shape, x.m.Out[i].DType
	return t
}
