package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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

// declaration is an input or output of a configuration.
type declaration struct {
	port
	kind, field string // for example, input and input[0]
}

// portsOf returns the inputs and then the outputs of a configuration.
func portsOf(cfg *modelconfig.ModelConfig) (list []declaration) {
	for i, in := range cfg.GetInput() {
		list = append(list, declaration{in, "input", fmt.Sprintf("input[%d]", i)})
	}
	for i, out := range cfg.GetOutput() {
		list = append(list, declaration{out, "output", fmt.Sprintf("output[%d]", i)})
	}
	return list
}

// portExtras checks what only inputs, or only outputs have.
func (l *problems) portExtras(p declaration) {
	dims := len(p.GetDims())
	switch x := p.port.(type) {
	case *modelconfig.ModelInput:
		l.addIf(x.GetFormat() != modelconfig.ModelInput_FORMAT_NONE && dims != 3 && (dims > 0 || l.mustDeclare()), PortFormat, p.field+".format",
			"model input '%s' %s requires 3 dims for %s", x.GetName(), x.GetFormat(), l.cfg.GetName())
	case *modelconfig.ModelOutput:
		f := x.GetLabelFilename()
		l.addIf(f != "" && !filepath.IsLocal(f), FileOutside, p.field+".label_filename",
			"label file path '%s' for output '%s' in model '%s' is outside model directory", f, x.GetName(), l.cfg.GetName())
	}
}

func (l *problems) localFile(field, what, file string) {
	l.addIf(!filepath.IsLocal(file), FileOutside, field, "%s '%s' of model '%s' is outside model directory", what, file, l.cfg.GetName())
}

// signatureBackends are the backends whose models provide the types and dims of their tensors.
var signatureBackends = map[string]bool{
	onnxRuntime: true, nativeBackend: true, "tensorrt": true, "openvino": true, pythonBackend: true, "tensorflow": true, "dali": true,
	"repeat": true, "square": true, "sequence": true,
}

// ProvidesSignature reports whether the model of this configuration can provide the types and dims of its inputs
// and outputs, so that the configuration may leave them out.
func ProvidesSignature(cfg *modelconfig.ModelConfig) bool {
	return IsEnsemble(cfg) || signatureBackends[cfg.GetBackend()]
}

// mustDeclare reports whether nothing will provide a missing type or missing dims.
func (l *problems) mustDeclare() bool { return l.complete || !ProvidesSignature(l.cfg) }

func (l *problems) port(p declaration) {
	name, model, kind, field := p.GetName(), l.cfg.GetName(), p.kind, p.field
	if name == "" {
		l.add(PortName, field, "model %s must specify 'name' for %s", kind, model)
		return
	}
	_, known := modelconfig.DataType_name[int32(p.GetDataType())]
	untyped, shapeless := p.GetDataType() == modelconfig.DataType_TYPE_INVALID, len(p.GetDims()) == 0
	l.addIf(!known || untyped && l.mustDeclare(), PortType, field+".data_type", "model %s '%s' must specify 'data_type' for %s", kind, name, model)
	l.addIf(shapeless && l.mustDeclare(), PortDims, field+".dims", "model %s '%s' must specify 'dims' for %s", kind, name, model)
	l.addIf((untyped || shapeless) && !l.mustDeclare() && !IsEnsemble(l.cfg), InferredTensor, field,
		"%s '%s' of model '%s' has no data_type or dims, which are taken from the model", kind, name, model)
	l.addIf(slices.ContainsFunc(p.GetDims(), wrongDim), PortDims, field+".dims",
		"model %s '%s' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for %s", kind, name, model)
	l.addIf(p.GetIsShapeTensor() && l.cfg.GetBackend() != "tensorrt", ShapeTensor, field+".is_shape_tensor",
		"shape tensors are only supported for TensorRT platform for %s", model)
	switch r := p.GetReshape(); {
	case r == nil, l.complete:
	case len(p.GetDims()) > 0:
		l.reshape(p)
	case !l.mustDeclare(): // the model provides its own side of a reshape only
		l.add(PortDims, field+".dims", "model %s '%s' must specify 'dims' for %s", kind, name, model)
	}
}

