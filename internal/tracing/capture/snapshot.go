package capture

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Bounds of a request.
const (
	snapshotCost = 1 << 10 // the memory of a request without its tensors
	tensorCost   = 512     // the memory of a tensor without its content
	maxTensors   = 4096
)

// recording records the tensors of a request that has not finished.
type recording struct {
	s       *Store
	session *session

	model string

	mu        sync.Mutex
	sent      *inspect.SentView // guarded by mu
	tensors   []capturedTensor  // guarded by mu
	more      int               // tensors beyond maxTensors; guarded by mu
	bytes     int64             // of contents; guarded by mu
	cost      int64             // reserved bytes; guarded by mu
	responses int32             // guarded by mu
}

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
	pending    tensor.Tensor // the content while it is copied to the host
}

func (f *recording) Describe(q *tracing.RequestInfo) {
	v := &inspect.SentView{Outputs: slices.Clone(q.Outputs)}
	if q.SequenceID != 0 || q.SequenceName != "" {
		v.Sequence = &inspect.SequenceView{ID: q.SequenceID, Name: q.SequenceName, Start: q.Start, End: q.End}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range q.Params {
		size := int64(len(p.Key) + len(p.Value))
		if f.session.redactsParam(f.model, p.Key) || !f.s.reserve(size) {
			v.Redacted = append(v.Redacted, p.Key)
			continue
		}
		f.cost += size
		v.Params = append(v.Params, inspect.ParamView(p))
	}
	f.sent = v
}

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

func (f *recording) NextResponse() int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.responses++
	return f.responses
}

