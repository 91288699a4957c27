package config

import (
	"path/filepath"

	"tutti/proto/modelconfig"
)

// port is what inputs and outputs have in common.
type port interface {
	GetName() string
	GetDataType() modelconfig.DataType
	GetDims() []int64
	GetIsShapeTensor() bool
}

func (l *problems) input(in *modelconfig.ModelInput) {
	l.port("input", in)
	if in.GetIsShapeTensor() {
		l.add("shape tensors are only supported for TensorRT platform")
	}
	if f := in.GetFormat(); f != modelconfig.ModelInput_FORMAT_NONE && len(in.GetDims()) != 3 {
		l.add("model input '%s' %s requires 3 dims", in.GetName(), f)
	}
}

func (l *problems) output(out *modelconfig.ModelOutput) {
	l.port("output", out)
	if out.GetIsShapeTensor() {
		l.add("shape tensors are only supported for TensorRT platform")
	}
	if f := out.GetLabelFilename(); f != "" && !filepath.IsLocal(f) {
		l.add("label file path '%s' for output '%s' in model '%s' is outside model directory", f, out.GetName(), l.cfg.GetName())
	}
}

func (l *problems) port(kind string, p port) {
	name := p.GetName()
	if name == "" {
		l.add("model %s must specify 'name'", kind)
		return
	}
	if _, known := modelconfig.DataType_name[int32(p.GetDataType())]; !known || p.GetDataType() == modelconfig.DataType_TYPE_INVALID {
		l.add("model %s '%s' must specify 'data_type'", kind, name)
	}
	if len(p.GetDims()) == 0 {
		l.add("model %s '%s' must specify 'dims'", kind, name)
	}
	for _, d := range p.GetDims() {
		if d < 1 && d != -1 {
			l.add("model %s '%s' dimension must be integer >= 1, or -1 to indicate a variable-size dimension", kind, name)
			break
		}
	}
}

// names refuses a name that two inputs or two outputs share.
func (l *problems) names() {
	seen := map[string]bool{}
	for _, in := range l.cfg.GetInput() {
		l.once(seen, "input", in.GetName())
	}
	clear(seen)
	for _, out := range l.cfg.GetOutput() {
		l.once(seen, "output", out.GetName())
	}
}

func (l *problems) once(seen map[string]bool, kind, name string) {
	if name != "" && seen[name] {
		l.add("model %s '%s' is listed more than once for %s", kind, name, l.cfg.GetName())
	}
	seen[name] = true
}
