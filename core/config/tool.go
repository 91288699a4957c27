package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The parameters that make a model or an ensemble a tool of the MCP endpoint. For example:
//
//	parameters { key: "api.tool" value { string_value: "Embeds a text." } }
//	parameters { key: "api.tool.about.TEXT" value { string_value: "a sentence in English" } }
//	parameters { key: "api.tool.binary" value { string_value: "IMAGE,MASK" } }
const (
	toolParam  = "api.tool"
	toolAbout  = "api.tool.about."
	toolBinary = "api.tool.binary"
)

// toolParams are the parameters of tools.
var toolParams = []string{toolParam, toolAbout + "*", toolBinary}

// toolName matches the names that a tool may have.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// Tool is what the configuration of a model says about the tool that it is.
type Tool struct {
	// Description says to a client when to call the tool.
	Description string

	cfg *modelconfig.ModelConfig
}

// ToolOf returns the tool of a model or an ensemble, and false if it is none.
func ToolOf(cfg *modelconfig.ModelConfig) (Tool, bool) {
	text := strings.TrimSpace(cfg.GetParameters()[toolParam].GetStringValue())
	return Tool{text, cfg}, text != ""
}

// About returns the description of an input or output, "" if there is none.
func (t Tool) About(name string) string {
	return t.cfg.GetParameters()[toolAbout+name].GetStringValue()
}

// Binary reports whether an input has bytes that are no text, such as a file. Clients send them in base64.
func (t Tool) Binary(input string) bool {
	return slices.Contains(binaryInputs(t.cfg), input)
}

func binaryInputs(cfg *modelconfig.ModelConfig) (list []string) {
	for name := range strings.SplitSeq(cfg.GetParameters()[toolBinary].GetStringValue(), ",") {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, name)
		}
	}
	return list
}

// tool checks the parameters of a tool.
func (l *problems) tool() {
	params, name := l.cfg.GetParameters(), l.cfg.GetName()
	p, is := params[toolParam]
	if is && strings.TrimSpace(p.GetStringValue()) == "" {
		l.add(BadParam, "parameters."+toolParam, "parameter '%s' of model '%s' is empty, expected a sentence that says when to call the tool", toolParam, name)
	}
	if is && !toolName.MatchString(name) {
		l.add(BadParam, "parameters."+toolParam, "model '%s' cannot be a tool: expected a name of 1 to 128 letters, digits and characters of '_', '-' and '.'", name)
		l.fix("rename the model, or remove " + toolParam)
	}
	inputs, outputs := toolTensors(l.cfg)
	for _, key := range sortedKeys(params) {
		if key != toolBinary && !strings.HasPrefix(key, toolAbout) {
			continue
		}
		if !is {
			l.add(BadParam, "parameters."+key, "parameter '%s' of model '%s' has no effect without '%s', expected that one, too", key, name, toolParam)
			continue
		}
		if about, ok := strings.CutPrefix(key, toolAbout); ok && l.declared(inputs, outputs) {
			all := slices.Concat(inputs, outputs)
			l.addIf(!slices.Contains(all, about), BadParam, "parameters."+key,
				"parameter '%s' of model '%s' describes '%s', expected one of %s.%s", key, name, about, strings.Join(all, ", "), DidYouMean(about, all))
		}
	}
	for _, input := range binaryInputs(l.cfg) {
		l.binaryInput(input, inputs)
	}
}

// binaryInput checks that an input which is sent in base64 is one of strings.
func (l *problems) binaryInput(name string, inputs []string) {
	field := "parameters." + toolBinary
	i := slices.Index(inputs, name)
	switch {
	case i >= 0:
		t := l.cfg.GetInput()[i].GetDataType()
		l.addIf(t != modelconfig.DataType_TYPE_STRING && t != modelconfig.DataType_TYPE_INVALID, BadParam, field,
			"parameter '%s' of model '%s' names the input '%s' of type %s, expected inputs of TYPE_STRING", toolBinary, l.cfg.GetName(), name, t)
	case l.declared(inputs):
		l.add(BadParam, field, "parameter '%s' of model '%s' names '%s', expected inputs out of %s.%s",
			toolBinary, l.cfg.GetName(), name, strings.Join(inputs, ", "), DidYouMean(name, inputs))
	}
}

// declared reports whether each list has names: those that the configuration leaves to the model are not known.
func (*problems) declared(lists ...[]string) bool {
	return !slices.ContainsFunc(lists, func(l []string) bool { return len(l) == 0 })
}

func toolTensors(cfg *modelconfig.ModelConfig) (inputs, outputs []string) {
	for _, p := range cfg.GetInput() {
		inputs = append(inputs, p.GetName())
	}
	for _, p := range cfg.GetOutput() {
		outputs = append(outputs, p.GetName())
	}
	return inputs, outputs
}
