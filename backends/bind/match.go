package bind

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// match finds the port of the file for io, and checks its type and shape. field is the path of io in the configuration, for errors.
func (b *Binding[R]) match(field string, io declared, output bool) (config.Port, Bound[R], error) {
	name, want := io.GetName(), tensor.DType(io.GetDataType())
	p, err := b.find(field, name, want, output)
	if err != nil {
		return config.Port{}, Bound[R]{}, err
	}
	dims := io.GetDims()
	if r := io.GetReshape(); r != nil {
		dims = r.GetShape() // the backend sees the model's shape
	}
	api := b.batched(dims)
	model := api
	if b.scalar(&p, api) {
		model = api[:len(p.Shape)]
	}
	if err := b.compare(field, &p, model, output); err != nil {
		return config.Port{}, Bound[R]{}, err
	}
	bound := Bound[R]{Port: p}
	if len(api) != len(model) {
		bound.Reshape = follow(api, model, output)
	}
	return config.Port{Name: name, DType: want, Dims: tensor.Of(dims...)}, bound, nil
}

// find returns the file's port with that name, and checks its type.
func (b *Binding[R]) find(field, name string, want tensor.DType, output bool) (Port[R], error) {
	p, ok := b.named(name, output)
	if !ok {
		kind, allowed := Side(output), names(b.ports(output))
		near := config.DidYouMean(name, strings.Split(allowed, ", "))
		if near != "" {
			near = "." + near
		}
		return Port[R]{}, config.WithFix(config.Errorf(config.Mismatch, field+".name", "unable to load model '%s', unexpected inference %s '%s', allowed %ss are: %s%s",
			b.Sig.Model, kind, name, kind, allowed, near), "use a name of the model's file")
	}
	if want != p.DType {
		return Port[R]{}, config.WithFix(config.Errorf(config.Mismatch, field+".data_type",
			"unable to load model '%s', configuration expects datatype %s for %s '%s', model provides %s",
			b.Sig.Model, want.ConfigName(), Side(output), name, p.DType.ConfigName()), "write data_type: "+p.DType.ConfigName())
	}
	return p, nil
}

func (b *Binding[R]) named(name string, output bool) (Port[R], bool) {
	ports := b.ports(output)
	if i := slices.IndexFunc(ports, func(p Port[R]) bool { return p.Name == name }); i >= 0 {
		return ports[i], true
	}
	if b.model.FindAlias == nil {
		return Port[R]{}, false
	}
	return b.model.FindAlias(name, output)
}

func (b *Binding[R]) ports(output bool) []Port[R] {
	if output {
		return b.model.Outs
	}
	return b.model.Ins
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
	ok := len(dims) == len(p.Shape)
	for i := 0; ok && i < len(dims); i++ {
		ok = batch && i == 0 || b.agree(p.Shape[i], dims[i], output)
	}
	if ok {
		return nil
	}
	how := "shape "
	if batch {
		how = "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape "
	}
	return config.WithFix(config.Errorf(config.Mismatch, field+".dims",
		"model '%s', tensor '%s': the model expects %d dimensions (shape %s) but the model configuration specifies %d dimensions (%s%s)%s",
		b.Sig.Model, p.Name, len(p.Shape), tensor.Of(p.Shape...), len(dims), how, tensor.Of(dims...), b.differs(p.Shape, dims, output)), b.dimsFix(p.Shape))
}

// differs describes the first dimension that differs, or returns "" when the ranks differ.
func (b *Binding[R]) differs(file, dims []int64, output bool) string {
	if len(file) != len(dims) {
		return ""
	}
	for i := range dims {
		if (b.Sig.MaxBatch <= 0 || i > 0) && !b.agree(file[i], dims[i], output) {
			return fmt.Sprintf(": dimension %d is %d in the model and %d in the configuration", i+1, file[i], dims[i])
		}
	}
	return ""
}

// dimsFix returns the advice which dims to configure for a shape of the file.
func (b *Binding[R]) dimsFix(file []int64) string {
	rest := file[min(len(file), len(b.batched(nil))):]
	if len(rest) == 0 {
		rest = []int64{1}
	}
	words := make([]string, len(rest))
	for i, d := range rest {
		words[i] = strconv.FormatInt(d, 10)
	}
	fix := "write dims: [ " + strings.Join(words, ", ") + " ]"
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
