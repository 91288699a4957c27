package onnx

/*
#include "shim.h"
*/
import "C"

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/files"
)

// nativeStream is a stream that native code puts work into: a *cuda.Stream.
type nativeStream interface {
	tensor.Stream
	// Handle returns the CUstream.
	Handle() (unsafe.Pointer, error)
	// Used must follow the work, so that the next event is behind it.
	Used()
}

// gpuModel is what the instances of a model on GPUs need.
type gpuModel struct {
	set    settings   // without providers
	device []provider // the configured ones

	mu    sync.Mutex
	spare []*gpuSession // open, for instances to come; guarded by mu
}

// gpuSession is a session on a GPU, tied to the stream of its only instance.
type gpuSession struct {
	*session
	at     tensor.Place
	stream nativeStream // of the instance
	work   nativeStream // on which the session executes: stream, or its own when it has graphs
	pool   *pool        // nil: the session has an arena of the runtime
	graphs *graphs      // nil: runs are not captured
}

// deviceModel is a model with instances at GPUs.
type deviceModel struct{ *model }

var _ backends.DeviceModel = deviceModel{}

// Places implements backends.DeviceModel.
func (m deviceModel) Places() []tensor.Place { return m.places }

// deviceInstance is an instance at a GPU.
type deviceInstance struct{ *instance }

var _ backends.DeviceInstance = deviceInstance{}

// Stream implements backends.DeviceInstance.
func (x deviceInstance) Stream() tensor.Stream { return x.stream }

// loadGPU opens the first session at a GPU, which shows whether the model can run there.
func (m *model) loadGPU(ctx context.Context, at tensor.Place, set *settings, device []provider) error {
	if m.gpu == nil {
		m.gpu = &gpuModel{set: *set, device: device}
	}
	wanted := set.onDevice(int(at.ID), 0, device)
	if err := m.lib.missing(wanted.providers); err != nil {
		return err
	}
	s, err := m.openAt(ctx, at)
	if err == nil {
		m.gpu.spare = append(m.gpu.spare, s)
	}
	return err
}

