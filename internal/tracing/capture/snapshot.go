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
	// filmCost and frameCost are what a request and a tensor take besides content.
	filmCost  = 1 << 10
	frameCost = 512
	maxFrames = 4096
)

// film is a request that goes on.
type film struct {
	s       *Store
	session *session

	mu      sync.Mutex
	frames  []frame // guarded by mu
	more    int     // tensors without a frame; guarded by mu
	bytes   int64   // of contents; guarded by mu
	cost    int64   // what is reserved; guarded by mu
	answers int32   // guarded by mu
}

var _ tracing.Snapshot = (*film)(nil)

// frame is one tensor.
type frame struct {
	edge  tracing.TensorEdge
	dtype tensor.DType
	shape tensor.Shape
	place tensor.Place
	size  int64
	data  []byte
	kept  bool
	why   string
	// late is the content on its way to the host.
	late tensor.Tensor
}

// Admit implements tracing.Film.
func (f *film) Add(e *tracing.TensorEdge, t *tensor.Tensor) (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.frames) == maxFrames || !f.s.reserve(frameCost) {
		f.more++
		return 0, false
	}
	f.cost += frameCost
	x := frame{edge: *e, dtype: t.DType, shape: t.Shape, place: t.Buf.Place(), size: int64(t.Len)}
	switch limit := f.session.rule.RequestBytes; {
	case f.session.redacts(e):
		x.why, x.size = "redacted", 0
	case f.bytes+x.size > limit:
		x.why = fmt.Sprintf("over the limit of %d bytes a request", limit)
	case !f.s.reserve(x.size):
		x.why = fmt.Sprintf("over the limit of %d bytes of all captures", f.s.set.Bytes)
	default:
		x.kept = true
		f.bytes += x.size
		f.cost += x.size
	}
	f.frames = append(f.frames, x)
	return len(f.frames) - 1, x.kept
}

// Put implements tracing.Film.
func (f *film) Put(n int, t tensor.Tensor, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := &f.frames[n]
	if err != nil {
		x.kept, x.why = false, "not copied: "+err.Error()
		return
	}
	x.late = t
	if e := t.Buf.Ready(); e == nil || e.Done() {
		x.arrive()
	}
}

// arrive takes the content, once it is there.
func (x *frame) arrive() {
	if !x.late.Present() {
		return
	}
	defer x.late.Release()
	if e := x.late.Buf.Ready(); e != nil {
		if err := e.Wait(); err != nil {
			x.kept, x.why = false, "not copied: "+err.Error()
			return
		}
	}
	x.data = bytes.Clone(x.late.Bytes())
}

// Answer implements tracing.Film.
func (f *film) NextResponse() int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers++
	return f.answers
}

// End implements tracing.Film.
func (f *film) Finish(r *tracing.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.frames {
		f.frames[i].arrive()
	}
	start, _ := r.Bounds()
	f.s.develop(&shot{
		session: f.session, cost: f.cost, frames: slices.Clip(f.frames), more: f.more,
		id: r.ID,
		view: inspect.SnapshotView{
			Trace: r.ID.String(), Span: r.Span.String(), Request: r.Request, Model: r.Model, Version: r.Version,
			StartUs: r.UnixMicro(start), Status: inspect.StatusOf(r.Failed, r.Code), Tensors: len(f.frames), Bytes: f.bytes,
		},
	})
}
