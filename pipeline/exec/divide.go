package exec

import (
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// divided are the items of a fan-out.
type divided struct {
	rows   int
	each   int     // items of a row, with padding
	counts []int32 // per row, without
	items  []item  // in order of their rows
	order  []int32 // the items by group
	groups []group
	units  []units // per input of the node: where its items or rows are
	kinds  map[kind]int32
}

// item is one item: its row, its position among all elements of the tensor, and its kind. Items of one kind have equal shapes.
type item struct{ row, at, kind int32 }

// kind is a kind that is divided further by a shape.
type kind struct {
	before int32
	dims   [plan.MaxItemRank]int64
}

// units are the pieces of equal rank that a tensor consists of.
type units struct {
	shape  tensor.Shape // of each; not of items with shapes of their own
	size   int          // bytes of each, 0 where they differ
	ends   []int        // per unit and one before: where it ends, where sizes differ
	skip   int          // bytes before the data of each unit
	shapes []int64      // per unit its dims, where shapes differ
}

// span returns the bytes of unit i.
func (u *units) span(i int32) (from, to int) {
	if u.size > 0 || u.ends == nil {
		return int(i) * u.size, int(i+1) * u.size
	}
	return u.ends[i] + u.skip, u.ends[i+1]
}

// divide lists the items of the tensors that a demux reads and forms their groups. node is that of the fan-out.
func (d *divided) divide(f *fanOut, node *plan.Node, in []tensor.Tensor) error {
	err := d.find(f, node, in)
	if err == nil {
		err = d.around(f, node, in)
	}
	if err == nil {
		err = d.count(f, in)
	}
	kinds := int32(1)
	for i := range f.Demux.Items {
		if t := &f.Demux.Items[i]; t.Shapes >= 0 && err == nil {
			kinds, err = d.sortKinds(&d.units[t.In], t, f.Demux.Counts < 0)
			err = ofTensor(err, node, t.In)
		}
	}
	if err != nil {
		return status.Prefixf(err, "'%s': ", node.Name)
	}
	d.groupItems(kinds, int32(min(f.MaxRows, len(d.items)+1))) //nolint:gosec // MaxItems bounds them
	return nil
}

// ofTensor puts the name of an input before an error.
func ofTensor(err error, node *plan.Node, port int32) error {
	if err == nil {
		return nil
	}
	return status.Prefixf(err, "tensor '%s': ", node.Signature.Inputs[port].Name)
}

// find finds the items in each tensor.
func (d *divided) find(f *fanOut, node *plan.Node, in []tensor.Tensor) error {
	if len(d.units) < len(in) {
		d.units = make([]units, len(in))
	}
	d.rows = -1
	for i := range f.Demux.Items {
		t := &f.Demux.Items[i]
		err := d.measure(&in[t.In], f.Demux)
		if err == nil {
			err = d.units[t.In].ofItems(&in[t.In], d.rows*d.each, t.Shapes >= 0, f.Demux.Batched)
		}
		if err != nil {
			return ofTensor(err, node, t.In)
		}
		if t.Shapes >= 0 {
			if err := d.units[t.In].read(&in[t.Shapes], d.rows*d.each, t.Rank); err != nil {
				return ofTensor(err, node, t.Shapes)
			}
		}
	}
	return nil
}

// tooManyItems is the error of a request with more items than its ensemble allows.
func tooManyItems(demux *plan.Demux) error {
	return status.Errorf(status.InvalidArg, "the request has more than %d items, the limit of ensemble.max_items", demux.MaxItems)
}

// measure notes the number of rows and of items in each, which every tensor of the demux has. There may be more than MaxItems if the rest is
// padding, but not of elements without bytes: a shape alone must not cost memory.
func (d *divided) measure(t *tensor.Tensor, demux *plan.Demux) error {
	if !t.Present() {
		return status.Errorf(status.InvalidArg, "it was not produced")
	}
	rows, at := 1, 0
	if demux.Batched && t.Shape.Rank() > 0 {
		rows, at = int(t.Shape.Dim(0)), 1
	}
	if t.Shape.Rank() <= at {
		return status.Errorf(status.InvalidArg, "its shape %s has no dimension of items, expected one more", t.Shape)
	}
	n := int(t.Shape.Dim(at))
	if n > max(t.Len, demux.MaxItems)/max(rows, 1) {
		return tooManyItems(demux)
	}
	if d.rows >= 0 && (n != d.each || rows != d.rows) {
		return status.Errorf(status.InvalidArg, "its shape is %s, %d rows of %d items, expected %d of %d as the others have", t.Shape, rows, n, d.rows, d.each)
	}
	d.rows, d.each = rows, n
	return nil
}

// ofItems finds n items in a tensor of shape [N, d...] per row, or, where each has a shape, elements of BYTES.
func (u *units) ofItems(t *tensor.Tensor, n int, shaped, batched bool) error {
	u.skip = 0
	if shaped {
		u.skip = tensor.EncodedLen(0)
		return u.find(t, n, 1)
	}
	if u.shape = t.Shape.Tail(); batched {
		u.shape = u.shape.Tail()
	}
	if u.shape.Rank() == 0 {
		u.shape = tensor.Of(1)
	}
	return u.find(t, n, int(u.shape.Elements()))
}

// find notes where n units of a tensor are, each of the given number of elements.
func (u *units) find(t *tensor.Tensor, n, elements int) error {
	u.size, u.ends = elements*t.DType.Size(), u.ends[:0]
	if t.DType != tensor.Bytes {
		if u.ends = nil; u.size*n != t.Len {
			return status.Errorf(status.InvalidArg, "it has %d bytes, expected %d items of %d bytes", t.Len, n, u.size)
		}
		return nil
	}
	u.size = 0
	rest := t.Bytes()
	for u.ends = append(u.ends, 0); len(u.ends) <= n; u.ends = append(u.ends, t.Len-len(rest)) {
		for range elements {
			var ok bool
			if _, rest, ok = tensor.NextBytes(rest); !ok {
				return status.Errorf(status.InvalidArg, "its %d bytes end in item %d", t.Len, len(u.ends)-1)
			}
		}
	}
	return nil
}

// around finds the rows of the tensors from around the fan-out.
func (d *divided) around(f *fanOut, node *plan.Node, in []tensor.Tensor) error {
	for port := f.First; port < len(in); port++ {
		t, u := &in[port], &d.units[port]
		if !t.Present() {
			continue
		}
		if t.Shape.Rank() == 0 || t.Shape.Dim(0) != int64(d.rows) {
			err := status.Errorf(status.InvalidArg, "its shape is %s, expected %d rows as around the fan-out", t.Shape, d.rows)
			return ofTensor(err, node, int32(port)) //nolint:gosec // few
		}
		u.shape, u.skip = t.Shape.Tail(), 0
		if err := u.find(t, d.rows, int(u.shape.Elements())); err != nil {
			return ofTensor(err, node, int32(port)) //nolint:gosec // few
		}
	}
	return nil
}

// read reads the shapes of n items.
func (u *units) read(t *tensor.Tensor, n, rank int) error {
	if !t.Present() || t.Shape.Elements() != int64(n*rank) {
		return status.Errorf(status.InvalidArg, "its shape is %s, expected %d dimensions for each of %d items", t.Shape, rank, n)
	}
	u.shapes = u.shapes[:0]
	for i := range n * rank {
		v := integer(t, i)
		if v < 0 {
			return status.Errorf(status.InvalidArg, "item %d has the extent %d, expected 0 or more", i/rank, v)
		}
		u.shapes = append(u.shapes, v)
	}
	return nil
}

// integer returns an element of an INT32 or INT64 tensor.
func integer(t *tensor.Tensor, i int) int64 {
	if t.DType == tensor.Int64 {
		return tensor.Slice[int64](t)[i]
	}
	return int64(tensor.Slice[int32](t)[i])
}

// count lists the items: of each row as many as it counts, else those that are no padding.
func (d *divided) count(f *fanOut, in []tensor.Tensor) error {
	d.counts, d.items = d.counts[:0], d.items[:0]
	var given *tensor.Tensor
	if p := f.Demux.Counts; p >= 0 {
		if given = &in[p]; !given.Present() || given.Shape.Elements() != int64(d.rows) {
			return status.Errorf(status.InvalidArg, "the counts have the shape %s, expected one for each of %d rows", given.Shape, d.rows)
		}
	}
	for row := range d.rows {
		var n int
		if given == nil {
			n = d.unpadded(f, row)
		} else {
			v := integer(given, row)
			if v < 0 || v > int64(d.each) {
				return status.Errorf(status.InvalidArg, "row %d counts %d items, expected 0 to %d, as many as it has", row, v, d.each)
			}
			n = int(v)
		}
		if len(d.items)+n > f.Demux.MaxItems {
			return tooManyItems(f.Demux)
		}
		d.counts = append(d.counts, int32(n)) //nolint:gosec // MaxItems bounds it
		for i := range n {
			d.items = append(d.items, item{row: int32(row), at: int32(row*d.each + i)}) //nolint:gosec // of a tensor in memory
		}
	}
	return nil
}

// unpadded returns how many items of a row are real, where they have shapes: those at the end whose shape is all zeros are padding.
func (d *divided) unpadded(f *fanOut, row int) int {
	most := -1
	for i := range f.Demux.Items {
		t := &f.Demux.Items[i]
		if t.Shapes < 0 {
			continue
		}
		n := d.each
		for n > 0 && isPadding(d.units[t.In].dims(int32(row*d.each+n-1), t.Rank)) { //nolint:gosec // of a tensor in memory
			n--
		}
		most = max(most, n)
	}
	if most < 0 {
		return d.each
	}
	return most
}

// dims returns the shape of an item that has its own.
func (u *units) dims(at int32, rank int) []int64 { return u.shapes[int(at)*rank : (int(at)+1)*rank] }

func isPadding(dims []int64) bool {
	for _, d := range dims {
		if d != 0 {
			return false
		}
	}
	return true
}

// sortKinds checks the shapes of the items of one tensor, divides their kinds by them, and returns the number of kinds. Without counts no item
// may be padding.
func (d *divided) sortKinds(u *units, t *plan.DemuxItems, uncounted bool) (int32, error) {
	if d.kinds == nil {
		d.kinds = map[kind]int32{}
	}
	clear(d.kinds)
	for i := range d.items {
		m := &d.items[i]
		dims := u.dims(m.at, t.Rank)
		if uncounted && isPadding(dims) {
			return 0, status.Errorf(status.InvalidArg, "item %d of row %d is empty, but a later one is not", int(m.at)%d.each, m.row)
		}
		from, to := u.span(m.at)
		if n := tensor.Of(dims...).Elements(); n < 0 || n > int64(to-from) || int(n)*t.DType.Size() != to-from {
			return 0, status.Errorf(status.InvalidArg, "item %d of row %d has %d bytes, expected those of %s %s", int(m.at)%d.each, m.row, to-from, t.DType, tensor.Of(dims...))
		}
		k := kind{before: m.kind}
		copy(k.dims[:], dims)
		id, known := d.kinds[k]
		if !known {
			id = int32(len(d.kinds)) //nolint:gosec // MaxItems bounds them
			d.kinds[k] = id
		}
		m.kind = id
	}
	return int32(len(d.kinds)), nil //nolint:gosec // MaxItems bounds them
}
