package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// SetDevices sets the devices whose memory clients may register. It must be called before RegisterCUDA, and Close before the devices
// are closed. why is the reason that there are none, for the error of RegisterCUDA; it may be nil.
func (r *Registry) SetDevices(list []tensor.Accelerator, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices, r.noDevice = list, why
}

// RegisterCUDA registers size bytes from the start of the device memory that the IPC handle names, for example 64 bytes at device 0.
// The name must be new. The error is InvalidArg for a number that is no device, a handle that is invalid or of a process that has
// ended, and memory of less than size bytes; Unavailable for a device that is lost or has no room.
func (r *Registry) RegisterCUDA(name string, handle []byte, device int64, size uint64) error {
	if err := r.Check(); err != nil {
		return err
	}
	d, err := r.importer(name, device)
	if err != nil {
		return err
	}
	memory, err := d.Import(handle)
	if err != nil {
		if status.CodeOf(err) != status.InvalidArg {
			return status.Prefixf(err, "failed to register shared memory region '%s': ", name)
		}
		return status.Prefixf(err, "failed to register shared memory region '%s': invalid args: ", name)
	}
	if size == 0 || size > uint64(memory.Len()) {
		n := memory.Len()
		memory.Release()
		return status.Errorf(status.InvalidArg,
			"failed to register shared memory region '%s': invalid args: expected a byte_size of 1 to %d, the size of the memory at %s, found %d",
			name, n, d.Place(), size)
	}
	r.mu.Lock()
	if err = r.admit(name); err == nil { // it may have been registered meanwhile
		r.regions[name] = &region{Region: Region{Kind: CUDA, Name: name, Size: size, Device: device}, memory: memory}
	}
	r.mu.Unlock()
	if err != nil {
		memory.Release()
	}
	return err
}

// importer returns the device of a registration. It fails when the region cannot be registered whatever the handle is.
func (r *Registry) importer(name string, device int64) (tensor.Importer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(name); err != nil {
		return nil, err
	}
	if len(r.devices) == 0 {
		why := ""
		if r.noDevice != nil {
			why = ": " + r.noDevice.Error()
		}
		return nil, status.Errorf(status.InvalidArg, "failed to register shared memory region '%s': invalid args, GPUs not supported%s", name, why)
	}
	for _, d := range r.devices {
		if int64(d.Place().ID) != device {
			continue
		}
		if i, ok := d.(tensor.Importer); ok {
			return i, nil
		}
		return nil, status.Errorf(status.InvalidArg, "failed to register shared memory region '%s': invalid args: %s cannot map memory of other processes",
			name, d.Place())
	}
	return nil, status.Errorf(status.InvalidArg,
		"failed to register shared memory region '%s': invalid args: there is no device_id %d, expected the number of one of the %d GPUs that the server uses",
		name, device, len(r.devices))
}

// Close unregisters all regions and waits until their memory is unmapped. It fails when a request still uses one. The registry may be
// used afterwards.
func (r *Registry) Close() error {
	var list []string
	for _, kind := range []Kind{System, CUDA} {
		used, ended := r.remove(kind, "")
		for _, g := range ended {
			g.memory.Release()
		}
		list = append(list, used...)
	}
	r.unmapping.Wait()
	if list != nil {
		return status.Errorf(status.Internal, "requests still use the shared memory regions %q", list)
	}
	return nil
}

// deviceWindow is the part of a Window that CUDA regions need: the window's memory as a buffer.
type deviceWindow struct {
	buf   tensor.Buffer
	holds atomic.Int32   // the window and its buffer; 0 without a buffer
	freed atomic.Bool    // the buffer is released, and uses are its events
	uses  []tensor.Event // set before freed
}

// Device reports whether the window is device memory. Read and Write must not be called then.
func (w *Window) Device() bool { return w.region.memory != nil }

// Buffer returns the window's memory as a device buffer, with one reference that moves to the caller. It may be called once, for
// windows with Device only. Its content may change whenever the client writes the region: the buffer has no content to keep for later
// requests. It may be released after Close; the device's memory stays mapped until then.
//
// hot: no allocation in steady state.
func (w *Window) Buffer() *tensor.Buffer {
	from := w.region.memory.Retain()
	w.device.holds.Store(2)
	w.device.buf.Reset((*windowMemory)(w), from.Place(), unsafe.Add(from.Pointer(), w.off), int(w.size))
	return &w.device.buf
}

// windowMemory owns the buffer of a window.
type windowMemory Window

// Free lets the region's memory be unmapped after the last uses, as far as this window is concerned.
func (m *windowMemory) Free(b *tensor.Buffer) {
	w := (*Window)(m)
	r, g := w.registry, w.region
	w.device.uses = b.TakeOrder()
	for _, e := range w.device.uses {
		if !e.Done() {
			g.memory.UsedUntil(e)
		}
	}
	w.device.freed.Store(true)
	r.mu.Lock()
	if g.gone {
		r.unmapping.Go(g.memory.Release) // it waits for the device, which Free must not
	} else {
		g.memory.Release() // the registry has another reference
	}
	r.mu.Unlock()
	w.drop()
}

// settle waits for the last uses of a released buffer: once the window is closed the client may write its memory.
func (d *deviceWindow) settle() {
	if !d.freed.Load() {
		return
	}
	for _, e := range d.uses {
		_ = e.Wait() // a lost device uses nothing any more, and says so elsewhere
	}
}

// drop counts the window, or its buffer, out. It reports whether neither is left.
func (d *deviceWindow) drop() bool {
	if d.holds.Load() == 0 {
		return true
	}
	if d.holds.Add(-1) > 0 {
		return false
	}
	d.freed.Store(false)
	d.uses = nil
	return true
}
