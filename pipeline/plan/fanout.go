package plan

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// A fan-out makes each item of a row a row of its own, between a demux and its gathers. For the compiler it is a row set inside the set that
// the demux reads, so the rules of conditions hold: a step that reads items runs per item, and may read tensors from around the fan-out.
//
// For example, of crop -> demux -> classify -> gather, crop finds 3 crops in one image and 5 in another, and classify runs for 8 rows.

// Demux is what a demux reads and writes, by ports of its node.
type Demux struct {
	Items  []DemuxItems
	Counts int32 // the input that counts the items of each row, -1 where all are real
	// Batched reports that the tensors have a batch dimension before that of the items.
	Batched bool
	// MaxItems bounds the items of a request, MaxInFlight those that the ensemble executes at a time.
	MaxItems, MaxInFlight int
}

// DemuxItems is one tensor that a demux divides.
type DemuxItems struct {
	In     int32
	Shapes int32 // the input with the shapes of the items, which then are elements of BYTES; -1 where the items have one shape
	DType  tensor.DType
	// Rank is the number of dimensions of an item.
	Rank int
}

// Gather is what a gather does with its only input.
type Gather struct {
	// Pad is one element, which fills the items that a row has less than others; nil where that is an error.
	Pad []byte
	// Counts reports that the second output has the count of each row.
	Counts bool
	// Batched reports that the gathered tensor has a batch dimension before that of the items.
	Batched bool
	// Flat reports that items of one element are gathered without their dimension: [N] and not [N, 1].
	Flat bool
}

// MaxItemRank bounds the dimensions of items that have shapes of their own.
const MaxItemRank = 8

// many is the batch size of operations, which have no limit.
const many = math.MaxInt32

// depths finds how many fan-outs of the ensemble each tensor of it is in, by name: it is needed before the row sets are known. Cycles are
// reported later.
type depths struct {
	flow *config.Flow
	of   map[string]int
}

func depthsOf(flow *config.Flow) *depths {
	if !slices.ContainsFunc(flow.Operations, func(o config.Operation) bool { return o.Demux != nil }) {
		return nil
	}
	return &depths{flow: flow, of: map[string]int{}}
}

// depth returns that of a tensor.
func (d *depths) depth(name string) int {
	if d == nil {
		return 0
	}
	n, known := d.of[name]
	if known {
		return n
	}
	d.of[name] = 0
	for i := range d.flow.Operations {
		o := &d.flow.Operations[i]
		if !slices.Contains(o.Written(), name) {
			continue
		}
		n = d.deepest(slices.Values(o.In))
		if o.Demux != nil {
			n++
		} else if o.Gather != nil {
			n--
		}
	}
	for _, s := range d.flow.Steps {
		for _, t := range s.GetOutputMap() {
			if t == name {
				n = d.deepest(maps.Values(s.GetInputMap()))
			}
		}
	}
	d.of[name] = max(n, 0)
	return d.of[name]
}

func (d *depths) deepest(names iter.Seq[string]) (n int) {
	for t := range names {
		n = max(n, d.depth(t))
	}
	return n
}

// gathered refuses outputs of l that have a row for each item.
func (l *level) gathered() error {
	for i, out := range l.cfg.GetOutput() {
		if l.depths.depth(out.GetName()) > 0 {
			return config.WithFix(l.errorf(config.MixedRows, fmt.Sprintf("output[%d]", i), "output '%s' has a row for each item of a fan-out, expected one for each row of the request",
				out.GetName()), "collect the items by ensemble.gather")
		}
	}
	return nil
}

// perItem reports whether a step runs for each item of a fan-out of its ensemble.
func (s *step) perItem() bool {
	return s.level.depths != nil && s.level.depths.deepest(maps.Values(s.cfg.GetInputMap())) > 0
}

// rowDims returns the dims of a row of a tensor of l, for an operation. In an ensemble without batches only items are rows.
func (l *level) rowDims(name string, known *portInfo) tensor.Shape {
	if l.cfg.GetMaxBatchSize() > 0 || l.depths.depth(name) == 0 {
		return known.dims
	}
	for _, s := range l.steps {
		for i := range s.sig.Outputs {
			if s.cfg.GetOutputMap()[s.sig.Outputs[i].Name] == name {
				return s.sig.Outputs[i].Dims
			}
		}
	}
	return known.dims
}