func (f *recording) Finish(r *tracing.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.tensors {
		f.tensors[i].wait()
	}
	start, _ := r.Bounds()
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.session.taken++
	f.s.snapshots = append(f.s.snapshots, &snapshot{
		session: f.session, cost: f.cost, tensors: slices.Clip(f.tensors), more: f.more, sent: f.sent,
		id: r.ID,
		view: inspect.SnapshotView{
			Trace: r.ID.String(), Span: r.Span.String(), Request: r.Request, Model: r.Model, Version: r.Version,
			StartUs: r.UnixMicro(start), Status: inspect.StatusOf(r.Failed, r.Code), Tensors: len(f.tensors), Bytes: f.bytes,
		},
	})
}

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
	id, err := tracing.ParseTraceID(text)
	if err != nil {
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

func (h *snapshot) list(previews bool) *inspect.TensorList {
	v := &inspect.TensorList{SnapshotView: h.view, List: []inspect.TensorView{}, More: h.more}
	names, images := h.names(), maxImages
	for i := range h.tensors {
		x := &h.tensors[i]
		t := inspect.TensorView{
			N: i, Name: names[i], Step: x.edge.Step, Tensor: x.edge.Tensor, Node: x.edge.Node, SubRun: x.edge.SubRun,
			Readers: append([]string{}, x.edge.Readers...), Type: x.dtype.String(), Shape: append([]int64{}, x.shape.Dims()...),
			Bytes: x.size, Place: x.place.String(), HasContent: x.hasContent, Reason: x.reason,
		}
		if previews && x.hasContent {
			t.Preview = preview(x, &images)
		}
		v.List = append(v.List, t)
	}
	if previews {
		v.Sent = h.sent
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

// array is the content of one .npy file.
type array struct {
	name  string
	descr string // NumPy's name of the type
	shape []int64
	data  []byte
}

// descrs are NumPy's names of the types that are stored unchanged.
var descrs = [...]string{
	tensor.Bool: "|b1", tensor.Uint8: "|u1", tensor.Uint16: "<u2", tensor.Uint32: "<u4", tensor.Uint64: "<u8",
	tensor.Int8: "|i1", tensor.Int16: "<i2", tensor.Int32: "<i4", tensor.Int64: "<i8",
	tensor.FP16: "<f2", tensor.FP32: "<f4", tensor.FP64: "<f8", tensor.BF16: "<u2",
}

func arrays(name string, x *capturedTensor) []array {
	count := x.shape.Elements()
	if x.dtype == tensor.Bytes {
		if elems, ok := elements(x.data, count); ok {
			return texts(name, x, elems)
		}
	} else if size := x.dtype.Size(); size > 0 && count >= 0 && len(x.data)%size == 0 && int64(len(x.data)/size) == count {
		return []array{{name, descrs[x.dtype], x.shape.Dims(), x.data}}
	}
	return []array{{name, "|u1", []int64{int64(len(x.data))}, x.data}}
}

// elements splits a BYTES tensor; ok is false unless it has exactly count elements.
func elements(b []byte, count int64) (list [][]byte, ok bool) {
	for len(b) > 0 {
		elem, rest, whole := tensor.NextBytes(b)
		if !whole {
			return nil, false
		}
		list, b = append(list, elem), rest
	}
	return list, int64(len(list)) == count
}

const roomy = 64 << 10 // how much larger an array of fixed width may be than its texts

// texts returns the arrays of a BYTES tensor. Fixed-width bytes are not always possible: NumPy drops zeros at the
// end, and one long text makes every element long.
func texts(name string, x *capturedTensor, elems [][]byte) []array {
	width, exact := 1, true
	for _, e := range elems {
		width = max(width, len(e))
		exact = exact && (len(e) == 0 || e[len(e)-1] != 0)
	}
	if exact && width*len(elems) <= 2*len(x.data)+roomy {
		data := make([]byte, width*len(elems))
		for i, e := range elems {
			copy(data[i*width:], e)
		}
		return []array{{name, "|S" + strconv.Itoa(width), x.shape.Dims(), data}}
	}
	data, offsets := make([]byte, 0, len(x.data)), make([]byte, 8, 8*len(elems)+8)
	for _, e := range elems {
		data = append(data, e...)
		offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(data)))
	}
	var shape []byte
	for _, d := range x.shape.Dims() {
		shape = binary.LittleEndian.AppendUint64(shape, uint64(d)) //nolint:gosec // not negative
	}
	return []array{
		{name + ".data", "|u1", []int64{int64(len(data))}, data},
		{name + ".offsets", "<i8", []int64{int64(len(elems)) + 1}, offsets},
		{name + ".shape", "<i8", []int64{int64(x.shape.Rank())}, shape},
	}
}

const headerUnit = 64 // the alignment of a header's size

// write writes a .npy file of version 1.0.
func (a array) write(w io.Writer) error {
	shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(a.shape), "[]"), " ", ", ")
	if len(a.shape) == 1 {
		shape += ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", a.descr, shape)
	head := []byte("\x93NUMPY\x01\x00")
	start := len(head) + 2
	size := (start+len(text)+headerUnit)/headerUnit*headerUnit - start // with the newline
	head = binary.LittleEndian.AppendUint16(head, uint16(size))        //nolint:gosec // a shape is short
	head = fmt.Appendf(head, "%-*s\n", size-1, text)
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := w.Write(a.data)
	return err
}

const aboutName = "__capture__" // the name of the array that lists all tensors

func (h *snapshot) writeNPZ(w io.Writer) error {
	list := h.list(false)
	list.Sent = h.sent
	about, err := json.Marshal(list)
	if err != nil {
		return err
	}
	z := zip.NewWriter(w)
	put := func(a array) error {
		f, err := z.CreateHeader(&zip.FileHeader{Name: a.name + ".npy", Method: zip.Store})
		if err != nil {
			return err
		}
		return a.write(f)
	}
	if err := put(array{aboutName, "|u1", []int64{int64(len(about))}, about}); err != nil {
		return err
	}
	for i, name := range h.names() {
		if !h.tensors[i].hasContent {
			continue
		}
		for _, a := range arrays(name, &h.tensors[i]) {
			if err := put(a); err != nil {
				return err
			}
		}
	}
	return z.Close()
}

// fileName returns a name that is safe in archives: it cannot leave its folder.
func fileName(name string) string {
	if !utf8.ValidString(name) {
		name = strings.ToValidUTF8(name, "_")
	}
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || strings.ContainsRune(`\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, name)
	parts := strings.Split(name, "/")
	for i, p := range parts {
		if p == "" || p == "." || p == ".." {
			parts[i] = "_"
		}
	}
	return strings.Join(parts, "/")
}
