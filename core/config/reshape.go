package config

import "github.com/tutti-server/tutti/core/tensor"

// Reshaping is the shape that a tensor has at the model where requests use another one
// with the same elements. Variable extents correspond in order. It is immutable.
type Reshaping struct {
	// Dims are the model's, without the batch dimension.
	Dims tensor.Shape

	model, api tensor.Shape // with the batch dimension, if any
	pairs      []pair       // the variable extents, batch dimension included
}

// pair is one variable extent: its dimension on either side.
type pair struct{ api, model int }

// NewReshaping returns the reshape between dims as requests have them and those of the
// model; ok is false when their elements or variable extents differ. batches tells
// that a batch dimension comes before both.
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

// chunks returns the number of elements between each two variable extents, -1 for
// one that no tensor can have. [2,4,-1,6] has 8 and 6.
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

// ToModel makes s, a shape that requests use, the model's.
//
// hot: no allocation up to eight dimensions.
func (r *Reshaping) ToModel(s *tensor.Shape) {
	out := r.model
	for _, p := range r.pairs {
		out.SetDim(p.model, s.Dim(p.api))
	}
	*s = out
}

// OfModel reports whether s is a shape that the model is declared to have.
func (r *Reshaping) OfModel(s *tensor.Shape) bool { return s.Matches(r.model) }

// ToRequest makes s, a shape of the model, the one that requests use.
//
// hot: no allocation up to eight dimensions.
func (r *Reshaping) ToRequest(s *tensor.Shape) {
	out := r.api
	for _, p := range r.pairs {
		out.SetDim(p.api, s.Dim(p.model))
	}
	*s = out
}

// narrow returns a reshape to model, which is r's with some variable extents fixed,
// and the dims that requests then have.
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
		return r, api // cannot be: both sides got the same extents
	}
	return narrowed, api
}

// ModelDims returns the dims that the model has: the reshaped ones, where there are.
func (p *Port) ModelDims() tensor.Shape {
	if p.Reshape != nil {
		return p.Reshape.Dims
	}
	return p.Dims
}

// AtModel returns the signature as the model sees it: with the model's dims in place
// of the requests'. Computed inputs stay apart.
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

// ModelOf returns what cfg declares of the model itself: its inputs as the model has
// them, with the computed ones after those of requests, and its outputs.
func ModelOf(sig *Signature) *Signature {
	m := sig.AtModel()
	for i := range m.Inputs {
		m.Inputs[i].whole()
	}
	for i := range m.Outputs {
		m.Outputs[i].whole()
	}
	for i := range m.Computed {
		c := &m.Computed[i]
		m.Inputs = append(m.Inputs, Port{Name: c.Name, DType: c.DType, Dims: c.Dims(), Whole: true})
	}
	m.Computed, m.Scattered = nil, nil
	return m
}

// whole gives a whole port the one variable dimension that it has at the model.
func (p *Port) whole() {
	if p.Whole {
		p.Dims = tensor.Of(-1)
	}
}