// batched reports whether tensors as deep as the one named have a batch dimension, that of requests or of the items around.
func (l *level) batched(name string, above int) bool {
	return l.cfg.GetMaxBatchSize() > 0 || l.depths.depth(name) > above
}

// flowError is an error of a parameter that changes the data flow.
func (s *step) flowError(format string, args ...any) error {
	return s.level.errorf(config.FlowParam, s.op.Field, "parameter '%s' %s", strings.TrimPrefix(s.op.Field, "parameters."), fmt.Sprintf(format, args...))
}

// demux types the outputs of a demux.
func (s *step) demux() error {
	d := &Demux{Counts: -1, Batched: s.level.batched(s.op.Demux.Items[0].Of, 0)}
	d.MaxItems, d.MaxInFlight = config.ItemLimits(s.level.cfg)
	s.op.demux, s.sig.MaxBatch = d, many
	count := int64(-1)
	for _, t := range s.op.Demux.Items {
		items := DemuxItems{In: s.input(t.Of), Shapes: -1}
		var dims tensor.Shape
		var err error
		if t.Shapes == "" {
			dims, err = s.plainItems(t.Of, &count)
			items.DType = s.sig.Inputs[items.In].DType
		} else {
			items.Shapes, items.DType = s.input(t.Shapes), t.DType
			dims, err = s.raggedItems(&t)
		}
		if err != nil {
			return err
		}
		items.Rank = dims.Rank()
		d.Items = append(d.Items, items)
		s.sig.Outputs = append(s.sig.Outputs, config.Port{Name: t.Name, DType: items.DType, Dims: dims})
	}
	if t := s.op.Demux.Counts; t != "" {
		d.Counts = s.input(t)
		p := &s.sig.Inputs[d.Counts]
		if n := p.Dims; p.DType != tensor.Int32 && p.DType != tensor.Int64 || n.Rank() > 1 || n.Rank() == 1 && n.Dim(0) > 1 {
			return s.flowError("counts items by the tensor '%s' of type %s and dims %s, expected one INT32 or INT64 per row", t, p.DType, p.Dims)
		}
	}
	if !d.Batched { // the first dimension counts the items
		for i := range s.sig.Inputs {
			s.sig.Inputs[i].Dims = s.sig.Inputs[i].Dims.Tail()
		}
	}
	return nil
}

// input returns the port of a tensor that an operation reads.
func (s *step) input(name string) int32 { return int32(s.sig.Input(name)) } //nolint:gosec // few

// plainItems returns the dims of the items of a tensor whose first dimension counts them.
func (s *step) plainItems(name string, count *int64) (tensor.Shape, error) {
	dims := s.sig.Inputs[s.input(name)].Dims
	if dims.Rank() == 0 || dims.Equal(tensor.Of(1)) {
		return dims, s.flowError("divides the tensor '%s' of dims %s, expected a dimension that counts items: it is a single value", name, dims)
	}
	n := dims.Dim(0)
	if n > 0 && *count > 0 && n != *count {
		return dims, s.flowError("divides the tensor '%s' of %d items, expected %d as in the others", name, n, *count)
	}
	*count = max(*count, n)
	if dims.Rank() == 1 {
		return tensor.Of(1), nil
	}
	return dims.Tail(), nil
}

// raggedItems returns the dims of items that are elements of BYTES with shapes of their own.
func (s *step) raggedItems(t *config.Items) (tensor.Shape, error) {
	data, shapes := &s.sig.Inputs[s.input(t.Of)], &s.sig.Inputs[s.input(t.Shapes)]
	if data.DType != tensor.Bytes || data.Dims.Rank() != 1 {
		return data.Dims, s.flowError("divides the tensor '%s' of type %s and dims %s, expected BYTES of dims [-1] with the data of an item in each element, as it has shapes",
			t.Of, data.DType, data.Dims)
	}
	if shapes.DType != tensor.Int32 && shapes.DType != tensor.Int64 || shapes.Dims.Rank() != 2 || shapes.Dims.Dim(1) < 1 || shapes.Dims.Dim(1) > MaxItemRank {
		return data.Dims, s.flowError("has for '%s' the shapes '%s' of type %s and dims %s, expected INT32 or INT64 of dims [-1, R] with R the number of dimensions of an item, at most %d",
			t.Name, t.Shapes, shapes.DType, shapes.Dims, MaxItemRank)
	}
	return tensor.Of(slices.Repeat([]int64{-1}, int(shapes.Dims.Dim(1)))...), nil
}

