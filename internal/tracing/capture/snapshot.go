package capture

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Bounds of a request.
const (
	// snapshotCost and tensorCost are the memory of a request and of a tensor without its content.
	snapshotCost = 1 << 10
	tensorCost   = 512
	maxTensors   = 4096
)

// recording records the tensors of a request that has not finished.
type recording struct {
	s       *Store
	session *session

	mu        sync.Mutex
	tensors   []capturedTensor // guarded by mu
	more      int              // tensors beyond maxTensors; guarded by mu
	bytes     int64            // of contents; guarded by mu
	cost      int64            // reserved bytes; guarded by mu
	responses int32            // guarded by mu
}

var _ tracing.Snapshot = (*recording)(nil)

// capturedTensor is one tensor of a request.
type capturedTensor struct {
	edge       tracing.TensorEdge
	dtype      tensor.DType
	shape      tensor.Shape
	place      tensor.Place
	size       int64
	data       []byte
	hasContent bool
	reason     string
	// pending is the content while it is copied to the host.
	pending tensor.Tensor
}

// Add implements tracing.Snapshot.
func (f *recording) Add(e *tracing.TensorEdge, t *tensor.Tensor) (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.tensors) == maxTensors || !f.s.reserve(tensorCost) {
		f.more++
		return 0, false
	}
	f.cost += tensorCost
	x := capturedTensor{edge: *e, dtype: t.DType, shape: t.Shape, place: t.Buf.Place(), size: int64(t.Len)}
	switch limit := f.session.rule.RequestBytes; {
	case f.session.redacts(e):
		x.reason, x.size = "redacted", 0
	case f.bytes+x.size > limit:
		x.reason = fmt.Sprintf("over the limit of %d bytes a request", limit)
	case !f.s.reserve(x.size):
		x.reason = fmt.Sprintf("over the limit of %d bytes of all captures", f.s.set.Bytes)
	default:
		x.hasContent = true
		f.bytes += x.size
		f.cost += x.size
	}
	f.tensors = append(f.tensors, x)
	return len(f.tensors) - 1, x.hasContent
}

// Put implements tracing.Snapshot.
func (f *recording) Put(n int, t tensor.Tensor, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := &f.tensors[n]
	if err != nil {
		x.hasContent, x.reason = false, "not copied: "+err.Error()
		return
	}
	x.pending = t
	if e := t.Buf.Ready(); e == nil || e.Done() {
		x.wait()
	}
}

// wait waits for the pending content, if there is any, and stores it.
func (x *capturedTensor) wait() {
	if !x.pending.Present() {
		return
	}
	defer x.pending.Release()
	if e := x.pending.Buf.Ready(); e != nil {
		if err := e.Wait(); err != nil {
			x.hasContent, x.reason = false, "not copied: "+err.Error()
			return
		}
	}
	x.data = bytes.Clone(x.pending.Bytes())
}

// NextResponse implements tracing.Snapshot.
func (f *recording) NextResponse() int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.responses++
	return f.responses
}

// Finish implements tracing.Snapshot.
func (f *recording) Finish(r *tracing.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.tensors {
		f.tensors[i].wait()
	}
	start, _ := r.Bounds()
	f.s.add(&snapshot{
		session: f.session, cost: f.cost, tensors: slices.Clip(f.tensors), more: f.more,
		id: r.ID,
		view: inspect.SnapshotView{
			Trace: r.ID.String(), Span: r.Span.String(), Request: r.Request, Model: r.Model, Version: r.Version,
			StartUs: r.UnixMicro(start), Status: inspect.StatusOf(r.Failed, r.Code), Tensors: len(f.tensors), Bytes: f.bytes,
		},
	})
}
