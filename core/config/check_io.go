package config

import (
	"fmt"
	"path/filepath"

	"tutti/proto/modelconfig"
)

// port is what inputs and outputs have in common.
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
	if f := in.GetFormat(); f != modelconfig.ModelInput_FORMAT_NONE && len(in.GetDims()) != 3 && (len(in.GetDims()) > 0 || l.gap()) {
		l.add(PortFormat, field+".format", "model input '%s' %s requires 3 dims", in.GetName(), f)
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

// localFile refuses a file that leads out of the model's folder.
func (l *problems) localFile(field, what, file string) {
	if !filepath.IsLocal(file) {
		l.add(FileOutside, field, "%s '%s' of model '%s' is outside model directory", what, file, l.cfg.GetName())
	}
}

// tellers are the backends whose models tell the types and dims of their tensors.
var tellers = map[string]bool{
	onnxRuntime: true, nativeBackend: true, "tensorrt": true, "openvino": true, pythonBackend: true, "tensorflow": true,
	"repeat": true, "square": true, "sequence": true,
}

// TellsSignature reports whether a model of this configuration can tell the types and
// dims of its inputs and outputs, so that they may be left out.
func TellsSignature(cfg *modelconfig.ModelConfig) bool {
	return IsEnsemble(cfg) || tellers[cfg.GetBackend()]
}

// gap reports whether nothing will fill in a missing type or missing dims.
func (l *problems) gap() bool { return l.complete || !TellsSignature(l.cfg) }

func (l *problems) port(field, kind string, p port) {
	name := p.GetName()
	if name == "" {
		l.add(PortName, field, "model %s must specify 'name'", kind)
		return
	}
	_, known := modelconfig.DataType_name[int32(p.GetDataType())]
	if missing := p.GetDataType() == modelconfig.DataType_TYPE_INVALID; !known || missing && l.gap() {
		l.add(PortType, field+".data_type", "model %s '%s' must specify 'data_type'", kind, name)
	}
	if len(p.GetDims()) == 0 && l.gap() {
		l.add(PortDims, field+".dims", "model %s '%s' must specify 'dims'", kind, name)
	}
	if gaps := p.GetDataType() == modelconfig.DataType_TYPE_INVALID || len(p.GetDims()) == 0; gaps && !l.gap() && !IsEnsemble(l.cfg) {
		l.add(InferredTensor, field, "%s '%s' of model '%s' has no data_type or dims, which are taken from the model", kind, name, l.cfg.GetName())
	}
	for _, d := range p.GetDims() {
		if d < 1 && d != -1 {
			l.add(PortDims, field+".dims", "model %s '%s' dimension must be integer >= 1, or -1 to indicate a variable-size dimension", kind, name)
			break
		}
	}
	if p.GetIsShapeTensor() && l.cfg.GetBackend() != "tensorrt" {
		l.add(ShapeTensor, field+".is_shape_tensor", "shape tensors are only supported for TensorRT platform")
	}
	if p.GetReshape() != nil && len(p.GetDims()) > 0 {
		l.reshape(field, kind, p)
	}
}

// reshape compares the sizes of both shapes: fixed extents multiply to the same
// number, and every variable one has its counterpart.
func (l *problems) reshape(field, kind string, p port) {
	size := func(dims []int64) (fixed int64, open int) {
		fixed = 1
		for _, d := range dims {
			if d == -1 {
				open++
				continue
			}
			if d < 0 || d > 0 && fixed > maxElements/d {
				return -2, open // no number of elements a tensor can have
			}
			fixed *= d
		}
		return fixed, open
	}
	a, openA := size(p.GetDims())
	b, openB := size(p.GetReshape().GetShape())
	if a != b || a < 0 {
		l.add(Reshape, field+".reshape", "model %s '%s' has different size for dims and reshape", kind, p.GetName())
	} else if openA != openB {
		l.add(Reshape, field+".reshape", "model %s '%s' has different number of variable-size dimensions for dims and reshape", kind, p.GetName())
	}
}

// maxElements bounds the elements of a tensor, so that sizes do not overflow.
const maxElements = 1 << 48

// names refuses a name that two inputs or two outputs share.
func (l *problems) names() {
	seen := map[string]bool{}
	for i, in := range l.cfg.GetInput() {
		l.once(seen, i, "input", in.GetName())
	}
	clear(seen)
	for i, out := range l.cfg.GetOutput() {
		l.once(seen, i, "output", out.GetName())
	}
}

func (l *problems) once(seen map[string]bool, i int, kind, name string) {
	if name != "" && seen[name] {
		l.add(PortTwice, fmt.Sprintf("%s[%d].name", kind, i), "model %s '%s' is listed more than once for %s", kind, name, l.cfg.GetName())
	}
	seen[name] = true
}

// batchTensors checks the tensors that are computed from a whole batch.
func (l *problems) batchTensors() {
	inputs := map[string]bool{}
	for _, in := range l.cfg.GetInput() {
		inputs[in.GetName()] = true
	}
	for i, b := range l.cfg.GetBatchInput() {
		l.batchTensor(fmt.Sprintf("batch_input[%d]", i), "batch input", inputs, b.GetTargetName(), b.GetSourceInput(), b.GetDataType())
	}
	for i, b := range l.cfg.GetBatchOutput() {
		l.batchTensor(fmt.Sprintf("batch_output[%d]", i), "batch output", inputs, b.GetTargetName(), b.GetSourceInput(), modelconfig.DataType_TYPE_INT32)
	}
}

func (l *problems) batchTensor(field, kind string, inputs map[string]bool, targets, sources []string, d modelconfig.DataType) {
	name := l.cfg.GetName()
	if len(targets) == 0 {
		l.add(BatchTensor, field, "%s must specify 'target_name' for %s", kind, name)
	}
	if d != modelconfig.DataType_TYPE_INT32 && d != modelconfig.DataType_TYPE_FP32 {
		l.add(BatchTensor, field, "%s data type must be TYPE_INT32 or TYPE_FP32 for %s", kind, name)
	}
	if len(sources) != 1 {
		l.add(BatchTensor, field, "%s must specify one 'source_input' for %s, found %d", kind, name, len(sources))
	}
	for _, s := range sources {
		if len(inputs) > 0 && !inputs[s] {
			l.add(BatchTensor, field, "%s source input '%s' is not an input of %s", kind, s, name)
		}
	}
}
