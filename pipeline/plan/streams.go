package plan

import (
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// A stream is everything that depends on the responses of one decoupled step; stream 0 depends
// on the request alone. A step is in the innermost stream that it reads. Its other inputs must
// be of streams around that one, where every response sees the same tensor.
//
// Two operations make a stream of others, which is beside them: windows of one stream, and a join of several.

// stream is one of them.
type stream struct {
	around int32 // the stream that its decoupled step is in, or that the streams are in of which it is made
	depth  int32 // how many streams are around it
}

// onStreams reports whether an operation makes a stream of others.
func (o *operation) onStreams() bool { return o.Window != nil || o.StreamJoin != nil }

// streams finds the stream of every step and tensor. It refuses to pair the responses of independent decoupled steps without a join.
func (c *compiler) streams() error {
	c.flows = []stream{{}}
	c.origin = make([]int32, len(c.names))
	seen := make([]bool, len(c.leaves))
	for i := range c.leaves {
		if err := c.trace(int32(i), seen); err != nil { //nolint:gosec // at most maxSteps
			return err
		}
	}
	root := c.levels[0]
	if config.EarlyOutputs(c.root) {
		return nil // each stream responds for itself
	}
	inner := int32(0)
	for i, slot := range c.outputs {
		if slot == None {
			continue
		}
		at, ok := c.innermost(inner, c.origin[slot])
		if !ok {
			return config.WithFix(root.errorf(config.MixedStreams, "ensemble_scheduling",
				"step of model '%s' receives inputs originated from different decoupled models: output '%s' and those before it, whose responses have no common number",
				root.name(), root.sig.Outputs[i].Name), "set ensemble.early_outputs to true, so that each stream has responses of its own")
		}
		inner = at
	}
	return nil
}

// trace finds the stream of leaf i after those of its producers. There must be no cycles.
func (c *compiler) trace(i int32, seen []bool) error {
	if seen[i] {
		return nil
	}
	seen[i] = true
	s := c.leaves[i]
	for _, slot := range s.in {
		if slot == None {
			continue
		}
		if w := c.writer[slot]; w >= 0 {
			if err := c.trace(w, seen); err != nil {
				return err
			}
		}
		if s.op != nil && s.op.onStreams() {
			continue
		}
		at, ok := c.innermost(s.stream, c.origin[slot])
		if !ok {
			return config.WithFix(s.level.errorf(config.MixedStreams, s.field(), "step of model '%s' receives inputs originated from different decoupled models", s.model),
				fmt.Sprintf("join the streams: step.%s.join with the names of their tensors", s.model))
		}
		s.stream = at
	}
	out := s.stream
	switch {
	case s.op != nil && s.op.onStreams():
		around, err := c.sources(s)
		if err != nil {
			return err
		}
		out = c.newStream(around)
		s.stream = out
	case s.sig.Decoupled:
		out = c.newStream(s.stream)
	}
	for _, slot := range s.out {
		if slot != None {
			c.origin[slot] = out
		}
	}
	return nil
}

// newStream returns a new stream.
func (c *compiler) newStream(around int32) int32 {
	c.flows = append(c.flows, stream{around: around, depth: c.flows[around].depth + 1})
	return int32(len(c.flows) - 1) //nolint:gosec // as many as steps
}

// sources returns the stream around those that an operation reads.
func (c *compiler) sources(s *step) (int32, error) {
	first := c.origin[s.in[0]]
	if s.op.Window != nil {
		for i, slot := range s.in {
			if c.origin[slot] != first {
				return 0, s.flowError("makes windows of tensors of different streams: '%s' is there %s, and '%s' %s; name those of one stream with step.%s_of",
					s.sig.Inputs[0].Name, c.per(first), s.sig.Inputs[i].Name, c.per(c.origin[slot]), s.op.Name)
			}
		}
		if first == 0 {
			return 0, nil
		}
		return c.flows[first].around, nil
	}
	var of []int32
	for i, slot := range s.in {
		at := c.origin[slot]
		switch {
		case at == 0:
			return 0, s.flowError("joins the tensor '%s', which is of no stream: it is there for each request, and the step can read it as it is", s.sig.Inputs[i].Name)
		case first == 0:
		case c.flows[at].around != c.flows[first].around:
			return 0, s.flowError("joins '%s', which is there %s, and '%s', which is there %s, expected streams that begin in the same one",
				s.sig.Inputs[0].Name, c.per(first), s.sig.Inputs[i].Name, c.per(at))
		}
		if !slices.Contains(of, at) {
			of = append(of, at)
		}
	}
	if len(of) < 2 {
		return 0, s.flowError("joins tensors of one stream, which the step can read as they are")
	}
	return c.flows[first].around, nil
}

// per says for what the tensors of a stream are there.
func (c *compiler) per(at int32) string {
	if at == 0 {
		return "for each request"
	}
	for _, s := range c.leaves {
		for _, slot := range s.out {
			if slot != None && c.origin[slot] == at && (s.stream != at || s.op != nil && s.op.onStreams()) {
				return "for each response of '" + s.name + "'"
			}
		}
	}
	return "for each response of a stream"
}

// innermost returns the inner of two nested streams; false when neither contains the other.
func (c *compiler) innermost(a, b int32) (int32, bool) {
	if c.flows[a].depth < c.flows[b].depth {
		a, b = b, a
	}
	at := a
	for c.flows[at].depth > c.flows[b].depth {
		at = c.flows[at].around
	}
	return a, at == b
}

// streamOutputs types what an operation on streams writes: tensors as it reads them, but for the positions of a window.
func (s *step) streamOutputs(known map[string]*portInfo) error {
	s.sig.Decoupled = true
	w := s.op.Window
	for i, name := range s.op.Written() {
		in := &s.sig.Inputs[slices.IndexFunc(s.sig.Inputs, func(p config.Port) bool { return p.Name == s.op.In[i] })]
		dims := in.Dims
		if w != nil {
			if dims.Rank() == 0 || s.sig.MaxBatch == 0 && dims.Dim(0) == 0 {
				return s.flowError("makes windows of the tensor '%s' of dims %s, expected a first dimension that has the positions", in.Name, dims)
			}
			size := int64(w.Size)
			if w.Tail == config.TailSend {
				size = -1
			}
			dims = tensor.Of(append([]int64{size}, dims.Dims()[1:]...)...)
			if t := known[name]; t != nil && t.dims.Rank() > 0 && t.dims.Dim(0) > 0 {
				switch reads := t.dims.Dim(0); {
				case reads != int64(w.Size):
					return s.flowError("makes windows of %d positions, and the step reads '%s' with %d", w.Size, in.Name, reads)
				case w.Tail == config.TailSend && w.Size > 1:
					return s.flowError("can make a last window of fewer positions, and the step reads '%s' with %d always: set the tail to pad or drop", in.Name, reads)
				}
			}
		}
		s.sig.Outputs = append(s.sig.Outputs, config.Port{Name: name, DType: in.DType, Dims: dims})
	}
	return nil
}

func windowText(w *config.Window) string {
	text := fmt.Sprintf("windows of %d", w.Size)
	if w.Stride != w.Size {
		text += fmt.Sprintf(" every %d", w.Stride)
	}
	return text
}

func joinText(j *config.StreamJoin) string {
	if j.Latest {
		return "with the latest"
	}
	return "joined by index"
}

// streamText says what the steps of a stream run for.
func (p *Plan) streamText(at int32) string {
	seg := &p.Segments[at]
	switch {
	case seg.Operator == None:
		return fmt.Sprintf("response of step %d", p.Segments[seg.Parent].Numbers[seg.Producer])
	case p.Nodes[seg.Operator].Operation.Window != nil:
		return fmt.Sprintf("window of step %d", seg.Operator)
	default:
		return fmt.Sprintf("pair of step %d", seg.Operator)
	}
}
