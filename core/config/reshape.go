package config

import "github.com/tutti-server/tutti/core/tensor"

// Reshaping converts between a tensor's shape in requests and its shape at the model. Both have the same elements;
// variable extents correspond in order. It is immutable.
type Reshaping struct {
	// Dims are the model's dims, without the batch dimension.
	Dims tensor.Shape

	model, api tensor.Shape // with the batch dimension, if any
	pairs      []pair       // variable extents, including the batch dimension
}

// pair is one variable extent: its position on either side.
type pair struct{ api, model int }

// NewReshaping returns the reshape between the dims of requests and of the model. It reports false if their
// elements or variable extents differ. batches adds a batch dimension to both.
func NewReshaping(api, model tensor.Shape, batches bool) (r *Reshaping, ok bool) {
	from, to := chunks(api.Dims()), chunks(model.Dims())
	if len(from) != len(to) {
		return nil, false
	}
	for i := range from {
		if from[i] != to[i] || from[i] < 0 {
			return nil, false
		}
	}
	r = &Reshaping{Dims: model, model: model, api: api}
	if batches {
		r.model, r.api = model.Prepend(-1), api.Prepend(-1)
	}
	next := 0
	for i, d := range r.model.Dims() {
		if d != -1 {
			continue
		}
		for r.api.Dim(next) != -1 {
			next++
		}
		r.pairs = append(r.pairs, pair{next, i})
		next++
	}
	return r, true
}

// chunks returns the number of elements between each two variable extents; -1 if it overflows. For example,
// [2,4,-1,6] gives 8 and 6.
func chunks(dims []int64) []int64 {
	list := []int64{1}
	for _, d := range dims {
		last := &list[len(list)-1]
		switch {
		case d == -1:
			list = append(list, 1)
		case d < 0 || *last < 0 || d > 0 && *last > maxElements/d:
			*last = -1
		default:
			*last *= d
		}
	}
	return list
}

// ToModel converts a request's shape into the model's.
//
// hot: no allocation up to eight dimensions.
func (r *Reshaping) ToModel(s *tensor.Shape) {
	out := r.model
	for _, p := range r.pairs {
		out.SetDim(p.model, s.Dim(p.api))
	}
	*s = out
}

// OfModel reports whether s matches the model's declared shape.
func (r *Reshaping) OfModel(s *tensor.Shape) bool { return s.Matches(r.model) }

// ToRequest converts a model's shape into the request's.
//
// hot: no allocation up to eight dimensions.
func (r *Reshaping) ToRequest(s *tensor.Shape) {
	out := r.api
	for _, p := range r.pairs {
		out.SetDim(p.api, s.Dim(p.model))
	}
	*s = out
}

// narrow returns the reshape to model, r's shape with some variable extents fixed, and the dims of requests.
func (r *Reshaping) narrow(model tensor.Shape, batches bool) (*Reshaping, tensor.Shape) {
	api := r.api
	if batches {
		api = api.Tail()
	}
	for _, p := range r.pairs {
		at, from := p.model, p.api
		if batches {
			at, from = at-1, from-1
		}
		if at >= 0 {
			api.SetDim(from, model.Dim(at))
		}
	}
	narrowed, ok := NewReshaping(api, model, batches)
	if !ok {
		return r, api // unreachable: both sides have the same extents
	}
	return narrowed, api
}

// ModelDims returns the dims at the model: after the reshape, if any.
func (p *Port) ModelDims() tensor.Shape {
	if p.Reshape != nil {
		return p.Reshape.Dims
	}
	return p.Dims
}

// AtModel returns the signature with the model's dims in place of the requests'. Computed inputs are not included.
func (s *Signature) AtModel() *Signature {
	m := *s
	m.Inputs, m.Outputs = atModel(s.Inputs), atModel(s.Outputs)
	return &m
}

func atModel(ports []Port) []Port {
	list := append([]Port(nil), ports...)
	for i := range list {
		list[i].Dims, list[i].Reshape = list[i].ModelDims(), nil
	}
	return list
}

// ModelOf returns the model's own side of a signature: its inputs with the computed ones last, and its outputs.
func ModelOf(sig *Signature) *Signature {
	m := sig.AtModel()
	for i := range m.Inputs {
		m.Inputs[i].makeUnbatched()
	}
	for i := range m.Outputs {
		m.Outputs[i].makeUnbatched()
	}
	for i := range m.Computed {
		c := &m.Computed[i]
		m.Inputs = append(m.Inputs, Port{Name: c.Name, DType: c.DType, Dims: c.Dims(), Unbatched: true})
	}
	m.Computed, m.Scattered = nil, nil
	return m
}

// makeUnbatched sets the single variable dim that an unbatched port has at the model.
func (p *Port) makeUnbatched() {
	if p.Unbatched {
		p.Dims = tensor.Of(-1)
	}
}
