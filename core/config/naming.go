package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