// openAt opens a session at a GPU with a stream of its own.
func (m *model) openAt(ctx context.Context, at tensor.Place) (*gpuSession, error) {
	d := m.devices.Device(at)
	if d == nil {
		return nil, status.Reasonf(status.RuntimeMissing, "there is no %s: run the model with KIND_CPU", at)
	}
	if err := m.lib.preload(); err != nil {
		return nil, err
	}
	stream, err := newStream(d, m.name)
	if err != nil {
		return nil, err
	}
	s := &gpuSession{at: at, stream: stream, work: stream}
	if err := s.open(ctx, m, d); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// newStream opens a stream that native code can use.
func newStream(d tensor.Accelerator, name string) (nativeStream, error) {
	made, err := d.NewStream(name)
	if err != nil {
		return nil, err
	}
	s, ok := made.(nativeStream)
	if !ok {
		return nil, errors.Join(status.Errorf(status.Unsupported, "%s is no CUDA device, which the runtime needs", d.Place()), made.Close())
	}
	return s, nil
}

// open opens the session. An arena of the runtime's own serves where the configuration asks for one, and where graphs are captured,
// which memory of a stream's order would not outlive.
func (s *gpuSession) open(ctx context.Context, m *model, d tensor.Accelerator) error {
	plain := m.gpu.set.onDevice(int(s.at.ID), 0, m.gpu.device)
	if plain.option("enable_cuda_graph") == "1" || plain.option("trt_cuda_graph_enable") == "1" {
		work, err := newStream(d, m.name+" graphs")
		if err != nil {
			return err
		}
		s.work, s.graphs = work, newGraphs(d)
	}
	handle, err := s.work.Handle()
	if err != nil {
		return err
	}
	set := m.gpu.set.onDevice(int(s.at.ID), uintptr(handle), m.gpu.device)
	if set.option("gpu_mem_limit") == "" && set.option("arena_extend_strategy") == "" && s.graphs == nil {
		if s.pool, err = acquirePool(m.lib, d, s.work); err != nil {
			return err
		}
	}
	if s.pool != nil {
		set.entries = slices.Clone(set.entries)
		set.entry("session.use_env_allocators", "1")
	}
	if s.session, err = openSession(ctx, m.lib, m.path, &set); err != nil {
		return s.because(err)
	}
	s.work.Used() // the runtime has put the weights there
	return nil
}

// onHost reports for each bound input or output whether the session reads or makes it on the host. declared are those of the file.
func (s *gpuSession) onHost(output bool, declared []port, ports []bind.Bound[native]) ([]bool, error) {
	host, n := make([]byte, len(declared)+1), len(declared)
	if err := s.lib.check(C.tt_sides(s.lib.rt, s.s, flag(output), C.size_t(n), (*C.uchar)(unsafe.SliceData(host)))); err != nil {
		return nil, err
	}
	list := make([]bool, len(ports))
	for i := range ports {
		k := slices.IndexFunc(declared, func(p port) bool { return p.Name == ports[i].Name })
		list[i] = k >= 0 && host[k] != 0
	}
	return list, nil
}

// because adds to an error of the runtime why it came about: the device is lost, or its pool has no memory.
func (s *gpuSession) because(err error) error {
	if err == nil {
		return nil
	}
	s.work.Used()
	s.work.Record().Done() // asks the driver
	if _, lost := s.work.Handle(); lost != nil {
		return status.Errorf(status.CodeOf(lost), "%w: %w", lost, err)
	}
	if s.pool != nil {
		if full := s.pool.failure(); full != nil {
			return status.Errorf(status.CodeOf(full), "%w: %w", full, err)
		}
	}
	return err
}

// close waits for the session's work, unloads it, and closes the stream. It may be called twice.
func (s *gpuSession) close() error {
	lost := cmp.Or(s.stream.Record().Wait(), s.work.Record().Wait()) // weights are in use until then
	if s.session != nil {
		s.session.close()
	}
	if s.pool != nil {
		s.pool.leave(s.work)
		s.pool = nil
	}
	if s.graphs != nil {
		s.graphs.close()
		s.graphs = nil
		lost = cmp.Or(lost, s.work.Close())
	}
	return cmp.Or(lost, s.stream.Close())
}

// close unloads the sessions that no instance has taken.
func (g *gpuModel) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, s := range g.spare {
		errs = append(errs, s.close())
	}
	g.spare = nil
	return errors.Join(errs...)
}

// take returns an open session at a place, nil when there is none.
func (g *gpuModel) take(at tensor.Place) *gpuSession {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.spare, func(s *gpuSession) bool { return s.at == at })
	if i < 0 {
		return nil
	}
	s := g.spare[i]
	g.spare = slices.Delete(g.spare, i, i+1)
	return s
}

// newGPUInstance returns an instance with its own session and stream.
func (m *model) newGPUInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	s := m.gpu.take(at)
	if s == nil {
		var err error
		if s, err = m.openAt(ctx, at); err != nil {
			return nil, status.Prefixf(err, "model '%s': ", m.name)
		}
	}
	x, err := m.instanceOn(s)
	if err != nil {
		return nil, errors.Join(status.Prefixf(err, "model '%s': ", m.name), s.close())
	}
	return deviceInstance{x}, nil
}

