package capture

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Captures implements inspect.Captures.
func (s *Store) Captures() *inspect.CaptureList {
	s.expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &inspect.CaptureList{Captures: []inspect.CaptureView{}, Bytes: s.set.Bytes, Used: s.used}
	for _, x := range slices.Backward(s.sessions) {
		list.Captures = append(list.Captures, *s.view(x))
	}
	return list
}

// FindCapture implements inspect.Captures.
func (s *Store) FindCapture(id uint64) (*inspect.CaptureView, error) {
	s.expire()
	x, err := s.session(id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view(x), nil
}

// view returns the view of a session. The caller holds mu.
func (s *Store) view(x *session) *inspect.CaptureView {
	v := &inspect.CaptureView{
		ID: x.id, Rule: x.rule, Active: !x.over, EndsUs: x.endsUs, Snapshots: []inspect.SnapshotView{},
		Matched: x.matched.Load(), Taken: x.taken, Pending: x.selected - x.taken, Dropped: x.dropped, Missed: x.missed,
	}
	for _, h := range s.snapshots {
		if h.session == x {
			v.Snapshots = append(v.Snapshots, h.view)
		}
	}
	return v
}

// find returns the newest snapshot of a trace. An id of the form TRACE-SPAN also selects the request.
func (s *Store) find(trace string) (*snapshot, error) {
	text, span, one := strings.Cut(trace, "-")
	id, ok := tracing.ParseTraceID(text)
	if !ok {
		return nil, status.Errorf(status.InvalidArg, "invalid trace id '%s', expected 32 hexadecimal digits", trace)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range slices.Backward(s.snapshots) {
		if h.id == id && (!one || h.view.Span == span) {
			return h, nil
		}
	}
	return nil, status.Errorf(status.NotFound, "no tensors of trace '%s' are retained", trace)
}

// Tensors implements inspect.Captures.
func (s *Store) Tensors(trace string, previews bool) (*inspect.TensorList, error) {
	h, err := s.find(trace)
	if err != nil {
		return nil, err
	}
	return h.list(previews), nil
}

// list returns the view of the tensors.
func (h *snapshot) list(previews bool) *inspect.TensorList {
	v := &inspect.TensorList{SnapshotView: h.view, List: []inspect.TensorView{}, More: h.more}
	names, p := h.names(), previewer{images: maxImages}
	for i := range h.tensors {
		x := &h.tensors[i]
		t := inspect.TensorView{
			N: i, Name: names[i], Step: x.edge.Step, Tensor: x.edge.Tensor, Node: x.edge.Node, SubRun: x.edge.SubRun,
			Readers: append([]string{}, x.edge.Readers...), Type: x.dtype.String(), Shape: append([]int64{}, x.shape.Dims()...),
			Bytes: x.size, Place: x.place.String(), HasContent: x.hasContent, Reason: x.reason,
		}
		if previews && x.hasContent {
			t.Preview = p.preview(x)
		}
		v.List = append(v.List, t)
	}
	return v
}

// names returns a unique file name for each tensor. For example, the second tensor named "detect.boxes" is
// "detect.boxes~2".
func (h *snapshot) names() []string {
	list, seen := make([]string, len(h.tensors)), make(map[string]bool, len(h.tensors))
	for i := range h.tensors {
		e := &h.tensors[i].edge
		name := fileName(e.Step + "." + e.Tensor)
		if e.SubRun > 0 {
			name += "@" + strconv.Itoa(int(e.SubRun))
		}
		unique := name
		for n := 2; seen[unique]; n++ {
			unique = fmt.Sprintf("%s~%d", name, n)
		}
		seen[unique], list[i] = true, unique
	}
	return list
}

// NPY implements inspect.Captures.
func (s *Store) NPY(trace string, n int) (func(io.Writer) error, error) {
	h, err := s.find(trace)
	switch {
	case err != nil:
		return nil, err
	case n < 0 || n >= len(h.tensors):
		return nil, status.Errorf(status.NotFound, "trace '%s' has no tensor %d, expected 0 to %d", trace, n, len(h.tensors)-1)
	case !h.tensors[n].hasContent:
		return nil, status.Errorf(status.Unavailable, "tensor %d of trace '%s' has no content: %s", n, trace, h.tensors[n].reason)
	}
	list := arrays("", &h.tensors[n])
	if len(list) != 1 {
		return nil, status.Errorf(status.Unsupported, "the texts of tensor %d do not fit one array, expected capture.npz", n)
	}
	return list[0].write, nil
}

// NPZ implements inspect.Captures.
func (s *Store) NPZ(trace string) (func(io.Writer) error, error) {
	h, err := s.find(trace)
	if err != nil {
		return nil, err
	}
	return h.writeNPZ, nil
}
