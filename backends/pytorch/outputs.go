//go:build cgo

package pytorch

import (
	"sync"
	"unsafe"

	"github.com/tutti-server/tutti/core/tensor"
)

// outputs wraps PyTorch's memory at one device as tensors. It is safe for concurrent use.
//
// PyTorch's allocator gives freed memory to later work of the stream that made it, and orders it with no other stream. A freed
// tensor whose last use is in another stream therefore stays here until that use is complete, which is looked at before each
// execution. No stream waits for another one because of a release.
type outputs struct {
	release func(handle unsafe.Pointer)
	at      tensor.Place

	mu        sync.Mutex
	free      *output // guarded by mu
	waiting   *output // released, and used by work of other streams; guarded by mu
	instances int     // guarded by mu
}

// output is a tensor.Buffer over memory of PyTorch.
type output struct {
	buf    tensor.Buffer
	handle unsafe.Pointer
	stream tensor.Stream // that made it
	of     *outputs
	next   *output
	uses   []tensor.Event // of waiting ones: those in other streams
}

var _ tensor.Owner = (*output)(nil)

// wrap returns a tensor over n bytes at data, which work of the stream fills. The handle moves.
//
// hot: it reuses the buffers of released tensors, so it does not allocate in the steady state.
func (o *outputs) wrap(handle, data unsafe.Pointer, n int, s tensor.Stream, d tensor.DType, shape tensor.Shape) tensor.Tensor {
	o.mu.Lock()
	v := o.free
	if v != nil {
		o.free, v.next = v.next, nil
	}
	o.mu.Unlock()
	if v == nil {
		v = &output{of: o}
	}
	v.handle, v.stream = handle, s
	v.buf.Reset(v, o.at, data, n)
	return tensor.Tensor{DType: d, Shape: shape, Buf: &v.buf, Len: n}
}

// Free implements tensor.Owner.
func (v *output) Free(b *tensor.Buffer) {
	o := v.of
	v.uses = v.others(b.TakeOrder())
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(v.uses) == 0:
		o.recycle(v)
	case o.instances == 0: // no execution looks again
		go o.awaitUses(v)
	default:
		v.next, o.waiting = o.waiting, v
	}
}

// others returns the events that are not complete and not of the stream that made the output.
func (v *output) others(order []tensor.Event) []tensor.Event {
	now := v.stream.Record()
	uses := v.uses[:0]
	for _, e := range order {
		if f, ok := now.(interface{ Follows(o tensor.Event) bool }); ok && f.Follows(e) || e.Done() {
			continue
		}
		uses = append(uses, e)
	}
	return uses
}

// awaitUses releases an output when its uses are complete.
func (o *outputs) awaitUses(v *output) {
	for _, e := range v.uses {
		_ = e.Wait() // a lost device uses nothing any more
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recycle(v)
}

// recycle gives the memory back to PyTorch. o.mu is held.
func (o *outputs) recycle(v *output) {
	o.release(v.handle)
	clear(v.uses)
	v.handle, v.stream, v.uses = nil, nil, v.uses[:0]
	v.next, o.free = o.free, v
}

// collect gives back the memory whose uses are complete.
//
// hot: one load under a lock when nothing waits.
func (o *outputs) collect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := &o.waiting
	for v := *at; v != nil; v = *at {
		if !complete(v.uses) {
			at = &v.next
			continue
		}
		*at = v.next
		o.recycle(v)
	}
}

func complete(uses []tensor.Event) bool {
	for _, e := range uses {
		if !e.Done() {
			return false
		}
	}
	return true
}

// join counts an instance.
func (o *outputs) join() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.instances++
}

// leave ends an instance. After the last one, outputs are released without an execution that looks.
func (o *outputs) leave() {
	o.mu.Lock()
	o.instances--
	var list *output
	if o.instances == 0 {
		list, o.waiting = o.waiting, nil
	}
	o.mu.Unlock()
	for list != nil {
		v := list
		list, v.next = v.next, nil
		o.awaitUses(v)
	}
}
