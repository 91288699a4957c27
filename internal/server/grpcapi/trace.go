package grpcapi

import (
	"runtime"

	"google.golang.org/grpc/mem"

	"github.com/tutti-server/tutti/internal/tracing"
)

// sendTrace is the pool of a traced response's buffer. The transport returns the buffer when it is written.
type sendTrace struct {
	mem.BufferPool
	trace *tracing.Trace
	lost  runtime.Cleanup // ends the trace if the transport drops the response
}

// traced returns a pool that records when its buffer was sent.
func traced(pool mem.BufferPool, t *tracing.Trace) mem.BufferPool {
	t.Mark(tracing.GRPCSendStart)
	s := &sendTrace{BufferPool: pool, trace: t.Hold()}
	s.lost = runtime.AddCleanup(s, (*tracing.Trace).End, s.trace)
	return s
}

// Put returns the buffer.
func (s *sendTrace) Put(b *[]byte) {
	s.lost.Stop()
	s.trace.Mark(tracing.GRPCSendEnd)
	s.trace.End()
	s.BufferPool.Put(b)
	runtime.KeepAlive(s)
}
