package exec

import (
	"bytes"
	"slices"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// fillGroup moves the items of a group, and the rows around of each, into the slots of the run that executes it.
func (r *run) fillGroup(c *run, f *fanOut, st *fanState, in []tensor.Tensor) (err error) {
	g := st.groups[c.group.index]
	order := st.order[g.from:g.to]
	for i := range f.Demux.Items {
		t := &f.Demux.Items[i]
		u := &st.units[t.In]
		shape := u.shape
		if t.Shapes >= 0 {
			shape = tensor.Of(u.dims(st.items[order[0]].at, t.Rank)...)
		}
		at := func(i int) int32 { return st.items[order[i]].at }
		if c.slots[f.Items[i]], err = r.take(&in[t.In], u, t.DType, shape, len(order), at); err != nil {
			return status.Prefixf(err, "items of tensor '%s': ", f.x.plan.Names[f.Items[i]])
		}
	}
	for i, s := range f.Around {
		t := &in[f.First+i]
		if !t.Present() {
			continue
		}
		at := func(i int) int32 { return st.items[order[i]].row }
		if c.slots[s], err = r.take(t, &st.units[f.First+i], t.DType, st.units[f.First+i].shape, len(order), at); err != nil {
			return status.Prefixf(err, "rows of tensor '%s' for each item: ", f.x.plan.Names[s])
		}
	}
	return nil
}

// take returns a tensor of n units of another one, the unit at(i) at each position i: a view where they are neighbours, else a copy.
func (r *run) take(t *tensor.Tensor, u *units, d tensor.DType, shape tensor.Shape, n int, at func(i int) int32) (tensor.Tensor, error) {
	size, neighbours := 0, u.skip == 0
	for i := range n {
		from, to := u.span(at(i))
		size += to - from
		neighbours = neighbours && at(i) == at(0)+int32(i) //nolint:gosec // few
	}
	if neighbours && n > 0 {
		from, _ := u.span(at(0))
		v := t.Retain()
		v.Shape, v.Off, v.Len = shape.Prepend(int64(n)), t.Off+from, size
		return v, nil
	}
	out, err := tensor.NewBytes(r.x.alloc, shape.Prepend(int64(n)), size)
	if err != nil {
		return out, err
	}
	out.DType = d
	dst, src := out.Bytes(), t.Bytes()
	for i := range n {
		from, to := u.span(at(i))
		dst = dst[copy(dst, src[from:to]):]
	}
	return out, nil
}

// gather puts the tensors of all groups of a fan-out together, in the order of the items, into the slots of its node.
func (r *run) gather(n int32) error {
	f := r.x.fanOuts[n]
	st, out := &r.fans[f.at], r.x.plan.Nodes[n].Out
	for i := range f.Gathers {
		g := &f.Gathers[i]
		t, err := r.collect(st, g)
		if err != nil {
			return err
		}
		if s := out[g.Out]; s != plan.None {
			r.slots[s] = t
		} else {
			t.Release()
		}
		if g.CountsOut >= 0 && out[g.CountsOut] != plan.None {
			if r.slots[out[g.CountsOut]], err = r.countsTensor(st, g.Batched); err != nil {
				return err
			}
		}
		if f := r.req.Trace.Snapshot(); f != nil && out[g.Out] != plan.None {
			r.capture(f, r.x.captureEdges()[out[g.Out]], r.subNumber(), &r.slots[out[g.Out]])
		}
	}
	return nil
}

// countsTensor returns the number of items of each row.
func (r *run) countsTensor(st *fanState, batched bool) (tensor.Tensor, error) {
	shape := tensor.Of(1)
	if batched {
		shape = tensor.Of(int64(st.rows), 1)
	}
	t, err := tensor.New(r.x.alloc, tensor.Int32, shape)
	if err == nil {
		copy(tensor.Slice[int32](&t), st.counts)
	}
	return t, err
}

// collect returns one gathered tensor; absent when the request does not need it.
func (r *run) collect(st *fanState, g *plan.Gathered) (tensor.Tensor, error) {
	c := collector{r: r, g: g, st: st, parts: st.parts[:0]}
	defer func() {
		tensor.ReleaseAll(c.parts)
		st.parts = c.parts
	}()
	for _, most := range st.counts {
		c.each = max(c.each, int(most))
	}
	for i, m := range st.counts {
		if g.Pad == nil && m != st.counts[0] {
			return tensor.Tensor{}, status.Errorf(status.InvalidArg, "tensor '%s' has %d items in row 0 and %d in row %d, expected the same count: give ensemble.gather a value for 'pad', or send the rows in requests of their own",
				g.Name, st.counts[0], m, i)
		}
	}
	if absent, err := c.read(); err != nil || absent {
		return tensor.Tensor{}, err
	}
	if err := c.measure(); err != nil {
		return tensor.Tensor{}, err
	}
	if len(c.parts) == 1 && len(st.items) == st.rows*c.each {
		t := c.parts[0].Move()
		t.Shape = c.whole()
		return t, nil
	}
	return c.copy()
}

// collector makes a gathered tensor.
type collector struct {
	r     *run
	g     *plan.Gathered
	st    *fanState
	each  int             // items of a row of the result
	parts []tensor.Tensor // per group
	shape tensor.Shape    // of an item
}

// read takes the tensor of each group. It reports whether no group has it.
func (c *collector) read() (absent bool, err error) {
	missing := 0
	for i, run := range c.st.runs {
		t := run.read(c.g.Slot)
		c.parts = append(c.parts, t)
		if !t.Present() {
			missing++
			continue
		}
		p := &c.parts[i]
		n := c.st.groups[i].size()
		if !fit(p, c.g.Rule) || p.Shape.Rank() == 0 || p.Shape.Dim(0) != int64(n) {
			return false, status.Errorf(status.InvalidArg, "step '%s' returned the tensor '%s' of shape %s, expected %d rows as it was given", c.g.Step, c.g.Name, t.Shape, n)
		}
		if err := run.toHost(p, c.g.Name); err != nil {
			return false, err
		}
	}
	if missing > 0 && missing < len(c.parts) {
		return false, status.Errorf(status.InvalidArg, "step '%s' returned the tensor '%s' for %d of %d groups of items, expected all", c.g.Step, c.g.Name, len(c.parts)-missing, len(c.parts))
	}
	return missing > 0, nil
}

// measure finds the shape of an item, which all must have.
func (c *collector) measure() error {
	c.shape = c.g.Dims
	for i, d := range c.shape.Dims() {
		if d < 0 {
			c.shape.SetDim(i, 0)
		}
	}
	for i := range c.parts {
		shape := c.parts[i].Shape.Tail()
		if i > 0 && !shape.Equal(c.shape) {
			return status.Errorf(status.InvalidArg, "tensor '%s' of step '%s' has items of the shapes %s and %s, expected one shape: only items of equal shape can be gathered",
				c.g.Name, c.g.Step, c.shape, shape)
		}
		if c.parts[i].DType != c.g.DType {
			return status.Errorf(status.InvalidArg, "tensor '%s' of step '%s' is of type %s, expected %s", c.g.Name, c.g.Step, c.parts[i].DType, c.g.DType)
		}
		c.shape = shape
	}
	return nil
}

// whole returns the shape of the gathered tensor.
func (c *collector) whole() tensor.Shape {
	shape := c.shape
	if c.g.Flat {
		shape = shape.Tail()
	}
	if shape = shape.Prepend(int64(c.each)); c.g.Batched {
		shape = shape.Prepend(int64(c.st.rows))
	}
	return shape
}

// place is where an item is: a unit of a part.
type place struct{ part, unit int32 }

// copy returns the items and the padding as one tensor.
func (c *collector) copy() (tensor.Tensor, error) {
	c.st.places = slices.Grow(c.st.places[:0], len(c.st.items))[:len(c.st.items)]
	c.st.spans = slices.Grow(c.st.spans[:0], len(c.parts))[:len(c.parts)]
	places, spans := c.st.places, c.st.spans
	size, elements := 0, int(c.shape.Elements())
	for i := range c.parts {
		g := c.st.groups[i]
		if err := spans[i].find(&c.parts[i], int(g.size()), elements); err != nil {
			return tensor.Tensor{}, status.Prefixf(err, "tensor '%s' of step '%s': ", c.g.Name, c.g.Step)
		}
		size += c.parts[i].Len
		for k, m := range c.st.order[g.from:g.to] {
			places[m] = place{int32(i), int32(k)} //nolint:gosec // few
		}
	}
	pad := bytes.Repeat(c.g.Pad, elements)
	size += len(pad) * (c.st.rows*c.each - len(places))
	out, err := tensor.NewBytes(c.r.x.alloc, c.whole(), size)
	if err != nil {
		return out, err
	}
	out.DType = c.g.DType
	dst, next := out.Bytes(), 0
	for _, n := range c.st.counts {
		for range n {
			p := places[next]
			from, to := spans[p.part].span(p.unit)
			dst = dst[copy(dst, c.parts[p.part].Bytes()[from:to]):]
			next++
		}
		for range c.each - int(n) {
			dst = dst[copy(dst, pad):]
		}
	}
	return out, nil
}
