package starter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
)

// port is an input or output of a configuration.
type port struct {
	name    string
	dtype   tensor.DType
	dims    []int64
	reshape []int64
}

// stage is a step of the ensemble: a model, and the tensors of the ensemble at its inputs and outputs.
type stage struct {
	name, config string
	files        []File
	in, out      [][2]string // the model's name, the ensemble's
}

// quoted returns a string of config.pbtxt.
func quoted(s string) string { return strconv.QuoteToASCII(s) }

// ports writes inputs or outputs.
func ports(field string, list []port) string {
	var t strings.Builder
	for _, p := range list {
		fmt.Fprintf(&t, "%s {\n  name: %s\n  data_type: %s\n  dims: %s\n", field, quoted(p.name), p.dtype.ConfigName(), extents(p.dims))
		if p.reshape != nil {
			fmt.Fprintf(&t, "  reshape { shape: %s }\n", extents(p.reshape))
		}
		t.WriteString("}\n")
	}
	return t.String()
}

func extents(dims []int64) string {
	if len(dims) == 0 {
		return "[ ]"
	}
	all := make([]string, len(dims))
	for i, d := range dims {
		all[i] = str(d)
	}
	return "[ " + strings.Join(all, ", ") + " ]"
}

func parameters(list [][2]string) string {
	var t strings.Builder
	for _, p := range list {
		fmt.Fprintf(&t, "parameters { key: %s value { string_value: %s } }\n", quoted(p[0]), quoted(p[1]))
	}
	return t.String()
}

// native returns the configuration of a native step.
func native(doc, step string, maxBatch int, in, out []port, params [][2]string) string {
	return fmt.Sprintf("# %s docs/steps.md has the parameters of the step.\nbackend: \"native\"\nmax_batch_size: %d\n%s%s%s",
		doc, maxBatch, ports("input", in), ports("output", out), parameters(append([][2]string{{"step", step}}, params...)))
}

// model adds the model itself. in and out are the ports that the ensemble uses.
func (b *builder) model(in, out [][2]string) {
	t := &strings.Builder{}
	fmt.Fprintf(t, "# The model itself: %s.\nbackend: %s\n%s", b.m.Format, quoted(b.m.Backend), b.m.platform())
	fmt.Fprintf(t, "max_batch_size: %d\n", b.batch.max)
	var ins, outs []port
	for _, p := range b.m.Inputs {
		ins = append(ins, b.modelPort(p))
	}
	for _, p := range b.m.Outputs {
		used := slices.ContainsFunc(out, func(o [2]string) bool { return o[0] == p.Name })
		if used || b.declarable(p) {
			outs = append(outs, b.modelPort(p))
		}
	}
	t.WriteString(ports("input", ins) + ports("output", outs))
	if b.batch.max > 0 {
		t.WriteString("dynamic_batching { }\n")
	}
	if pad := b.padding(); pad != nil {
		t.WriteString("\n# Texts of different lengths share a batch: shorter rows are filled up, and the mask hides that.\n" + parameters(pad))
	}
	b.steps = append(b.steps, stage{name: "model", config: t.String(), files: b.m.files(), in: in, out: out})
}

// declarable reports whether an output that no step uses can be declared.
func (b *builder) declarable(p Port) bool {
	return b.batch.max == 0 && len(p.Shape) > 0 || b.batch.max > 0 && len(p.Shape) > 1 && p.Shape[0] == -1
}

// modelPort returns the declaration of a port of the model. Scores lose their dimensions of 1.
func (b *builder) modelPort(p Port) port {
	out := port{name: p.Name, dtype: p.DType, dims: b.whole(p)}
	if p.Name != b.find.out.Name || b.find.tokens || len(p.Shape) <= 2 || b.kind != Classify && b.kind != Text {
		return out
	}
	n := b.find.classes
	out.reshape = out.dims
	out.dims = []int64{n}
	if b.batch.max == 0 {
		out.dims = []int64{p.Shape[0], n}
	}
	return out
}

// assemble adds the folders of the steps, and the ensemble.
func (b *builder) assemble() {
	t := &strings.Builder{}
	what := map[string]string{
		Classify: "An image file in, the likeliest classes out.", Detect: "An image file in, the boxes of objects out, in pixels of the image.",
		Embed: "A text in, its embedding out, a vector normalized to length 1.", Text: "A text in, its labels with their scores out.", Custom: "The model alone. Put steps before and after it; docs/steps.md has those that need no code.",
	}
	if b.kind == Embed && b.ensembleInputs[0].name == inImage {
		what[Embed] = "An image file in, its embedding out, a vector normalized to length 1."
	}
	fmt.Fprintf(t, "# %s\nplatform: \"ensemble\"\nmax_batch_size: %d\n%s%sensemble_scheduling {\n", what[b.kind], b.batch.max, ports("input", b.ensembleInputs), ports("output", b.r.outputs))
	for _, s := range b.steps {
		name := b.r.ModelName(s.name)
		b.r.Folders = append(b.r.Folders, Folder{Name: name, Config: s.config, Files: s.files})
		fmt.Fprintf(t, "  step {\n    model_name: %s\n    model_version: -1\n%s%s  }\n", quoted(name), mapping("input_map", s.in), mapping("output_map", s.out))
	}
	t.WriteString("}\n")
	b.r.Ensemble = len(b.r.Folders)
	b.r.Folders = append(b.r.Folders, Folder{Name: b.r.Name, Config: t.String()})
}

func mapping(field string, list [][2]string) string {
	var t strings.Builder
	for _, m := range list {
		fmt.Fprintf(&t, "    %s { key: %s value: %s }\n", field, quoted(m[0]), quoted(m[1]))
	}
	return t.String()
}
