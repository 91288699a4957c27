package capture

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
)

// maxCrashes is the most requests that RecordCrash keeps.
const maxCrashes = 16

// RecordCrash implements backends.CrashRecorder: it keeps the inputs of a request that has ended the process of its model, and returns a
// trace id under which they are found, or "" when they do not fit. They count as a capture of their own, which has ended. The newest 16
// are kept, within the bounds of all captures. Where the server redacts anything, only types and shapes are recorded: the names that the
// tensors have in ensembles are not known here.
func (s *Store) RecordCrash(model string, version int64, request string, in []infer.Named) string {
	h := &snapshot{id: tracing.NewTraceID(), cost: snapshotCost}
	now := time.Now().UnixMicro()
	for i := range in[:min(len(in), maxTensors)] {
		h.add(&in[i], model, s)
	}
	content := int64(0)
	for i := range h.tensors {
		if h.tensors[i].hasContent {
			content += h.tensors[i].size
		}
	}
	h.view = inspect.SnapshotView{
		Trace: h.id.String(), Request: request, Model: model, Version: version, StartUs: now, Status: "crashed", Tensors: len(h.tensors), Bytes: content,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropCrashes(maxCrashes - 1)
	if !s.allocate(h.cost) {
		return ""
	}
	if x := s.crashes; x == nil || !slices.Contains(s.sessions, x) {
		s.ids++
		s.crashes = &session{id: s.ids, rule: inspect.CaptureRule{Every: 1, RequestBytes: s.set.RequestBytes}, endsUs: now, over: true}
		s.sessions = append(s.sessions, s.crashes)
	}
	h.session = s.crashes
	h.session.selected++
	h.session.taken++
	s.snapshots = append(s.snapshots, h)
	return h.view.Trace
}

// add copies an input.
func (h *snapshot) add(n *infer.Named, model string, s *Store) {
	t := &n.Tensor
	x := capturedTensor{
		edge:  tracing.TensorEdge{Step: tracing.RequestStep, Tensor: n.Name, Node: -1, Names: []string{n.Name}, Models: []string{model}},
		dtype: t.DType, shape: t.Shape, place: t.Buf.Place(), size: int64(t.Len),
	}
	h.cost += tensorCost
	switch {
	case len(s.set.RedactTensors)+len(s.set.RedactModels) > 0:
		x.reason, x.size = "redacted", 0
	case h.cost+x.size > s.set.RequestBytes:
		x.reason = fmt.Sprintf("over the limit of %d bytes a request", s.set.RequestBytes)
	default:
		x.data, x.hasContent = bytes.Clone(t.Bytes()), true
		h.cost += x.size
	}
	h.tensors = append(h.tensors, x)
}

// dropCrashes drops the oldest requests of RecordCrash but n. The caller holds mu.
func (s *Store) dropCrashes(n int) {
	count := 0
	for _, h := range s.snapshots {
		if s.crashes != nil && h.session == s.crashes {
			count++
		}
	}
	s.snapshots = slices.DeleteFunc(s.snapshots, func(h *snapshot) bool {
		if s.crashes == nil || h.session != s.crashes || count <= n {
			return false
		}
		count--
		s.used -= h.cost
		h.session.dropped++
		return true
	})
}
