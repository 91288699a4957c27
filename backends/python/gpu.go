package python

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"sync"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
)

const (
	// gpuGrain is the granularity of GPU regions: CUDA shares memory between processes in such blocks.
	gpuGrain = 2 << 20
	// gpuAlign is the alignment of tensors in a GPU region.
	gpuAlign = 256
	// keptGPURegions is the most GPU regions that a worker keeps for reuse.
	keptGPURegions = 4
	// maxGPURegion is the largest GPU region.
	maxGPURegion = 1 << 40
)

// gpuDevice is a device whose memory another process can map: a GPU of package cuda. Simulated devices have no such memory.
type gpuDevice interface {
	tensor.Accelerator
	AllocShared(n int) (*tensor.Buffer, cuda.Handle, error)
	UUID() string
	Library() string
}

// gpuAt returns the GPU at a place, or nil.
func (b *backend) gpuAt(at tensor.Place) gpuDevice {
	if b.places == nil || at.Kind != tensor.Device {
		return nil
	}
	d, _ := b.places.Device(at).(gpuDevice)
	return d
}

// gpuList describes the GPUs in INIT: the driver's library, and [number, UUID] of each GPU.
func (b *backend) gpuList() (library string, list [][2]any) {
	if b.places == nil {
		return "", nil
	}
	for _, at := range b.places.Devices() {
		if d := b.gpuAt(at); d != nil {
			library, list = d.Library(), append(list, [2]any{at.ID, d.UUID()})
		}
	}
	return library, list
}

// gpuRegion is GPU memory that the server allocates and a worker maps.
//
// It is free, or lent to the worker, for which gpuRegions holds a reference on buf. Tensors in the region hold further ones. It is free
// again when the last reference is released.
type gpuRegion struct {
	buf    tensor.Buffer
	id     uint32
	mem    *tensor.Buffer
	handle cuda.Handle
	of     *gpuRegions
	told   bool           // the worker knows it; guarded by gpuRegions.mu
	busy   []tensor.Event // the last uses before it became free; guarded by gpuRegions.mu
}

// Free implements tensor.Owner: it makes the region available again.
func (r *gpuRegion) Free(b *tensor.Buffer) { r.of.put(r, b.TakeOrder()) }

// idle reports whether the device has finished with the region.
func (r *gpuRegion) idle() bool {
	return !slices.ContainsFunc(r.busy, func(e tensor.Event) bool { return !e.Done() })
}

// gpuRegions are the GPU memory that one worker shares. It is safe for concurrent use.
type gpuRegions struct {
	w *worker

	mu       sync.Mutex
	lastID   uint32
	lent     map[uint32]*gpuRegion // guarded by mu
	free     []*gpuRegion          // the last one was used last; guarded by mu
	dropping map[uint32]*gpuRegion // until the worker has unmapped them; guarded by mu
	streams  []tensor.Stream       // of the side channel, one for each device; guarded by mu
	closed   bool                  // guarded by mu
}

func newGPURegions(w *worker) *gpuRegions {
	return &gpuRegions{w: w, lent: map[uint32]*gpuRegion{}, dropping: map[uint32]*gpuRegion{}}
}

