package cuda

/*
#include "driver.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
)

// Device is one GPU. It is safe for concurrent use.
//
// Lifecycle:
//
//  1. Driver.Devices returns it. It has no context and costs no memory.
//  2. The first Alloc or NewStream makes its context and its pool.
//  3. Driver.Close ends it, once every buffer is released and every stream is closed.
type Device struct {
	driver  *Driver
	ordinal int
	handle  C.cu_device
	info    Info
	limit   int64
	tensors int64 // Options.Tensors
	keep    uint64
	noPeers bool
	spill   spill

	start   sync.Mutex // held while the context is made
	running atomic.Bool
	ctx     C.cu_context
	pool    C.cu_mempool
	now     *Stream // allocations that every stream may use at once
	frees   *Stream // releases, behind the last uses

	load    func(*Device) (compute.Kernels, error) // Options.Kernels
	loading sync.Mutex                             // held while the kernels are loaded
	kernels compute.Kernels                        // guarded by loading

	lost   atomic.Pointer[error]
	tell   []func(error) // OnLost, guarded by mu
	since  atomic.Int64  // when the context was made, in nanoseconds of Unix time
	inUse  atomic.Int64
	native native // the part of inUse that native runtimes have

	closed  atomic.Bool
	mu      sync.Mutex
	streams int              // open ones of callers, guarded by mu
	spare   []*tensor.Buffer // released, for reuse; guarded by mu
	idle    []C.cu_event     // without timing, guarded by mu
	spans   []*span          // released, with their events; guarded by mu
	clock   clock

	pressure pressure
}

var _ tensor.Accelerator = (*Device)(nil)

// Info describes a GPU.
type Info struct {
	Name, UUID string
	// Memory is its size in bytes.
	Memory int64
	// Major and Minor are its compute capability. For example, 9 and 0.
	Major, Minor int
}

func (d *Driver) describe(i int, o Options) (*Device, error) {
	v := &Device{driver: d, ordinal: i, limit: o.Limit[i], tensors: o.Tensors[i], keep: math.MaxUint64, noPeers: o.NoPeers, load: o.Kernels}
	v.native.device = v
	if keep, ok := o.Keep[i]; ok {
		v.keep = uint64(keep)
	}
	var name [256]C.char
	var id C.cu_uuid
	var memory C.size_t
	var major, minor, pools C.int
	if r := C.tutti_cuda_device(d.table, C.int(i), &v.handle, &name[0], &id, &memory, &major, &minor, &pools); r != 0 {
		return nil, d.errorOf(r, "cuDeviceGet", i)
	}
	if pools == 0 {
		return nil, status.Errorf(status.Unsupported, "GPU %d (%s) has no memory pools; expected a GPU and a driver that support cuMemAllocAsync", i, C.GoString(&name[0]))
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&id)), 16)
	v.info = Info{
		Name: C.GoString(&name[0]), UUID: fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]),
		Memory: int64(memory), Major: int(major), Minor: int(minor),
	}
	return v, nil
}

// Place returns device:N.
func (v *Device) Place() tensor.Place { return tensor.Place{Kind: tensor.Device, ID: int16(v.ordinal)} }

// Capability returns the device's compute capability. For example, 9 and 0.
func (v *Device) Capability() (major, minor int) { return v.info.Major, v.info.Minor }

// UUID returns the identity of the GPU, which does not depend on CUDA_VISIBLE_DEVICES. For example,
// GPU-8fd0d7ab-4a0b-7a3e-5ac0-2e6d3f1b9c55.
func (v *Device) UUID() string { return v.info.UUID }

// Library returns the path of the driver's library, as it was given to Open, for another process that maps memory of the device.
func (v *Device) Library() string { return v.driver.path }

// Info describes the device.
func (v *Device) Info() Info { return v.info }

// InUse returns the bytes of all held buffers.
func (v *Device) InUse() int64 { return v.inUse.Load() }

// Context returns the primary context as a pointer for native runtimes, which is made when it was not. It belongs to the device.
func (v *Device) Context() (unsafe.Pointer, error) {
	if err := v.run(); err != nil {
		return nil, err
	}
	return unsafe.Pointer(v.ctx), nil
}

// Started returns when the device was first used, the zero time if it was not.
func (v *Device) Started() time.Time {
	if n := v.since.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// Entry returns what native runtimes need to work at the device from any thread: the driver's function cuCtxSetCurrent, and the
// context to pass to it, which is made when it was not.
func (v *Device) Entry() (setCurrent, context unsafe.Pointer, err error) {
	context, err = v.Context()
	return unsafe.Pointer(v.driver.table.context_set), context, err
}

// Lost returns the error that made the device unusable, or nil. Only a restart of the process brings it back.
func (v *Device) Lost() error {
	if e := v.lost.Load(); e != nil {
		return *e
	}
	return nil
}

// check returns the error of a call, and remembers one that makes the device unusable.
//
// hot: one comparison when the call succeeded.
func (v *Device) check(r C.cu_result, call string) error {
	if r == 0 {
		return nil
	}
	err := v.driver.errorOf(r, call, v.ordinal)
	if !slices.Contains(lasting, int(r)) {
		return err
	}
	err = status.Reasonf(status.InstanceLost, "%s is lost, restart the server to use it again: %w", v.Place(), tensor.LostError{Err: err})
	if v.lost.CompareAndSwap(nil, &err) {
		go v.tellLost(err)
	}
	return err
}

func (v *Device) tellLost(err error) {
	v.mu.Lock()
	list := v.tell
	v.tell = nil
	v.mu.Unlock()
	for _, f := range list {
		f(err)
	}
}

// OnLost adds a function that is called once, in another goroutine, when the device is lost; at once if it is.
func (v *Device) OnLost(f func(error)) {
	v.mu.Lock()
	v.tell = append(v.tell, f)
	v.mu.Unlock()
	if err := v.Lost(); err != nil {
		go v.tellLost(err)
	}
}

// run makes the context and the pool, once. A failure is not remembered: memory may be free later.
//
// hot: two loads once the device runs.
func (v *Device) run() error {
	if v.running.Load() {
		return v.Lost()
	}
	v.start.Lock()
	defer v.start.Unlock()
	if v.running.Load() {
		return v.Lost()
	}
	if v.closed.Load() {
		return status.Reasonf(status.InstanceLost, "%s is closed", v.Place())
	}
	t := v.driver.table
	if v.ctx == nil {
		v.since.Store(time.Now().UnixNano())
		if err := v.check(C.tutti_cuda_retain(t, v.handle, &v.ctx), "cuDevicePrimaryCtxRetain"); err != nil { //nolint:gocritic // cgo's check of the address
			v.ctx = nil
			return err
		}
	}
	if v.pool == nil {
		if err := v.check(C.tutti_cuda_pool(t, v.ctx, C.int(v.ordinal), C.uint64_t(v.keep), &v.pool), "cuMemPoolCreate"); err != nil { //nolint:gocritic // cgo's check of the address
			v.pool = nil
			return err
		}
	}
	var err error
	if v.now == nil {
		if v.now, err = v.open("allocations"); err != nil {
			return err
		}
	}
	if v.frees == nil {
		if v.frees, err = v.open("releases"); err != nil {
			return err
		}
	}
	v.running.Store(true)
	return v.peers()
}

// peers lets this device and the others that run read each other's pools, where the machine can. Copies between the others go through
// the host, by the driver.
func (v *Device) peers() error {
	if v.noPeers {
		return nil
	}
	t := v.driver.table
	for _, o := range v.driver.started() {
		if o == v {
			continue
		}
		var yes C.int
		if err := v.check(C.tutti_cuda_can_access_peer(t, &yes, v.handle, o.handle), "cuDeviceCanAccessPeer"); err != nil {
			return err
		}
		if yes == 0 {
			continue
		}
		for _, pair := range [][2]*Device{{v, o}, {o, v}} {
			a := C.cu_access{location: C.cu_location{_type: 1, id: C.int(pair[1].ordinal)}, flags: 3}
			if err := v.check(C.tutti_cuda_pool_access(t, pair[0].pool, &a, 1), "cuMemPoolSetAccess"); err != nil {
				return err
			}
		}
	}
	return nil
}

// NewStream returns a stream of the lowest priority; see Open.
func (v *Device) NewStream(name string) (tensor.Stream, error) { return v.Open(name, 0) }

// Open returns a stream with its own type. Streams of a lower priority number go first; 0 is the lowest priority, and numbers beyond
// the device's range are its ends. The driver's stream, and the device's context, are made on first use. The caller must close it.
func (v *Device) Open(name string, priority int) (*Stream, error) {
	if err := v.Lost(); err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.streams++
	v.mu.Unlock()
	return &Stream{device: v, name: name, priority: priority, counted: true}, nil
}

// open returns a started stream of the device's own, for callers that hold v.start.
func (v *Device) open(name string) (*Stream, error) {
	s := &Stream{device: v, name: name}
	if err := s.create(); err != nil {
		return nil, err // the next use of the device tries again
	}
	return s, nil
}

// create makes the driver's stream.
func (s *Stream) create() error {
	v := s.device
	if err := v.check(C.tutti_cuda_stream(v.driver.table, v.ctx, C.int(s.priority), &s.handle), "cuStreamCreateWithPriority"); err != nil { //nolint:gocritic // cgo's check of the address
		return err
	}
	s.started = true
	return nil
}

func (v *Device) close() error {
	v.start.Lock()
	defer v.start.Unlock()
	v.mu.Lock()
	streams := v.streams
	v.mu.Unlock()
	if v.closed.Swap(true) || v.ctx == nil {
		return nil
	}
	var errs []error
	if streams > 0 {
		errs = append(errs, fmt.Errorf("%s: %d streams are still open", v.Place(), streams))
	}
	for _, s := range []*Stream{v.now, v.frees} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if n := v.inUse.Load(); n > 0 {
		errs = append(errs, fmt.Errorf("%s: buffers of %d bytes together are still held", v.Place(), n))
	}
	t := v.driver.table
	v.mu.Lock()
	errs = append(errs, v.destroyEvents())
	v.mu.Unlock()
	if v.pool != nil && streams == 0 && v.inUse.Load() == 0 {
		errs = append(errs, v.check(C.tutti_cuda_pool_destroy(t, v.pool), "cuMemPoolDestroy"))
	}
	v.running.Store(false)
	errs = append(errs, v.check(C.tutti_cuda_context_release(t, v.handle), "cuDevicePrimaryCtxRelease"))
	if v.Lost() != nil {
		return v.Lost() // every call above failed with it
	}
	return errors.Join(errs...)
}
