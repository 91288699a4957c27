package wire

import (
	"runtime"

	"google.golang.org/grpc/mem"

	"github.com/tutti-server/tutti/core/tensor"
)

// sentTensor is a tensor owned by the transport. It implements the buffer pool to which the transport returns the
// memory.
type sentTensor struct {
	mem.NopBufferPool
	data []byte
	lent sentMemory
	lost runtime.Cleanup
}

// Counter counts the bytes of tensors that wait to be sent. *infer.InFlight is one. It must be safe for concurrent use.
type Counter interface {
	Add(n int64)
	Release(n int64)
}

// sentMemory is what sentTensor releases.
type sentMemory struct {
	buffer   *tensor.Buffer
	inFlight Counter
	size     int64
}

func (l sentMemory) end() {
	if l.inFlight != nil {
		l.inFlight.Release(l.size)
	}
	l.buffer.Release()
}

// HandOver moves a tensor's memory to the transport, which returns it once it is written. A broken connection drops
// unwritten buffers without returning them; then a cleanup releases the memory when the sentTensor is garbage
// collected. f counts the memory until then; it may be nil.
func HandOver(t *tensor.Tensor, f Counter) mem.Buffer {
	l := &sentTensor{data: t.Bytes(), lent: sentMemory{inFlight: f, size: int64(t.Len)}}
	if f != nil {
		f.Add(l.lent.size)
	}
	l.lent.buffer = t.Move().Buf
	l.lost = runtime.AddCleanup(l, sentMemory.end, l.lent)
	return mem.NewBuffer(&l.data, l)
}

// Collect releases the memory of tensors that broken connections have dropped, by a garbage collection, and waits for its cleanups. They are
// executed concurrently, so a caller that wants all of them looks at its memory and calls Collect again.
func Collect() {
	type marker struct{ done chan struct{} }
	m := &marker{make(chan struct{})}
	done := m.done
	runtime.AddCleanup(m, func(done chan struct{}) { close(done) }, done)
	runtime.GC()
	<-done
}

// Put releases the tensor's memory.
func (l *sentTensor) Put(*[]byte) {
	l.lost.Stop()
	ended := l.lent
	l.lent, l.data = sentMemory{}, nil
	runtime.KeepAlive(l)
	ended.end()
}
