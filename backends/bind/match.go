package bind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// declared is an input or output of config.pbtxt.
type declared interface {
	GetName() string
	GetDataType() modelconfig.DataType
	GetDims() []int64
	GetReshape() *modelconfig.ModelTensorReshape
}

// match checks the shape of io against the file's port p. It returns the dims at the model, and the reshape of Bound.
func (b *Binding[R]) match(field string, p *Port[R], io declared, output bool) (tensor.Shape, Extents, error) {
	dims := io.GetDims()
	if r := io.GetReshape(); r != nil {
		dims = r.GetShape() // the backend sees the model's shape
	}
	api := b.batched(dims)
	model := api
	if b.scalar(p, api) {
		model = api[:len(p.Shape)]
	}
	var reshape Extents
	if len(api) != len(model) {
		reshape = follow(api, model, output)
	}
	return tensor.Of(dims...), reshape, b.compare(field, p, model, output)
}

// find returns the file's port with that name, and checks its type.
func (b *Binding[R]) find(field, name string, want tensor.DType, output bool) (p Port[R], err error) {
	ports := b.model.Ins
	if output {
		ports = b.model.Outs
	}
	ok := false
	if i := slices.IndexFunc(ports, func(p Port[R]) bool { return p.Name == name }); i >= 0 {
		p, ok = ports[i], true
	} else if b.model.FindAlias != nil {
		p, ok = b.model.FindAlias(name, output)
	}
	kind := Side(output)
	if !ok {
		allowed := names(ports)
		near := config.DidYouMean(name, strings.Split(allowed, ", "))
		if near != "" {
			near = "." + near
		}
		return p, config.WithFix(config.Errorf(config.Mismatch, field+".name", "unable to load model '%s', unexpected inference %s '%s', allowed %ss are: %s%s",
			b.Sig.Model, kind, name, kind, allowed, near), "use a name of the model's file")
	}
	if want != p.DType {
		return p, config.WithFix(config.Errorf(config.Mismatch, field+".data_type",
			"unable to load model '%s', configuration expects datatype %s for %s '%s', model provides %s",
			b.Sig.Model, want.ConfigName(), kind, name, p.DType.ConfigName()), "write data_type: "+p.DType.ConfigName())
	}
	return p, nil
}

// scalar reports whether the file has no dimensions besides the batch and the configuration has only ones, because dims cannot
// be empty there.
func (b *Binding[R]) scalar(p *Port[R], api []int64) bool {
	rest := len(b.batched(nil))
	return !p.AnyRank && len(p.Shape) == rest && len(api) > rest &&
		!slices.ContainsFunc(api[rest:], func(d int64) bool { return d != 1 })
}

// compare checks configured dimensions against the file. An input may be narrower than the file declares. An output must not be,
// except with LooseOutputs.
func (b *Binding[R]) compare(field string, p *Port[R], dims []int64, output bool) error {
	if p.AnyRank {
		return nil
	}
	batch := b.Sig.MaxBatch > 0
	if batch && (len(p.Shape) == 0 || !b.model.FixedBatch && p.Shape[0] != -1) {
		return config.WithFix(config.Errorf(config.Mismatch, "max_batch_size", "model '%s', tensor '%s': for the model to support batching the shape should have at "+
			"least 1 dimension and the first dimension must be -1; but shape expected by the model is %s", b.Sig.Model, p.Name, tensor.Of(p.Shape...)),
			"write max_batch_size: 0 and the whole shape as dims, or export the model with a variable first dimension")
	}
	differs := ""
	if len(dims) == len(p.Shape) {
		i := len(b.batched(nil)) // the batch dimension agrees
		for i < len(dims) && b.agree(p.Shape[i], dims[i], output) {
			i++
		}
		if i == len(dims) {
			return nil
		}
		differs = fmt.Sprintf(": dimension %d is %d in the model and %d in the configuration", i+1, p.Shape[i], dims[i])
	}
	how := "shape "
	if batch {
		how = "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape "
	}
	return config.WithFix(config.Errorf(config.Mismatch, field+".dims",
		"model '%s', tensor '%s': the model expects %d dimensions (shape %s) but the model configuration specifies %d dimensions (%s%s)%s",
		b.Sig.Model, p.Name, len(p.Shape), tensor.Of(p.Shape...), len(dims), how, tensor.Of(dims...), differs), b.dimsFix(p.Shape))
}

// dimsFix returns the advice which dims to configure for a shape of the file.
func (b *Binding[R]) dimsFix(file []int64) string {
	rest := file[min(len(file), len(b.batched(nil))):]
	if len(rest) == 0 {
		rest = []int64{1}
	}
	fix := "write dims: [ " + strings.ReplaceAll(strings.Trim(fmt.Sprint(rest), "[]"), " ", ", ") + " ]"
	if b.Sig.MaxBatch > 0 {
		fix += ", without the batch dimension"
	}
	return fix
}

// agree reports whether a configured dimension is valid for a dimension of the file.
func (b *Binding[R]) agree(file, configured int64, output bool) bool {
	switch {
	case file == configured:
		return true
	case output && b.model.LooseOutputs:
		return file == -1 || configured == -1
	}
	return file == -1 && !output
}

func names[R any](ports []Port[R]) string {
	list := make([]string, len(ports))
	for i := range ports {
		list[i] = ports[i].Name
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

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