// gather types the outputs of a gather.
func (s *step) gather(known map[string]*portInfo) error {
	in := &s.sig.Inputs[0]
	if s.level.depths.depth(in.Name) == 0 {
		return s.noFanOut()
	}
	g := &Gather{Counts: s.op.Gather.Counts != "", Batched: s.level.batched(s.op.Gather.Of, 1)}
	s.op.gather, s.sig.MaxBatch = g, many
	if s.op.Gather.Pad != nil {
		c, err := constant(s.op.Gather.Pad, in.DType, tensor.Of(1))
		if err != nil || c.Shape.Elements() != 1 {
			return s.flowError("pads '%s' with %s, expected one value of type %s", s.op.Out, s.op.Gather.Pad, in.DType)
		}
		g.Pad = c.Data
	}
	dims := in.Dims.Prepend(-1)
	if g.Flat = in.Dims.Equal(tensor.Of(1)) && s.readAs(known) == 1; g.Flat {
		dims = tensor.Of(-1)
	}
	counts := tensor.Of(1)
	if !g.Batched { // the first dimension counts the items
		dims, counts = dims.Tail(), counts.Tail()
	}
	s.sig.Outputs = append(s.sig.Outputs, config.Port{Name: s.op.Out, DType: in.DType, Dims: dims})
	if g.Counts {
		s.sig.Outputs = append(s.sig.Outputs, config.Port{Name: s.op.Gather.Counts, DType: tensor.Int32, Dims: counts})
	}
	return nil
}

// noFanOut is the error of a gather without a demux.
func (s *step) noFanOut() error {
	return s.flowError("gathers the tensor '%s', which is in no fan-out, expected one that depends on a step.MODEL.demux", s.op.Gather.Of)
}

// readAs returns the number of dimensions that the ensemble or a step declares for what a gather writes; 0 when none does.
func (s *step) readAs(known map[string]*portInfo) int {
	if t := known[s.op.Out]; t != nil {
		return t.dims.Rank()
	}
	for _, out := range s.level.cfg.GetOutput() {
		if out.GetName() == s.op.Out {
			return len(out.GetDims())
		}
	}
	return 0
}

// fanOutOf returns the innermost fan-out that a row set is in, 0 for none.
func (c *compiler) fanOutOf(set int32) int32 {
	for set != 0 && !c.sets[set].FanOut {
		set = c.sets[set].Parent
	}
	return set
}

// openFanOut gives the items of a demux their row set.
func (c *compiler) openFanOut(s *step) {
	set := int32(len(c.sets)) //nolint:gosec // as many as steps
	var names []string
	for _, t := range s.op.Demux.Items {
		names = append(names, t.Name)
	}
	c.sets = append(c.sets, RowSet{Parent: s.set, Text: "item of " + strings.Join(names, ", "), FanOut: true})
	c.choices = append(c.choices, s.out[0])
	for _, slot := range s.out {
		c.setOf[slot] = set
	}
}

// closeFanOut gives what a gather writes the row set around the fan-out.
func (c *compiler) closeFanOut(s *step) error {
	set := c.setOf[s.in[0]]
	f := c.fanOutOf(set)
	switch {
	case f == 0:
		return s.noFanOut()
	case f != set:
		return config.WithFix(s.level.errorf(config.MixedRows, s.op.Field, "parameter '%s' gathers the tensor '%s', which is not there for each item: it is written %s",
			strings.TrimPrefix(s.op.Field, "parameters."), c.names[s.in[0]], c.sets[set].text()), "give the other items a value by step.MODEL.otherwise, or join it with others by ensemble.first_of")
	}
	s.set = c.sets[f].Parent
	for _, slot := range s.out {
		c.setOf[slot] = s.set
	}
	return nil
}

// text says which rows a set has. For example, "when a[0] > 1" or "for each item of crops".
func (s *RowSet) text() string {
	if s.FanOut {
		return "for each " + s.Text
	}
	return "when " + s.Text
}