// instanceOn returns an instance that owns an open session. After an error the session is still the caller's.
func (m *model) instanceOn(s *gpuSession) (*instance, error) {
	g := &gpuRun{gpuSession: s, memory: s.pool, pinned: m.devices.At(tensor.Place{Kind: tensor.Pinned})}
	var err error
	if g.hostIn, err = s.onHost(false, s.ins, m.In); err != nil {
		return nil, err
	}
	if g.hostOut, err = s.onHost(true, s.outs, m.Out); err != nil {
		return nil, err
	}
	x, err := newInstance(m, s.session)
	if err != nil {
		return nil, err
	}
	if err := x.bindRuns(int(s.at.ID)); err != nil {
		_ = x.Close()
		return nil, err
	}
	x.at, x.stream, x.gpu, x.buffers.Behind = s.at, s.stream, g, g.behind
	if s.graphs != nil {
		if err := x.capturable(); err != nil {
			x.gpu = nil // the session is still the caller's
			_ = x.Close()
			return nil, err
		}
	}
	return x, nil
}

// gpuRun is what an instance has on a GPU.
type gpuRun struct {
	*gpuSession
	memory  *pool // of outputs, nil for an arena of the runtime
	pinned  tensor.Allocator
	staged  []*tensor.Buffer // host copies of inputs of the current run
	hostIn  []bool           // inputs that the session reads on the host
	hostOut []bool           // outputs that it makes there
}

// behind makes the session's stream wait for the last uses of memory of the runtime, which may reuse it there after the release.
func (g *gpuRun) behind(order []tensor.Event) {
	for _, e := range order {
		if e.WaitOn(g.work) != nil { // it is closed
			_ = e.Wait() // a lost device uses nothing any more
		}
	}
}

// run executes a call.
func (g *gpuRun) run(call *C.tt_call) *C.OrtStatus {
	if g.graphs != nil {
		return g.graphs.run(call)
	}
	return C.tt_run_device(call)
}

// toHost returns a copy of an input that the session reads on the host. It is there after arrive.
func (g *gpuRun) toHost(t *tensor.Tensor) (unsafe.Pointer, error) {
	b, err := g.pinned.Alloc(t.Len)
	if err != nil {
		return nil, err
	}
	g.staged = append(g.staged, b)
	return b.Pointer(), g.stream.Copy(b, 0, t.Buf, t.Off, t.Len)
}

// arrive waits for the copies of toHost.
func (g *gpuRun) arrive() error {
	if len(g.staged) == 0 {
		return nil
	}
	return g.stream.Record().Wait()
}

// release releases the copies of toHost.
func (g *gpuRun) release() {
	for _, b := range g.staged {
		b.Release()
	}
	g.staged = g.staged[:0]
}

// toDevice sets output i of the batch to a copy of a tensor on the host, which moves.
func (g *gpuRun) toDevice(b *backends.Batch, i int, t tensor.Tensor) error {
	defer t.Release()
	to, err := b.Alloc(i, t.DType, t.Shape)
	if err != nil {
		return err
	}
	return g.stream.Copy(to.Buf, to.Off, t.Buf, t.Off, t.Len)
}

// copyOut sets output i of the batch to a copy of memory on the host, which the stream need not have read when copyOut returns.
func (g *gpuRun) copyOut(b *backends.Batch, i int, d tensor.DType, s tensor.Shape, data []byte) error {
	t, err := tensor.New(g.pinned, d, s)
	if err != nil {
		return err
	}
	copy(t.Bytes(), data)
	return g.toDevice(b, i, t)
}

// cudaLibraries are the libraries that the runtime's CUDA provider loads by name, in the order of their dependencies.
var cudaLibraries = []string{
	"libcudart.so.13", "libnvrtc.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10",
	"libcufft.so.12", "libcudnn.so.9",
}

// preload opens those CUDA libraries that lie beside the runtime's. The provider finds an open library by its name, so that no search
// path is needed. Libraries elsewhere are found as the system's loader finds them.
func (l *library) preload() error {
	l.libraries.Do(func() {
		for _, name := range cudaLibraries {
			path := filepath.Join(filepath.Dir(l.path), name)
			if !files.IsRegular(path) {
				continue
			}
			if _, err := dylib.Open(path, false); err != nil {
				l.unusable = status.Reasonf(status.RuntimeMissing, "unable to open the CUDA library: %w", err)
				return
			}
		}
	})
	return l.unusable
}
