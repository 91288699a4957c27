package bind

// Extent is one dimension of a derived shape: dimension Axis of shape number From, or the constant N when Axis is negative.
type Extent struct {
	N    int64
	From int
	Axis int
}

// Extents derive a shape from one other shape, so that every From is 0. Nil is the identity. For example, {{Axis: 0}, {N: 1, Axis:
// -1}} maps [5] to [5,1].
type Extents []Extent

// Apply writes the shape derived from dims to dst and returns its rank. It returns false when dst is too short or dims lacks a
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

// follow returns the Reshape of a port whose shapes api and model differ in trailing ones: from api to model for an input, from
// model to api for an output.
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
