package batch

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
)

// layout defines how the batches of a model are formed where joining rows is not enough: ragged inputs
// are concatenated, some inputs are computed, some outputs are split as an input was joined.
type layout struct {
	inputs []layoutInput // in the order of Batch.In
	source []int         // per output: the input it is split as, or -1
}

// sourceOf returns the input of the tasks that input i of a batch is made of. It reports false if that is computed from shapes.
func (f *layout) sourceOf(i int) (port int, ok bool) {
	if f == nil {
		return i, true
	}
	return f.inputs[i].from, f.inputs[i].computed == nil
}

// layoutInput is the source of one input of a batch: an input of the tasks, or their shapes.
type layoutInput struct {
	from     int
	computed *config.Computed
}

// newLayout returns the layout of a model's batches, nil when joining rows is enough.
func newLayout(sig *config.Signature) *layout {
	if sig.JoinsRows() {
		return nil
	}
	f := &layout{inputs: make([]layoutInput, len(sig.Inputs)+len(sig.Computed)), source: slices.Repeat([]int{-1}, len(sig.Outputs))}
	for i := range sig.Computed {
		c := &sig.Computed[i]
		f.inputs[c.At].computed = c
	}
	next := 0
	for i := range f.inputs {
		if f.inputs[i].computed == nil {
			f.inputs[i].from = next
			next++
		}
	}
	for _, x := range sig.Scattered {
		f.source[x.Output] = x.Source
	}
	return f
}

// gatherLayout sets the inputs of the batch by the layout.
func (r *Runner) gatherLayout(b *backends.Batch, list *scheduler.TaskList) error {
	for i := range b.In {
		if b.In[i].Present() {
			continue // joined already
		}
		var err error
		in := &r.layout.inputs[i]
		switch c := in.computed; {
		case c != nil:
			if b.In[i], err = r.compute(list, c); err != nil {
				return status.Errorf(status.Internal, "cannot compute batch input '%s' of model '%s': %w", c.Name, r.sig.Model, err)
			}
			continue
		case !list.Head.In[in.from].Present():
		case r.sig.Inputs[in.from].Unbatched:
			b.In[i], err = r.gatherRagged(list, in.from)
		case r.sig.Inputs[in.from].ShapeTensor:
			b.In[i] = list.Head.In[in.from].Retain() // the same for all
		default:
			b.In[i], err = r.gatherRows(b, list, in.from)
		}
		if err != nil {
			return errGather(r.sig, in.from, err.Error())
		}
	}
	return nil
}

// gatherRagged concatenates the elements of all tasks in one dimension, without a copy where they are neighbours.
func (r *Runner) gatherRagged(list *scheduler.TaskList, port int) (tensor.Tensor, error) {
	if whole, ok := joinElements(list, port); ok {
		return whole, nil
	}
	return r.concatenate(list, port, elementsShape(list, port))
}

// joinElements is join for elements in one dimension, whatever the shapes of the tensors.
func joinElements(list *scheduler.TaskList, port int) (tensor.Tensor, bool) {
	first := &list.Head.In[port]
	n := 0
	for w := list.Head; w != nil; w = w.Next() {
		t := &w.In[port]
		if t.Buf != first.Buf || t.Off != first.Off+n {
			return tensor.Tensor{}, false
		}
		n += t.Len
	}
	whole := first.Retain()
	whole.Shape, whole.Len = elementsShape(list, port), n
	return whole, true
}

// elementsShape returns the shape of the elements of all tasks in one dimension.
func elementsShape(list *scheduler.TaskList, port int) tensor.Shape {
	elements := int64(0)
	for w := list.Head; w != nil; w = w.Next() {
		elements += w.In[port].Shape.Elements()
	}
	return tensor.Of(elements)
}

// maxComputed bounds a computed input: without elements and batch dimension, a request may claim any number of rows.
const maxComputed = 1 << 28

