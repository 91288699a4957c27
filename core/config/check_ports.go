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

// conventions checks names to which a backend gives a meaning.
func (l *problems) conventions() {
	var ins, outs []string
	for _, in := range l.cfg.GetInput() {
		ins = append(ins, in.GetName())
	}
	for _, out := range l.cfg.GetOutput() {
		outs = append(outs, out.GetName())
	}
	var list []Diagnostic
	switch l.cfg.GetBackend() {
	case "pytorch":
		list = PyTorchNames(l.cfg.GetName(), ins, outs)
	case "oneflow":
		list = OneFlowNames(l.cfg.GetName(), ins, outs)
	}
	l.list = append(l.list, list...)
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
	n := &naming{model: model}
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

// naming collects problems with names.
type naming struct {
	model string
	list  []Diagnostic
}

func (n *naming) add(code Code, field, format string, args ...any) {
	d := newDiagnostic(code, field, fmt.Sprintf(format, args...))
	d.Model = n.model
	if len(n.list) == maxDiagnostics {
		return
	}
	n.list = append(n.list, d)
}

func (n *naming) indices(kind string, names []string) {
	used := map[int]string{}
	for i, name := range names {
		field := fmt.Sprintf("%s[%d].name", kind, i)
		at, ok := indexOfName(name)
		switch {
		case !ok:
			n.add(TensorNaming, field, "PyTorch model '%s' %s '%s' does not follow <name>__<index> naming convention", n.model, kind, name)
		case used[at] != "":
			n.add(TensorNaming, field, "PyTorch model '%s' has %ss '%s' and '%s' with one index", n.model, kind, used[at], name)
		case at >= len(names):
			n.add(TensorNaming, field, "PyTorch model '%s' %s '%s' has index %d, expected one below %d", n.model, kind, name, at, len(names))
		default:
			used[at] = name
		}
	}
}

// OneFlowNames checks the names of a OneFlow model's tensors: INPUT_0, INPUT_1, ... and OUTPUT_0, OUTPUT_1, ...
// Each number must be unique and below the number of tensors.
func OneFlowNames(model string, inputs, outputs []string) []Diagnostic {
	n := &naming{model: model}
	n.numbered("input", "INPUT_", inputs)
	n.numbered("output", "OUTPUT_", outputs)
	return n.list
}

func (n *naming) numbered(kind, prefix string, names []string) {
	for i, name := range names {
		number, ok := strings.CutPrefix(name, prefix)
		at, err := strconv.Atoi(number)
		if !ok || err != nil || at < 0 || at >= len(names) || strconv.Itoa(at) != number {
			n.add(TensorNaming, fmt.Sprintf("%s[%d].name", kind, i),
				"OneFlow model '%s' %s '%s' does not follow the naming convention, expected %s0 to %s%d", n.model, kind, name, prefix, prefix, len(names)-1)
		}
	}
}

// batchTensors checks batch_input and batch_output: inputs computed from a whole batch, and outputs that are split
// over its requests.
func (l *problems) batchTensors() {
	b := &batchTensors{problems: l, inputs: map[string]bool{}, outputs: map[string]bool{}, targets: map[string]bool{}}
	for _, in := range l.cfg.GetInput() {
		b.inputs[in.GetName()] = true
	}
	for _, out := range l.cfg.GetOutput() {
		b.outputs[out.GetName()] = true
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
	inputs, outputs map[string]bool
	targets         map[string]bool // targets
}

func (b *batchTensors) input(field string, in *modelconfig.BatchInput) {
	if _, known := modelconfig.BatchInput_Kind_name[int32(in.GetKind())]; !known {
		b.add(BatchTensor, field, "unknown batch input kind '%d' for %s", in.GetKind(), b.cfg.GetName())
		return
	}
	if n := len(in.GetSourceInput()); n != 1 {
		b.add(BatchTensor, field, "batch input kind '%s' expects 1 source input, got %d for %s", in.GetKind(), n, b.cfg.GetName())
	}
	if d := in.GetDataType(); d != modelconfig.DataType_TYPE_INT32 && d != modelconfig.DataType_TYPE_FP32 {
		b.add(BatchTensor, field, "batch input data type must be TYPE_INT32 or TYPE_FP32 for %s", b.cfg.GetName())
	}
	b.sources(field, in.GetSourceInput())
	if len(in.GetTargetName()) == 0 {
		b.add(BatchTensor, field, "batch input must specify 'target_name' for %s", b.cfg.GetName())
	}
	for _, name := range in.GetTargetName() {
		if b.inputs[name] || b.targets[name] {
			b.add(BatchTensor, field, "batch input target '%s' of %s is an input already", name, b.cfg.GetName())
		}
		b.targets[name] = true
	}
}

func (b *batchTensors) output(field string, out *modelconfig.BatchOutput) {
	if _, known := modelconfig.BatchOutput_Kind_name[int32(out.GetKind())]; !known {
		b.add(BatchTensor, field, "unknown batch output kind '%d' for %s", out.GetKind(), b.cfg.GetName())
		return
	}
	if n := len(out.GetSourceInput()); n != 1 {
		b.add(BatchTensor, field, "batch output kind '%s' expects 1 source input, got %d for %s", out.GetKind(), n, b.cfg.GetName())
	}
	b.sources(field, out.GetSourceInput())
	if len(out.GetTargetName()) == 0 {
		b.add(BatchTensor, field, "batch output must specify 'target_name' for %s", b.cfg.GetName())
	}
	once := "output:"
	for _, name := range out.GetTargetName() {
		if !b.outputs[name] {
			b.add(BatchTensor, field, "unknown target output name '%s' for %s", name, b.cfg.GetName())
		}
		if b.targets[once+name] {
			b.add(BatchTensor, field, "target output name '%s' can only be specified once for %s", name, b.cfg.GetName())
		}
		b.targets[once+name] = true
	}
}

// sources checks that each source is an input. The model may still provide inputs that the configuration does not list.
func (b *batchTensors) sources(field string, names []string) {
	for _, name := range names {
		if len(b.inputs) > 0 && !b.inputs[name] {
			b.add(BatchTensor, field, "unknown source input name '%s' for %s", name, b.cfg.GetName())
		}
	}
}
