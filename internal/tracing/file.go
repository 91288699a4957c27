package tracing

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/diskfull"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// file writes the trace file and its indexed files, whose names end with an index, for example "trace.json.0". Each
// holds one JSON array.
type file struct {
	name string
	log  *slog.Logger

	mu     sync.Mutex
	main   *os.File // guarded by mu; nil before the first write
	index  int      // guarded by mu; of the next indexed file
	closed bool     // guarded by mu
}

// traceMode is the mode of trace files: with the tensors of clients in them they are for the server's user only.
const traceMode = 0o600

func (f *file) writeIndexed(traces []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	name := f.name + "." + strconv.Itoa(f.index)
	f.index++
	if err := os.WriteFile(name, slices.Concat([]byte("["), traces, []byte("]")), traceMode); err != nil {
		f.failed(err)
	}
}

// write appends traces to the trace file. The first call truncates it.
func (f *file) write(traces []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	before := ","
	if f.main == nil {
		main, err := os.OpenFile(f.name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, traceMode)
		if err != nil {
			f.failed(err)
			return
		}
		f.main, before = main, "["
	}
	if _, err := f.main.Write(append([]byte(before), traces...)); err != nil {
		f.failed(err)
	}
}

func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	main := f.main
	f.main, f.closed = nil, true
	if main == nil {
		return nil
	}
	_, err := main.WriteString("]")
	return errors.Join(err, main.Close())
}

// failed logs that traces are lost. Requests continue.
func (f *file) failed(err error) {
	err = diskfull.Explain(err, f.name, "set another trace_file")
	f.log.Error("traces are lost", slog.String("error", err.Error()))
}

// encode appends the trace's members of the trace file's array: the request, then its steps.
func (t *Trace) encode(b []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.rec
	entries := make([]entry, 0, 32)
	for _, m := range r.Moments {
		entries = append(entries, entry{Moment: m})
	}
	var own *Step
	for i := range r.Steps {
		if r.Steps[i].Single {
			own = &r.Steps[i]
			entries = own.entries(r, entries)
		}
	}
	b = t.appendMember(b, r.Number, 0, r.Model, r.Version, t.tensors(entries, -1, 0, own))
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.Single {
			continue
		}
		entries = append(s.entries(r, append(entries[:0], entry{Moment: Moment{RequestStart, s.Enqueued}})), entry{Moment: Moment{RequestEnd, s.Done}})
		b = t.appendMember(append(b, ','), s.Number, r.Number, s.Model, s.Version, t.tensors(entries, s.Node, s.SubRun, s))
	}
	return b
}

// entry is one line of a member: a moment, a report or a tensor.
type entry struct {
	Moment
	tensor []byte // its JSON, nil for a moment
	name   string // of a report or of the tensor's activity, empty for a point
}

// entries appends the moments of a step and the reports of its model. A failed or cached step has only its queue start.
func (s *Step) entries(r *Record, list []entry) []entry {
	list = append(list, entry{Moment: Moment{QueueStart, s.Enqueued}})
	if !s.Failed && !s.Cached {
		for _, m := range s.Moments() {
			list = append(list, entry{Moment: m})
		}
	}
	r.Reports(s, func(name string, at int64) { list = append(list, entry{Moment: Moment{ComputeStart, at}, name: name}) })
	return list
}

// tensors appends the tensors of a step, or of the request for node -1, to list. s is the executed step, if there
// is exactly one. Moments are removed unless the level includes them.
func (t *Trace) tensors(list []entry, node, subRun int32, s *Step) []entry {
	if t.set.values[keyLevel]&timestamps == 0 {
		list = list[:0]
	}
	for i := range t.seen {
		x := &t.seen[i]
		switch {
		case x.node != node || x.subRun != subRun:
		case x.output:
			list = append(list, entry{Moment: Moment{ComputeOutputStart, x.at}, name: "TENSOR_BACKEND_OUTPUT", tensor: x.text})
		default:
			queued := x.at
			if s != nil {
				queued = max(queued, s.Enqueued)
			}
			list = append(list, entry{Moment: Moment{QueueStart, queued}, name: "TENSOR_QUEUE_INPUT", tensor: x.text})
			if s != nil && !s.Failed && !s.Cached {
				list = append(list, entry{Moment: Moment{ComputeInputEnd, s.InputEnd}, name: "TENSOR_BACKEND_INPUT", tensor: x.text})
			}
		}
	}
	return list
}