// reshape compares both shapes of a reshape: they have the same number of variable extents, and the fixed extents
// between each two of them have the same product. For example, [2,4,-1] can become [8,-1].
func (l *problems) reshape(p declaration) {
	shape := p.GetReshape().GetShape()
	from, to := chunks(p.GetDims()), chunks(shape)
	problem := "has different size for dims and reshape"
	switch {
	case slices.ContainsFunc(shape, wrongDim):
		problem = "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension"
	case len(shape) == 0 && l.cfg.GetMaxBatchSize() == 0:
		problem = "cannot have empty reshape for non-batching model as scalar tensors are not supported"
	case slices.Equal(from, to) && !slices.Contains(from, -1):
		return
	case len(from) != len(to) && len(from) > 1 && len(to) > 1:
		problem = "has different number of variable-size dimensions for dims and reshape"
	}
	l.add(Reshape, p.field+".reshape", "model %s '%s' %s for %s", p.kind, p.GetName(), problem, l.cfg.GetName())
}

// wrongDim reports whether a dimension is neither an extent nor variable.
func wrongDim(d int64) bool { return d < 1 && d != -1 }

// maxElements bounds the elements of a tensor, so that its size does not overflow.
const maxElements = 1 << 48

// names rejects duplicate names of inputs or outputs.
func (l *problems) names() {
	seen := map[string]bool{}
	for _, p := range portsOf(l.cfg) {
		l.addIf(p.GetName() != "" && seen[p.kind+p.GetName()], PortTwice, p.field+".name",
			"model %s '%s' is listed more than once for %s", p.kind, p.GetName(), l.cfg.GetName())
		seen[p.kind+p.GetName()] = true
	}
}

// conventions checks names to which a backend gives a meaning.
func (l *problems) conventions() {
	names := map[string][]string{}
	for _, p := range portsOf(l.cfg) {
		names[p.kind] = append(names[p.kind], p.GetName())
	}
	switch l.cfg.GetBackend() {
	case "pytorch":
		l.list = append(l.list, PyTorchNames(l.cfg.GetName(), names["input"], names["output"])...)
	case "oneflow":
		l.list = append(l.list, OneFlowNames(l.cfg.GetName(), names["input"], names["output"])...)
	}
}