// lend returns a region of at least n bytes at a device. The worker or the server may write it at once.
func (g *gpuRegions) lend(at tensor.Place, n int) (*gpuRegion, error) {
	d := g.w.m.b.gpuAt(at)
	if d == nil {
		return nil, status.Errorf(status.Unsupported, "model '%s': a python worker cannot share memory at %s, expected a GPU of the CUDA driver", g.w.m.sig.Model, at)
	}
	if n < 0 || n > maxGPURegion {
		return nil, status.Errorf(status.InvalidArg, "model '%s': unexpected %d bytes at %s", g.w.m.sig.Model, n, at)
	}
	r := g.reuse(at, n)
	if r == nil {
		var err error
		if r, err = g.allocate(d, n); err != nil {
			g.dropFree(0) // another model or the next request may need it
			return nil, status.Prefixf(err, "model '%s': no memory to share with its python worker: ", g.w.m.sig.Model)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		r.mem.Release()
		return nil, status.Reasonf(status.InstanceLost, "the python worker of model '%s' has exited", g.w.m.sig.Model)
	}
	r.busy = r.busy[:0]
	r.buf.Reset(r, at, r.mem.Pointer(), r.mem.Len())
	g.lent[r.id] = r
	return r, nil
}

// reuse returns the smallest free region that is large enough, and not much larger, or nil.
func (g *gpuRegions) reuse(at tensor.Place, n int) *gpuRegion {
	g.mu.Lock()
	defer g.mu.Unlock()
	best := -1
	for i, r := range g.free {
		if r.mem.Place() == at && r.mem.Len() >= n && r.mem.Len() <= 4*max(n, gpuGrain) && (best < 0 || r.mem.Len() < g.free[best].mem.Len()) && r.idle() {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	r := g.free[best]
	g.free = slices.Delete(g.free, best, best+1)
	return r
}

func (g *gpuRegions) allocate(d gpuDevice, n int) (*gpuRegion, error) {
	mem, handle, err := d.AllocShared((max(n, 1) + gpuGrain - 1) / gpuGrain * gpuGrain)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastID++
	return &gpuRegion{id: g.lastID, mem: mem, handle: handle, of: g}, nil
}

// find returns a lent region, or nil.
func (g *gpuRegions) find(id uint32) *gpuRegion {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lent[id]
}

// giveBack ends the worker's use of a region. Tensors in it keep it.
func (g *gpuRegions) giveBack(id uint32) {
	g.mu.Lock()
	r := g.lent[id]
	delete(g.lent, id)
	g.mu.Unlock()
	if r != nil {
		r.buf.Release()
	}
}

// put makes a region free. It drops the oldest one beyond keptGPURegions.
func (g *gpuRegions) put(r *gpuRegion, busy []tensor.Event) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		r.mem.Release()
		return
	}
	r.busy = append(r.busy[:0], busy...)
	g.free = append(g.free, r)
	g.mu.Unlock()
	g.dropFree(keptGPURegions)
}

// dropFree drops free regions until keep are left. Memory that the worker may have mapped is released once it is unmapped there: CUDA
// leaves it undefined otherwise.
func (g *gpuRegions) dropFree(keep int) {
	for {
		g.mu.Lock()
		if len(g.free) <= keep {
			g.mu.Unlock()
			return
		}
		r := g.free[0]
		g.free = slices.Delete(g.free, 0, 1)
		told := r.told
		if told {
			g.dropping[r.id] = r
		}
		g.mu.Unlock()
		if !told {
			r.mem.Release()
			continue
		}
		_ = g.w.side.link.send(kindGPUDrop, 0, r.id, newBody(nil)) // a worker that has exited maps nothing: close releases the memory
	}
}

// dropped handles GPUDROP of the worker: it has unmapped a region.
func (g *gpuRegions) dropped(id uint32) {
	g.mu.Lock()
	r := g.dropping[id]
	delete(g.dropping, id)
	g.mu.Unlock()
	if r != nil {
		r.mem.Release()
	}
}

// tell sends the worker the handle of a region before the first packet that uses it.
func (g *gpuRegions) tell(r *gpuRegion, l *link) error {
	g.mu.Lock()
	told := r.told
	r.told = true
	g.mu.Unlock()
	if told {
		return nil
	}
	b := binary.LittleEndian.AppendUint32(newBody(nil), r.id)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.mem.Place().ID)) //nolint:gosec // a device number is not negative
	b = binary.LittleEndian.AppendUint64(b, uint64(r.mem.Len()))
	return l.send(kindGPURegion, 0, 0, append(b, r.handle[:]...))
}

// take copies a tensor to offset off of the region, on a stream of its device.
func (r *gpuRegion) take(off int, t *tensor.Tensor, s tensor.Stream) error {
	if e := t.Buf.Ready(); e != nil {
		if err := e.WaitOn(s); err != nil {
			return err
		}
	}
	return s.Copy(&r.buf, off, t.Buf, t.Off, t.Len)
}

// onStream calls f with the side channel's stream at a device, and waits for the work that f puts into it.
func (g *gpuRegions) onStream(at tensor.Place, f func(tensor.Stream) error) error {
	g.mu.Lock()
	i := slices.IndexFunc(g.streams, func(s tensor.Stream) bool { return s.Place() == at })
	if i < 0 {
		d := g.w.m.b.places.Device(at)
		if d == nil || g.closed {
			g.mu.Unlock()
			return status.Reasonf(status.RuntimeMissing, "model '%s': no device at %s", g.w.m.sig.Model, at)
		}
		s, err := d.NewStream("calls of model '" + g.w.m.sig.Model + "'")
		if err != nil {
			g.mu.Unlock()
			return err
		}
		i, g.streams = len(g.streams), append(g.streams, s)
	}
	s := g.streams[i]
	err := f(s) // a stream is for one goroutine at a time
	e := s.Record()
	g.mu.Unlock()
	if waited := e.Wait(); err == nil {
		err = waited
	}
	return err
}

// close releases the regions after the worker has exited. Those with tensors are released with the last of them.
func (g *gpuRegions) close() {
	g.mu.Lock()
	g.closed = true
	free, lent, streams := g.free, g.lent, g.streams
	for _, r := range g.dropping {
		free = append(free, r)
	}
	g.free, g.lent, g.dropping, g.streams = nil, map[uint32]*gpuRegion{}, map[uint32]*gpuRegion{}, nil
	g.mu.Unlock()
	for _, s := range streams {
		if err := s.Close(); err != nil {
			g.w.m.log.Warn("closing a stream of a python worker failed", slog.String("error", err.Error()))
		}
	}
	for _, r := range free {
		r.mem.Release()
	}
	for _, r := range lent {
		r.buf.Release()
	}
}