// appendMember appends a member with its ids and one object per entry, sorted by time: events are not always
// recorded in order.
func (t *Trace) appendMember(b []byte, id, parent uint64, model string, version int64, entries []entry) []byte {
	b = strconv.AppendUint(append(b, `{"id":`...), id, 10)
	b = jsontext.AppendValid(append(b, `,"model_name":`...), model)
	b = strconv.AppendInt(append(b, `,"model_version":`...), version, 10)
	if t.rec.Request != "" {
		b = jsontext.AppendValid(append(b, `,"request_id":`...), t.rec.Request)
	}
	if parent != 0 {
		b = strconv.AppendUint(append(b, `,"parent_id":`...), parent, 10)
	}
	b = append(b, '}')
	slices.SortStableFunc(entries, func(a, b entry) int { return a.Compare(b.Moment) })
	for i := range entries {
		m := &entries[i]
		b = strconv.AppendUint(append(b, `,{"id":`...), id, 10)
		if m.tensor != nil {
			b = append(append(append(b, `,"activity":"`...), m.name...), `","tensor":`...)
			b = append(append(b, m.tensor...), '}')
			continue
		}
		b = jsontext.AppendValid(append(b, `,"timestamps":[{"name":`...), cmp.Or(m.name, m.Point.String()))
		b = strconv.AppendInt(append(b, `,"ns":`...), m.Ns, 10)
		b = append(b, `}]}`...)
	}
	return b
}

// seen is a recorded tensor of a step, or of the request for node -1.
type seen struct {
	output       bool
	node, subRun int32
	at           int64
	text         []byte // its JSON
}

// Tensors reports whether the trace records tensors. Callers check it before they copy tensors to the host.
func (t *Trace) Tensors() bool {
	return t.Sampled() && t.set.values[keyLevel]&tensors != 0 && t.set.file != nil
}

// Tensor records an input or output of a step, or of the request for node -1. It borrows x, which must be in host
// memory. It does nothing unless Tensors reports true.
func (t *Trace) Tensor(output bool, node, subRun int32, name string, x *tensor.Tensor) {
	if !t.Tensors() {
		return
	}
	s := seen{output: output, node: node, subRun: subRun, at: telemetry.Now(), text: appendTensor(nil, name, x)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.seen) < maxEntries {
		t.seen = append(t.seen, s)
	}
}

// appendTensor appends a tensor as a JSON object. Its elements and its shape are strings, separated by commas; for
// example "shape":"1,3". Half-precision tensors have no elements, as in Triton.
func appendTensor(b []byte, name string, x *tensor.Tensor) []byte {
	b = jsontext.AppendValid(append(b, `{"name":`...), name)
	b = jsontext.AppendValid(append(b, `,"data":`...), string(appendElements(nil, x.DType, x.Bytes())))
	b = append(append(b, `,"shape":"`...), strings.Trim(x.Shape.String(), "[]")...)
	return append(append(append(b, `","dtype":"`...), x.DType.String()...), `"}`...)
}

func appendElements(b []byte, d tensor.DType, data []byte) []byte {
	switch d {
	case tensor.Bytes:
		return appendTexts(b, data)
	case tensor.FP16, tensor.BF16:
		return b
	}
	n := d.Size()
	for i := 0; n > 0 && i+n <= len(data); i += n {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendElement(b, d, data[i:i+n])
	}
	return b
}

// appendTexts appends the elements of a BYTES tensor, each in quotes.
func appendTexts(b, data []byte) []byte {
	for first := true; ; first = false {
		elem, rest, ok := tensor.NextBytes(data)
		if !ok {
			return b
		}
		if !first {
			b = append(b, ',')
		}
		quoted, _ := json.Marshal(string(elem)) // a string always has a JSON form
		b, data = append(b, quoted...), rest
	}
}

// AppendElement appends an element of a numeric tensor as text; a boolean is 0 or 1.
func AppendElement(b []byte, d tensor.DType, e []byte) []byte {
	switch d { //nolint:exhaustive // the others are whole
	case tensor.Bool:
		return strconv.AppendInt(b, int64(min(e[0], 1)), 10)
	case tensor.FP32:
		return strconv.AppendFloat(b, float64(math.Float32frombits(binary.LittleEndian.Uint32(e))), 'g', -1, 32)
	case tensor.FP64:
		return strconv.AppendFloat(b, math.Float64frombits(binary.LittleEndian.Uint64(e)), 'g', -1, 64)
	}
	n, signed := Integer(d, e)
	if signed {
		return strconv.AppendInt(b, int64(n), 10)
	}
	return strconv.AppendUint(b, n, 10)
}

// Integer returns an element of an integer tensor; signed reports whether n is a signed one.
func Integer(d tensor.DType, e []byte) (n uint64, signed bool) {
	le := binary.LittleEndian
	switch d { //nolint:exhaustive // the others are of one byte
	case tensor.Int8:
		return uint64(int8(e[0])), true
	case tensor.Int16:
		return uint64(int16(le.Uint16(e))), true
	case tensor.Int32:
		return uint64(int32(le.Uint32(e))), true
	case tensor.Uint16:
		return uint64(le.Uint16(e)), false
	case tensor.Uint32:
		return uint64(le.Uint32(e)), false
	case tensor.Int64, tensor.Uint64:
		return le.Uint64(e), d == tensor.Int64
	}
	return uint64(e[0]), false
}