// indexOfName splits a name of the form NAME__INDEX.
func indexOfName(name string) (int, bool) {
	at := strings.LastIndex(name, "__")
	if at <= 0 || at+2 == len(name) || strings.Trim(name[at+2:], "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(name[at+2:])
	return n, err == nil
}

// PyTorchNames checks the names of a TorchScript model's tensors. Inputs named NAME__INDEX are positions of
// forward; for example, INPUT__0. Other names are arguments of forward, or keys of a dictionary. If both forms are
// mixed, the declaration order counts and a notice says so. Several outputs are all NAME__INDEX, or all keys or in
// declaration order. An index must be unique and below the number of tensors.
func PyTorchNames(model string, inputs, outputs []string) []Diagnostic {
	n := &problems{cfg: &modelconfig.ModelConfig{Name: model}}
	indexed := func(name string) bool {
		_, ok := indexOfName(name)
		return ok
	}
	switch free := slices.DeleteFunc(slices.Clone(inputs), indexed); {
	case len(free) == 0:
		n.indices("input", inputs)
	case len(free) < len(inputs):
		n.add(MixedNaming, "input", "PyTorch model '%s' mixes input names of the form <name>__<index> with others, so inputs are passed in the order of their declaration", model)
	}
	if slices.ContainsFunc(outputs, indexed) && len(outputs) > 1 {
		n.indices("output", outputs)
	}
	return n.list
}

func (l *problems) indices(kind string, names []string) {
	model, used := l.cfg.GetName(), map[int]string{}
	for i, name := range names {
		field := fmt.Sprintf("%s[%d].name", kind, i)
		at, ok := indexOfName(name)
		switch {
		case !ok:
			l.add(TensorNaming, field, "PyTorch model '%s' %s '%s' does not follow <name>__<index> naming convention", model, kind, name)
		case used[at] != "":
			l.add(TensorNaming, field, "PyTorch model '%s' has %ss '%s' and '%s' with one index", model, kind, used[at], name)
		case at >= len(names):
			l.add(TensorNaming, field, "PyTorch model '%s' %s '%s' has index %d, expected one below %d", model, kind, name, at, len(names))
		default:
			used[at] = name
		}
	}
}

// OneFlowNames checks the names of a OneFlow model's tensors: INPUT_0, INPUT_1, ... and OUTPUT_0, OUTPUT_1, ...
// Each number must be unique and below the number of tensors.
func OneFlowNames(model string, inputs, outputs []string) []Diagnostic {
	l := &problems{cfg: &modelconfig.ModelConfig{Name: model}}
	l.numbered("input", "INPUT_", inputs)
	l.numbered("output", "OUTPUT_", outputs)
	return l.list
}

func (l *problems) numbered(kind, prefix string, names []string) {
	for i, name := range names {
		number, ok := strings.CutPrefix(name, prefix)
		at, err := strconv.Atoi(number)
		l.addIf(!ok || err != nil || at < 0 || at >= len(names) || strconv.Itoa(at) != number, TensorNaming, fmt.Sprintf("%s[%d].name", kind, i),
			"OneFlow model '%s' %s '%s' does not follow the naming convention, expected %s0 to %s%d", l.cfg.GetName(), kind, name, prefix, prefix, len(names)-1)
	}
}

// batchTensors checks batch_input and batch_output: inputs computed from a whole batch, and outputs that are split
// over its requests.
func (l *problems) batchTensors() {
	b := &batchTensors{problems: l, names: map[string]bool{}, targets: map[string]bool{}}
	for _, p := range portsOf(l.cfg) {
		b.names[p.kind+":"+p.GetName()] = true
	}
	if IsEnsemble(l.cfg) && len(l.cfg.GetBatchInput())+len(l.cfg.GetBatchOutput()) > 0 {
		l.add(BatchTensor, "batch_input", "ensemble '%s' sets batch_input or batch_output, which belong to the model of a step", l.cfg.GetName())
		return
	}
	for i, in := range l.cfg.GetBatchInput() {
		b.input(fmt.Sprintf("batch_input[%d]", i), in)
	}
	for i, out := range l.cfg.GetBatchOutput() {
		b.output(fmt.Sprintf("batch_output[%d]", i), out)
	}
}

// batchTensors has the names that batch_input and batch_output may refer to.
type batchTensors struct {
	*problems
	names, targets map[string]bool // of ports and of targets so far, as KIND:NAME
}

func (b *batchTensors) input(field string, in *modelconfig.BatchInput) {
	if _, known := modelconfig.BatchInput_Kind_name[int32(in.GetKind())]; !known {
		b.add(BatchTensor, field, "unknown batch input kind '%d' for %s", in.GetKind(), b.cfg.GetName())
		return
	}
	n, d := len(in.GetSourceInput()), in.GetDataType()
	b.addIf(n != 1, BatchTensor, field, "batch input kind '%s' expects 1 source input, got %d for %s", in.GetKind(), n, b.cfg.GetName())
	b.addIf(d != modelconfig.DataType_TYPE_INT32 && d != modelconfig.DataType_TYPE_FP32, BatchTensor, field,
		"batch input data type must be TYPE_INT32 or TYPE_FP32 for %s", b.cfg.GetName())
	b.sources(field, in.GetSourceInput())
	b.addIf(len(in.GetTargetName()) == 0, BatchTensor, field, "batch input must specify 'target_name' for %s", b.cfg.GetName())
	for _, name := range in.GetTargetName() {
		at := "input:" + name
		b.addIf(b.names[at] || b.targets[at], BatchTensor, field, "batch input target '%s' of %s is an input already", name, b.cfg.GetName())
		b.targets[at] = true
	}
}

func (b *batchTensors) output(field string, out *modelconfig.BatchOutput) {
	if _, known := modelconfig.BatchOutput_Kind_name[int32(out.GetKind())]; !known {
		b.add(BatchTensor, field, "unknown batch output kind '%d' for %s", out.GetKind(), b.cfg.GetName())
		return
	}
	n := len(out.GetSourceInput())
	b.addIf(n != 1, BatchTensor, field, "batch output kind '%s' expects 1 source input, got %d for %s", out.GetKind(), n, b.cfg.GetName())
	b.sources(field, out.GetSourceInput())
	b.addIf(len(out.GetTargetName()) == 0, BatchTensor, field, "batch output must specify 'target_name' for %s", b.cfg.GetName())
	for _, name := range out.GetTargetName() {
		at := "output:" + name
		b.addIf(!b.names[at], BatchTensor, field, "unknown target output name '%s' for %s", name, b.cfg.GetName())
		b.addIf(b.targets[at], BatchTensor, field, "target output name '%s' can only be specified once for %s", name, b.cfg.GetName())
		b.targets[at] = true
	}
}

// sources checks that each source is an input. The model may still provide inputs that the configuration does not list.
func (b *batchTensors) sources(field string, names []string) {
	for _, name := range names {
		b.addIf(len(b.cfg.GetInput()) > 0 && !b.names["input:"+name], BatchTensor, field, "unknown source input name '%s' for %s", name, b.cfg.GetName())
	}
}
