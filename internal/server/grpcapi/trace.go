package grpcapi

import (
	"runtime"

	"google.golang.org/grpc/mem"

	"github.com/tutti-server/tutti/internal/tracing"
)

// sending is the pool behind a traced answer's encoded bytes, which it gets back when
// the transport has written them.
type sending struct {
	mem.BufferPool
	trace *tracing.Trace
	lost  runtime.Cleanup // ends the trace if the transport drops the answer
}

// traced returns a pool that records when what it provides has been sent.
func traced(pool mem.BufferPool, t *tracing.Trace) mem.BufferPool {
	t.Mark(tracing.GRPCSendStart)
	s := &sending{BufferPool: pool, trace: t.Hold()}
	s.lost = runtime.AddCleanup(s, (*tracing.Trace).End, s.trace)
	return s
}

// Put takes the memory back.
func (s *sending) Put(b *[]byte) {
	s.lost.Stop()
	s.trace.Mark(tracing.GRPCSendEnd)
	s.trace.End()
	s.BufferPool.Put(b)
	runtime.KeepAlive(s)
}