// fanOuts checks what the steps inside of fan-outs read.
func (c *compiler) fanOuts() error {
	if !slices.ContainsFunc(c.sets, func(s RowSet) bool { return s.FanOut }) {
		return nil
	}
	written := c.written()
	for _, s := range c.leaves {
		f := c.fanOutOf(s.set)
		if s.op != nil && s.op.gather != nil {
			f = c.setOf[s.in[0]]
		}
		if f == 0 {
			continue
		}
		if s.op != nil && (s.op.Route != nil || s.op.Joins != nil || s.op.Shadow != nil) {
			return config.WithFix(s.level.errorf(config.NotHonoured, s.field(), "step '%s' runs %s: splits, canaries and shadows are supported for steps outside of fan-outs",
				s.name, c.sets[f].text()), "put them around the whole fan-out: route a step that is an ensemble with the fan-out inside")
		}
		for i, slot := range s.in {
			if slot == None || written[slot].free {
				continue
			}
			if _, ok := c.access(s, i, f, &written[slot]); !ok {
				return s.level.errorf(config.ShapesDiffer, s.field(), "step '%s' runs %s, and its input %s of dims %s does not fit a row of tensor '%s' of shape %s",
					s.name, c.sets[f].text(), s.sig.Inputs[i].Name, s.sig.Inputs[i].Dims, c.names[slot], written[slot].shape)
			}
		}
	}
	return c.fanOutCycles()
}

// access returns how input i of a step in fan-out f reads a tensor: by rows, or, where it has no batch dimension, the whole as each row.
func (c *compiler) access(s *step, i int, f int32, from *producer) (whole, ok bool) {
	reader, writer, rule := s.batchesIn(), from.batches, s.rules[i]
	if c.fanOutOf(c.setOf[s.in[i]]) == f { // an item
		switch {
		case reader == writer:
			return !writer, rule == AsIs
		case reader:
			return true, rule == Prepend
		default:
			return false, rule == Strip
		}
	}
	switch {
	case from.rank < 0: // an input of an ensemble that is not given
		return true, true
	case rule == Strip:
		return false, !reader
	case rule == Prepend:
		return true, reader && !writer
	default:
		return !reader, reader || !writer
	}
}

// batchesIn reports whether the inputs of a step have a batch dimension.
func (s *step) batchesIn() bool {
	return s.sig.MaxBatch > 0 && (s.op == nil || s.op.demux == nil || s.op.demux.Batched)
}

// batchesOut reports whether the outputs of a step have a batch dimension.
func (s *step) batchesOut() bool {
	return s.sig.MaxBatch > 0 && (s.op == nil || s.op.gather == nil || s.op.gather.Batched)
}

// fanOutCycles refuses a step inside of a fan-out that needs what is gathered from it: a fan-out runs as a whole.
func (c *compiler) fanOutCycles() error {
	for f := range int32(len(c.sets)) { //nolint:gosec // as many as steps
		if !c.sets[f].FanOut {
			continue
		}
		var ends []int
		for i, s := range c.leaves {
			if s.op != nil && s.op.gather != nil && c.setOf[s.in[0]] == f {
				ends = append(ends, i)
			}
		}
		late := c.after(ends)
		for _, s := range c.leaves {
			if s.op != nil && s.op.gather != nil || !c.inside(s.set, f) {
				continue
			}
			for _, slot := range s.in {
				if slot != None && late[slot] && !c.inside(c.setOf[slot], f) {
					return config.WithFix(s.level.errorf(config.Circle, s.field(), "step '%s' runs %s and needs tensor '%s', which is there when all items are gathered",
						s.name, c.sets[f].text(), c.names[slot]), "divide the tensor a second time, by a demux of another step, and read it in that fan-out")
				}
			}
		}
	}
	return nil
}

// typable returns the first operation whose inputs have types, if it can one that reads no other's output; -1 for none.
func typable(list []config.Operation, known map[string]*portInfo) int {
	first := -1
	for i := range list {
		if slices.ContainsFunc(list[i].In, func(t string) bool { return known[t] == nil }) {
			continue
		}
		late := slices.ContainsFunc(list, func(o config.Operation) bool {
			return o.When == nil && slices.ContainsFunc(o.Written(), func(t string) bool { return slices.Contains(list[i].In, t) })
		})
		if !late {
			return i
		}
		if first < 0 {
			first = i
		}
	}
	return first
}
