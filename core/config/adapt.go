package config

import "github.com/tutti-server/tutti/proto/modelconfig"

// The parameters that let the compiler of an ensemble insert adapters where a tensor does not have the type, layout or dims that its reader
// expects: for the inputs of one step, or for all steps and the outputs of the ensemble.
//
//	parameters { key: "step.classifier.adapt" value { string_value: "true" } }
//	parameters { key: "ensemble.adapt"        value { string_value: "true" } }
const (
	adaptParam         = "adapt"
	ensembleAdaptParam = "ensemble.adapt"
)

// adapt reads whether step i, or with -1 the whole ensemble, gets adapters.
func (b *branches) adapt(key string, i int) {
	v := b.value(key)
	switch {
	case v != "true" && v != "false":
		b.fail(key, "is %s, expected 'true' or 'false'", quoteShort(v))
	case i < 0:
		b.flow.Adapt = v == "true"
	default:
		b.flow.Steps[i].Adapt = &[]bool{v == "true"}[0]
	}
}

// Adapts reports whether adapters may be inserted before step i.
func (f *Flow) Adapts(i int) bool {
	if own := f.Steps[i].Adapt; own != nil {
		return *own
	}
	return f.Adapt
}

// Formats returns the image formats that a configuration declares, by input; nil without any.
func Formats(cfg *modelconfig.ModelConfig) map[string]modelconfig.ModelInput_Format {
	var m map[string]modelconfig.ModelInput_Format
	for _, in := range cfg.GetInput() {
		if f := in.GetFormat(); f != modelconfig.ModelInput_FORMAT_NONE {
			if m == nil {
				m = map[string]modelconfig.ModelInput_Format{}
			}
			m[in.GetName()] = f
		}
	}
	return m
}
