package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/quantize"
	"github.com/tutti-server/tutti/internal/runtimes"
)

func quantizeCommand() command {
	return command{
		name: "quantize", usage: "MODEL --to int8|bf16|fp16 [--calibrate FILE] [--data FILE] [--write] | MODEL --measure VERSION", summary: "Make a version in another precision, and measure how far its outputs are from the original's",
		notes: `MODEL is the folder of a model of onnxruntime or openvino. The new version is the next number beside the others. It appears in one
step with its figures in fidelity.json, which a configuration with the parameter fidelity requires at load. A version that misses the fidelity is
not written. Files are converted by onnxruntime's own tools: tutti runtime fetch quantizer.
The requests to measure with are those of --data, else the golden requests of the model or of --ensemble, else those in expected.json of the
repository, else those of --calibrate. FILE is a capture of tutti capture, a folder of them, or what --input of bench takes.`,
		examples: []string{
			"tutti quantize models/minilm --to int8 --ensemble ensemble --fidelity cosine=0.985 --write",
			"tutti quantize models/digits_cnn --to int8 --calibrate captures",
			"tutti quantize models/minilm --measure 2 --ensemble ensemble",
		},
		run: (*program).quantize,
	}
}

// quantize makes a version of a model in another precision, or measures one.
func (p *program) quantize(ctx context.Context, args []string) error {
	fs, s, backend := p.flags("quantize"), &quantize.Settings{Log: p.stderr}, options.BackendConfig{}
	var to, bound string
	var measured int64
	var calibrate, data list
	fs.StringVar(&to, "to", "", "`precision` of the new version: int8, bf16 or fp16")
	fs.Var(&calibrate, "calibrate", "`file` or folder with requests to calibrate int8 with: activations get fixed scales; without it their scales are computed with each execution. May be repeated")
	fs.Var(&data, "data", "`file` or folder with requests to measure with; may be repeated")
	fs.StringVar(&s.Ensemble, "ensemble", "", "`name` of the ensemble that requests of files and golden requests are for, whose steps call the model; captures name it themselves")
	fs.Int64Var(&measured, "measure", 0, "`version` that is there, to measure in place of making one")
	fs.Int64Var(&s.Reference, "against", 0, "`version` to convert and to compare with; by default the highest one below that is declared fp32 or nothing")
	fs.StringVar(&bound, "fidelity", "", "`bound` on the figures in place of that of the configuration, for example cosine=0.99,top1=0.98")
	fs.BoolVar(&s.Write, "write", false, "write the parameters precision and fidelity into config.pbtxt")
	backendFlags(fs, backend)
	out := outputFlag(fs, formatTable, formatJSON, formatYAML)
	rest, err := arguments(fs, args, 1, 1, "the folder of a model")
	if err != nil {
		return err
	}
	want, known := precision.Parse(to)
	switch {
	case measured == 0 && (!known || want == precision.FP32):
		return usagef("--to is '%s', expected int8, bf16 or fp16, or a version to measure by --measure", to)
	case measured != 0 && to != "":
		return usagef("--to makes a version and --measure takes one that is there: expected one of the two")
	case len(calibrate) > 0 && want != precision.INT8:
		return usagef("--calibrate is for --to int8")
	}
	if bound != "" {
		if s.Bound, err = precision.ParseBound(bound); err != nil {
			return &usageError{err}
		}
	}
	s.Dir, s.Data, s.Calibration = rest[0], data, calibrate
	s.Settings = lab.Settings{Components: p.components, BackendConfig: backend}
	var r *quantize.Result
	if measured != 0 {
		r, err = quantize.Measure(ctx, s, measured)
	} else {
		s.Python = func() (string, error) { return runtimes.Find("quantizer", "") }
		r, err = quantize.Make(ctx, s, want)
	}
	if err != nil {
		return err
	}
	return p.finishQuantize(out, s, r)
}

// finishQuantize prints the result, and says what was written.
func (p *program) finishQuantize(out *output, s *quantize.Settings, r *quantize.Result) error {
	if err := out.print(p.stdout, r, func() error { return r.Report(p.stdout) }); err != nil {
		return err
	}
	var notes []string
	if r.Folder != "" {
		notes = append(notes, "wrote "+r.Folder)
	}
	switch {
	case r.Change != nil && s.Write:
		notes = append(notes, "wrote "+r.Change.Path)
	case r.Change != nil:
		notes = append(notes, r.Change.Path+" does not declare the version: --write makes the change above")
	}
	if len(notes) > 0 && !out.machine() {
		fmt.Fprintln(p.stderr, strings.Join(notes, "\n"))
	}
	if r.Missed != "" {
		if r.Folder == "" {
			fmt.Fprintf(p.stderr, "version %d is not written\n", r.Version)
		}
		return errReported
	}
	return nil
}
