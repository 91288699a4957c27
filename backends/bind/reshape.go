package bind

// Extent is one dimension of a shape that follows others: axis Axis of shape number From, or N where Axis is negative.
type Extent struct {
	N    int64
	From int
	Axis int
}

// Extents are a shape that follows one other, all From 0; nil is that shape itself.
type Extents []Extent

// Apply writes the shape that follows dims to dst and returns its rank; false where dst is too short or dims lacks a
// dimension.
func (r Extents) Apply(dst, dims []int64) (int, bool) {
	if r == nil {
		return copy(dst, dims), len(dims) <= len(dst)
	}
	if len(r) > len(dst) {
		return 0, false
	}
	for k, e := range r {
		switch {
		case e.Axis < 0:
			dst[k] = e.N
		case e.Axis >= len(dims):
			return 0, false
		default:
			dst[k] = dims[e.Axis]
		}
	}
	return len(r), true
}

// follow returns the model's shape in terms of the request's for an input, and the other way round for an output. One
// begins as the other does and goes on with ones.
func follow(api, model []int64, output bool) Extents {
	from, to := api, model
	if output {
		from, to = model, api
	}
	out := make(Extents, 0, len(to))
	for k, d := range to {
		e := Extent{N: d, Axis: -1}
		if d == -1 && k < len(from) {
			e = Extent{Axis: k}
		}
		out = append(out, e)
	}
	return out
}