// compute returns an input computed from the shapes of another one: an entry per request, or per row for item shapes.
func (r *Runner) compute(list *scheduler.TaskList, c *config.Computed) (tensor.Tensor, error) {
	shape := computedShape(list, c)
	if n := shape.Elements(); n < 0 || n > maxComputed {
		return tensor.Tensor{}, status.Errorf(status.InvalidArg, "its shape %s has more than %d elements", shape, maxComputed)
	}
	out, err := tensor.New(r.s.Alloc, c.DType, shape)
	if err != nil {
		return out, err
	}
	v := values{dst: out.Bytes(), float: c.DType == tensor.FP32}
	switch c.Kind {
	case modelconfig.BatchInput_BATCH_MAX_ELEMENT_COUNT_AS_SHAPE:
		clear(v.dst) // only its extent counts
	case modelconfig.BatchInput_BATCH_ITEM_SHAPE, modelconfig.BatchInput_BATCH_ITEM_SHAPE_FLATTEN:
		for w := list.Head; w != nil; w = w.Next() {
			v.rows(&w.In[c.Source])
		}
	default:
		v.counts(list, c)
	}
	if v.wide {
		out.Release()
		return out, status.Errorf(status.InvalidArg, "a number of elements exceeds %d", math.MaxInt32)
	}
	return out, nil
}

// computedShape returns the shape of a computed input. A list of row shapes has a row for each one.
func computedShape(list *scheduler.TaskList, c *config.Computed) tensor.Shape {
	most, rows, rank := int64(0), int64(0), int64(0)
	for w := list.Head; w != nil; w = w.Next() {
		t := &w.In[c.Source]
		most = max(most, elementsOf(t))
		if t.Present() && t.Shape.Rank() > 0 {
			rows += t.Shape.Dim(0)
			rank = int64(t.Shape.Rank() - 1)
		}
	}
	switch c.Kind {
	case modelconfig.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO:
		return tensor.Of(int64(list.Len()) + 1)
	case modelconfig.BatchInput_BATCH_MAX_ELEMENT_COUNT_AS_SHAPE:
		return tensor.Of(most)
	case modelconfig.BatchInput_BATCH_ITEM_SHAPE:
		return tensor.Of(rows, rank)
	case modelconfig.BatchInput_BATCH_ITEM_SHAPE_FLATTEN:
		return tensor.Of(rows * rank)
	default:
		return tensor.Of(int64(list.Len()))
	}
}

// elementsOf returns the number of elements, 0 for an absent input.
func elementsOf(t *tensor.Tensor) int64 {
	if !t.Present() {
		return 0
	}
	return t.Shape.Elements()
}

// values writes integers as INT32 or FP32.
type values struct {
	dst   []byte
	float bool
	wide  bool // a number is too large for INT32
}

func (v *values) put(n int64) {
	bits := uint32(n) //nolint:gosec // wide is set
	if v.float {
		bits = math.Float32bits(float32(n))
	} else {
		v.wide = v.wide || n > math.MaxInt32
	}
	binary.LittleEndian.PutUint32(v.dst, bits)
	v.dst = v.dst[4:]
}

// counts writes the elements of each request, or the running sums: 2 3 or 2 5, for example.
func (v *values) counts(list *scheduler.TaskList, c *config.Computed) {
	sums := c.Kind != modelconfig.BatchInput_BATCH_ELEMENT_COUNT
	if c.Kind == modelconfig.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO {
		v.put(0)
	}
	sum := int64(0)
	for w := list.Head; w != nil; w = w.Next() {
		n := elementsOf(&w.In[c.Source])
		if sum += n; sums {
			n = sum
		}
		v.put(n)
	}
}

// rows writes the shape of a row once per row of t.
func (v *values) rows(t *tensor.Tensor) {
	if !t.Present() || t.Shape.Rank() == 0 {
		return
	}
	dims := t.Shape.Dims()
	for range dims[0] {
		for _, d := range dims[1:] {
			v.put(d)
		}
	}
}
