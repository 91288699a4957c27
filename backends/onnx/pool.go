package onnx

/*
#include "shim.h"
*/
import "C"

import (
	"sync"

	"github.com/tutti-server/tutti/core/tensor"
)

// pool is the runtime's allocator of one GPU: memory of the server's pool, so that one account holds the weights, the intermediate
// tensors and the outputs of every session there. An allocation for work on a session's stream is ordered with that stream, and so is
// its release; neither blocks.
//
// The runtime has one allocator for each device of an environment. All sessions at the device share it.
type pool struct {
	id     int
	lib    *library // held while a session or memory is
	device tensor.Accelerator
	c      *C.tt_pool

	mu      sync.Mutex
	streams map[uintptr]nativeStream // of the sessions, by CUstream; guarded by mu
	held    map[uintptr]pooledMemory // guarded by mu
	failed  error                    // of the last allocation that failed; guarded by mu
}

// pooledMemory is memory that the runtime holds, and the stream that it is for, nil for any.
type pooledMemory struct {
	buf    *tensor.Buffer
	stream nativeStream
}

// pools are those of the process, because an environment is. A pool keeps its place until nothing of it is held.
var pools struct {
	mu   sync.Mutex
	list []*pool // by id, nil where one is free; guarded by mu
}

// acquirePool registers a session's stream with the pool of its device, which it makes if there is none. It returns nil when the
// runtime's allocator there belongs to another owner: the session then uses an arena of the runtime.
func acquirePool(l *library, d tensor.Accelerator, s nativeStream) (*pool, error) {
	handle, err := s.Handle()
	if err != nil {
		return nil, err
	}
	pools.mu.Lock()
	defer pools.mu.Unlock()
	free := -1
	for i, p := range pools.list {
		switch {
		case p == nil:
			free = i
		case p.lib.rt.env == l.rt.env && p.device.Place() == d.Place():
			return p.join(d, uintptr(handle), s)
		}
	}
	if free < 0 {
		free = len(pools.list)
		pools.list = append(pools.list, nil)
	}
	made := new(*C.tt_pool)
	if err := l.check(C.tt_pool_new(l.rt, C.int(free), C.int(d.Place().ID), made)); err != nil {
		return nil, err
	}
	p := &pool{id: free, lib: l.retain(), device: d, c: *made, streams: map[uintptr]nativeStream{}, held: map[uintptr]pooledMemory{}}
	pools.list[free] = p
	return p.join(d, uintptr(handle), s)
}

// join adds a stream. Callers hold pools.mu.
func (p *pool) join(d tensor.Accelerator, handle uintptr, s nativeStream) (*pool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.device != d || p.c == nil {
		return nil, nil //nolint:nilnil // documented
	}
	p.streams[handle] = s
	return p, nil
}

// leave removes the stream of a closed session. All its work must be done.
func (p *pool) leave(s nativeStream) {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	p.mu.Lock()
	for h, known := range p.streams {
		if known == s {
			delete(p.streams, h)
		}
	}
	for at, m := range p.held { // outputs that outlive the session: its stream has no more work on them
		if m.stream == s {
			p.held[at] = pooledMemory{buf: m.buf}
		}
	}
	p.mu.Unlock()
	p.endLocked()
}

// end ends the pool when it has neither sessions nor memory. It is called after each release of a session or of an output, not within
// a call of the runtime.
func (p *pool) end() {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	p.endLocked()
}

// endLocked is end for callers that hold pools.mu.
func (p *pool) endLocked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.streams) > 0 || len(p.held) > 0 || p.c == nil {
		return
	}
	C.tt_pool_stop(p.c)
	C.tt_pool_free(p.c)
	p.c = nil
	pools.list[p.id] = nil
	p.lib.release()
}

// failure returns the error of the last allocation that failed, and forgets it.
func (p *pool) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.failed
	p.failed = nil
	return err
}

// alloc returns the address of n bytes, 0 when there is no memory.
func (p *pool) alloc(n int, handle uintptr) uintptr {
	p.mu.Lock()
	s := p.streams[handle]
	p.mu.Unlock()
	var from tensor.Allocator = p.device
	if s != nil {
		from = s
	}
	b, err := allocNative(from, n)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failed = err
		return 0
	}
	at := uintptr(b.Pointer())
	p.held[at] = pooledMemory{b, s}
	return at
}

// allocNative returns memory that the runtime works in: the bound of --cuda-memory-pool-byte-size, which is for tensors, does not count it.
func allocNative(from tensor.Allocator, n int) (*tensor.Buffer, error) {
	if m, ok := from.(interface {
		AllocNative(n int) (*tensor.Buffer, error)
	}); ok {
		return m.AllocNative(n)
	}
	return from.Alloc(n)
}

// free releases memory behind the work of its stream, or of all streams when it was for any.
func (p *pool) free(at uintptr) {
	p.mu.Lock()
	m, ok := p.held[at]
	delete(p.held, at)
	if ok && m.stream != nil {
		usedBy(m.stream, m.buf)
	} else if ok {
		for _, s := range p.streams {
			usedBy(s, m.buf)
		}
	}
	p.mu.Unlock()
	if ok {
		m.buf.Release()
	}
}

// usedBy notes that the runtime may have put work on b into s.
func usedBy(s nativeStream, b *tensor.Buffer) {
	s.Used()
	b.UsedUntil(s.Record())
}

func poolOf(id C.int) *pool {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	return pools.list[id]
}

// mostBytes is more than any device has.
const mostBytes = 1 << 46

//export tuttiOnnxAlloc
func tuttiOnnxAlloc(id C.int, n C.size_t, stream C.uintptr_t) C.uintptr_t {
	if n > mostBytes {
		return 0
	}
	return C.uintptr_t(poolOf(id).alloc(int(n), uintptr(stream)))
}

//export tuttiOnnxFree
func tuttiOnnxFree(id C.int, at C.uintptr_t) { poolOf(id).free(uintptr(at)) }
