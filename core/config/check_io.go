package config

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// port has the fields that inputs and outputs share.
type port interface {
	GetName() string
	GetDataType() modelconfig.DataType
	GetDims() []int64
	GetReshape() *modelconfig.ModelTensorReshape
	GetIsShapeTensor() bool
}

func (l *problems) input(i int, in *modelconfig.ModelInput) {
	field := fmt.Sprintf("input[%d]", i)
	l.port(field, "input", in)
	if f := in.GetFormat(); f != modelconfig.ModelInput_FORMAT_NONE && len(in.GetDims()) != 3 && (len(in.GetDims()) > 0 || l.mustDeclare()) {
		l.add(PortFormat, field+".format", "model input '%s' %s requires 3 dims for %s", in.GetName(), f, l.cfg.GetName())
	}
}

func (l *problems) output(i int, out *modelconfig.ModelOutput) {
	field := fmt.Sprintf("output[%d]", i)
	l.port(field, "output", out)
	if f := out.GetLabelFilename(); f != "" && !filepath.IsLocal(f) {
		l.add(FileOutside, field+".label_filename",
			"label file path '%s' for output '%s' in model '%s' is outside model directory", f, out.GetName(), l.cfg.GetName())
	}
}

// localFile rejects a file outside the model's folder.
func (l *problems) localFile(field, what, file string) {
	if !filepath.IsLocal(file) {
		l.add(FileOutside, field, "%s '%s' of model '%s' is outside model directory", what, file, l.cfg.GetName())
	}
}

// signatureBackends are the backends whose models provide the types and dims of their tensors.
var signatureBackends = map[string]bool{
	onnxRuntime: true, nativeBackend: true, "tensorrt": true, "openvino": true, pythonBackend: true, "tensorflow": true,
	"repeat": true, "square": true, "sequence": true,
}

// ProvidesSignature reports whether the model of this configuration can provide the types and dims of its inputs
// and outputs, so that the configuration may leave them out.
func ProvidesSignature(cfg *modelconfig.ModelConfig) bool {
	return IsEnsemble(cfg) || signatureBackends[cfg.GetBackend()]
}

// mustDeclare reports whether nothing will provide a missing type or missing dims.
func (l *problems) mustDeclare() bool { return l.complete || !ProvidesSignature(l.cfg) }

func (l *problems) port(field, kind string, p port) {
	name, model := p.GetName(), l.cfg.GetName()
	if name == "" {
		l.add(PortName, field, "model %s must specify 'name' for %s", kind, model)
		return
	}
	_, known := modelconfig.DataType_name[int32(p.GetDataType())]
	if missing := p.GetDataType() == modelconfig.DataType_TYPE_INVALID; !known || missing && l.mustDeclare() {
		l.add(PortType, field+".data_type", "model %s '%s' must specify 'data_type' for %s", kind, name, model)
	}
	if len(p.GetDims()) == 0 && l.mustDeclare() {
		l.add(PortDims, field+".dims", "model %s '%s' must specify 'dims' for %s", kind, name, model)
	}
	if gaps := p.GetDataType() == modelconfig.DataType_TYPE_INVALID || len(p.GetDims()) == 0; gaps && !l.mustDeclare() && !IsEnsemble(l.cfg) {
		l.add(InferredTensor, field, "%s '%s' of model '%s' has no data_type or dims, which are taken from the model", kind, name, model)
	}
	for _, d := range p.GetDims() {
		if d < 1 && d != -1 {
			l.add(PortDims, field+".dims", "model %s '%s' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for %s", kind, name, model)
			break
		}
	}
	if p.GetIsShapeTensor() && l.cfg.GetBackend() != "tensorrt" {
		l.add(ShapeTensor, field+".is_shape_tensor", "shape tensors are only supported for TensorRT platform for %s", model)
	}
	switch r := p.GetReshape(); {
	case r == nil, l.complete:
	case len(p.GetDims()) > 0:
		l.reshape(field, kind, p)
	case !l.mustDeclare(): // the model provides its own side of a reshape only
		l.add(PortDims, field+".dims", "model %s '%s' must specify 'dims' for %s", kind, name, model)
	}
}

// reshape compares both shapes of a reshape: they have the same number of variable extents, and the fixed extents
// between each two of them have the same product. For example, [2,4,-1] can become [8,-1].
func (l *problems) reshape(field, kind string, p port) {
	name, model, shape := p.GetName(), l.cfg.GetName(), p.GetReshape().GetShape()
	at := field + ".reshape"
	for _, d := range shape {
		if d < 1 && d != -1 {
			l.add(Reshape, at, "model %s '%s' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension for %s", kind, name, model)
			return
		}
	}
	if len(shape) == 0 && l.cfg.GetMaxBatchSize() == 0 {
		l.add(Reshape, at, "model %s '%s' cannot have empty reshape for non-batching model as scalar tensors are not supported for %s", kind, name, model)
		return
	}
	from, to := chunks(p.GetDims()), chunks(shape)
	same := slices.Equal(from, to) && !slices.Contains(from, -1)
	switch {
	case same:
	case len(from) != len(to) && len(from) > 1 && len(to) > 1:
		l.add(Reshape, at, "model %s '%s' has different number of variable-size dimensions for dims and reshape for %s", kind, name, model)
	default:
		l.add(Reshape, at, "model %s '%s' has different size for dims and reshape for %s", kind, name, model)
	}
}

// maxElements bounds the elements of a tensor, so that its size does not overflow.
const maxElements = 1 << 48

// names rejects duplicate names of inputs or outputs.
func (l *problems) names() {
	seen := map[string]bool{}
	for i, in := range l.cfg.GetInput() {
		l.unique(seen, i, "input", in.GetName())
	}
	clear(seen)
	for i, out := range l.cfg.GetOutput() {
		l.unique(seen, i, "output", out.GetName())
	}
}

func (l *problems) unique(seen map[string]bool, i int, kind, name string) {
	if name != "" && seen[name] {
		l.add(PortTwice, fmt.Sprintf("%s[%d].name", kind, i), "model %s '%s' is listed more than once for %s", kind, name, l.cfg.GetName())
	}
	seen[name] = true
}
