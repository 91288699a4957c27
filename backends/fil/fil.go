// Package fil is the backend of forests: XGBoost, LightGBM, and scikit-learn and cuML through checkpoints of treelite. Repositories of
// NVIDIA's fil_backend work unchanged.
//
//	fil.go        the factory, a model, its inputs and outputs
//	params.go     parameters of config.pbtxt
//	execute.go    executions
//	forest        forests in memory and their execution
//	xgboost, lightgbm, treelite   the readers of model files
//
// Everything is Go: a model file that is damaged or hostile is refused and cannot end the process, and no library is needed.
// docs/decisions has the reasons.
package fil

import (
	"context"
	"math"
	"os"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/backends/fil/forest"
	"github.com/tutti-server/tutti/backends/fil/lightgbm"
	"github.com/tutti-server/tutti/backends/fil/treelite"
	"github.com/tutti-server/tutti/backends/fil/xgboost"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The names of the tensors.
const (
	inputName   = "input__0"
	outputName  = "output__0"
	explainName = "treeshap_output"
)

// NewFactory returns the backend fil. Its setting is default-max-batch-size.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name: "fil", DefaultFile: formats[defaultFormat].file, ConfigKeys: []string{bind.KeyMaxBatch}, Params: paramKeys, Guide: guide, New: open,
	}
}

// guide is the documentation of the backend.
var guide = backends.Guide{
	Doc: "Serves forests of decision trees: models of XGBoost (`xgboost.json`, `xgboost.ubj`, and `xgboost.model` of versions before 3.1), LightGBM (`model.txt`), " +
		"and forests of scikit-learn and cuML as checkpoints of treelite (`checkpoint.tl`, of version 4 or 3.9). Repositories of NVIDIA's fil_backend work unchanged. " +
		"Rows are FP32, NaN is a missing value, and categories are their numbers. Predictions are those of the framework itself: trees of LightGBM and " +
		"scikit-learn are added in FP64, where fil_backend rounds to FP32. An output `treeshap_output`, of the number of features plus one for each class, has Shapley values, " +
		"for trees of up to 31 tests on a path.",
	Limits: "Linear models in leaves (`linear_tree` of LightGBM), the booster gblinear, objectives of one's own in XGBoost, and models with several targets of several classes " +
		"are refused by name. All trees are used: `best_iteration` of early stopping, which XGBoost's scikit-learn interface obeys, is not looked at. " +
		"Instances of KIND_GPU are refused, and KIND_AUTO is the CPU.",
	Params: paramGuide,
}

// backend is the open backend.
type backend struct{ maxBatch int }

func open(o backends.Options) (backends.Backend, error) {
	maxBatch, err := bind.DefaultMaxBatch("fil", &o)
	if err != nil {
		return nil, err
	}
	return &backend{maxBatch}, nil
}

// Close does nothing: there is no runtime.
func (*backend) Close() error { return nil }

// Load reads a model file and checks the configuration against it.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	p, err := parse(&s)
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	p.explain = slices.ContainsFunc(s.Config.GetOutput(), func(o *modelconfig.ModelOutput) bool { return o.GetName() == explainName })
	f, err := read(ctx, &s, &p)
	if err != nil {
		return nil, err
	}
	if err := p.complete(f); err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	m := &model{forest: f, params: p}
	columns := []int64{int64(m.columns())}
	if m.twoColumns(&s) {
		m.result, columns = bothClasses, []int64{2}
	}
	ports := &bind.Model[struct{}]{
		LooseOutputs: true, // without a batch dimension the configuration has a number of rows
		Ins:          []bind.Port[struct{}]{{Name: inputName, DType: tensor.FP32, Shape: []int64{-1, int64(f.Features)}}},
		Outs:         []bind.Port[struct{}]{{Name: outputName, DType: tensor.FP32, Shape: append([]int64{-1}, columns...)}},
	}
	if p.explain {
		width := int64(f.Features+1) * int64(f.Outputs)
		ports.Outs = append(ports.Outs, bind.Port[struct{}]{Name: explainName, DType: tensor.FP32, Shape: []int64{-1, width}})
	}
	size, err := ports.MaxBatch(s.Config, b.maxBatch)
	if err != nil {
		return nil, err
	}
	if m.Binding, err = bind.Bind(s.Config, ports, size); err != nil {
		return nil, err
	}
	m.Sig.Version = s.Version
	for i := range m.Sig.Inputs {
		if m.Sig.Inputs[i].Optional {
			return nil, m.Errorf(status.Unsupported, "input '%s' is optional, but every prediction needs it", inputName)
		}
	}
	m.width = int(columns[0])
	return m, nil
}

// maxFile bounds a model file: it and the model are in memory together while it is read.
const maxFile = math.MaxInt32

// read reads the model file.
func read(ctx context.Context, s *backends.Settings, p *params) (*forest.Forest, error) {
	path, err := bind.ModelFile(s, formats[p.format].file, nil)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFile {
		return nil, status.Errorf(status.InvalidArg, "unable to load model '%s': the file '%s' has %d bytes, expected at most %d", s.Model, path, info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, status.Errorf(status.Internal, "unable to load model '%s': %w", s.Model, err)
	}
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	f, err := formats[p.format].read(data, p)
	if err != nil {
		err = status.Prefixf(err, "unable to load model '%s': ", s.Model)
		return nil, bind.UnreadableFile(err, formats[p.format].text, path)
	}
	return f, nil
}

// format is a format of model files.
type format struct {
	file string // the default name
	text string // for errors
	read func(data []byte, p *params) (*forest.Forest, error)
}

// defaultFormat is the one without the parameter model_type.
const defaultFormat = "xgboost"

// formats are the values of the parameter model_type.
var formats = map[string]format{
	"xgboost":             {"xgboost.model", "XGBoost's binary format", xgboostReader(xgboost.Binary)},
	"xgboost_json":        {"xgboost.json", "XGBoost's JSON", xgboostReader(xgboost.JSON)},
	"xgboost_ubj":         {"xgboost.ubj", "XGBoost's UBJSON", xgboostReader(xgboost.UBJSON)},
	"lightgbm":            {"model.txt", "a text file of LightGBM", func(data []byte, p *params) (*forest.Forest, error) { return lightgbm.Read(data, p.explain) }},
	"treelite_checkpoint": {"checkpoint.tl", "a checkpoint of treelite", func(data []byte, p *params) (*forest.Forest, error) { return treelite.Read(data, p.explain) }},
}

func xgboostReader(f xgboost.Format) func(data []byte, p *params) (*forest.Forest, error) {
	return func(data []byte, p *params) (*forest.Forest, error) {
		return xgboost.Read(data, f, xgboost.Options{AllowUnknown: p.allowUnknown, Explain: p.explain})
	}
}

// model is a loaded forest. It has no state of requests and is its own instance.
type model struct {
	*bind.Binding[struct{}]
	params
	forest *forest.Forest
	width  int // of a row of the output
}

var (
	_ backends.ConcurrentModel = (*model)(nil)
	_ backends.Instance        = (*model)(nil)
)

// columns returns the width of the output by the parameters: 1 for classes, else the number of the forest's outputs.
func (m *model) columns() int {
	if m.result == classes {
		return 1
	}
	return m.forest.Outputs
}

// twoColumns reports whether a binary classifier has an output with a probability for each class: its configuration says dims [ 2 ].
func (m *model) twoColumns(s *backends.Settings) bool {
	if m.result != probabilities || !m.classifier || m.forest.Outputs != 1 {
		return false
	}
	for _, o := range s.Config.GetOutput() {
		dims := o.GetDims()
		if r := o.GetReshape(); r != nil {
			dims = r.GetShape()
		}
		if o.GetName() == outputName && len(dims) > 0 && dims[len(dims)-1] == 2 {
			return true
		}
	}
	return false
}

// Threads returns 1: only large batches are split, and never to more than the processors.
func (*model) Threads() int { return 1 }

// inlineVisits is the most tests of a row with which an execution is short: some 10 microseconds.
const inlineVisits = 2000

// Inline reports whether a row takes microseconds.
func (m *model) Inline() bool { return m.forest.Visits() <= inlineVisits }

// NewInstance returns the model.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if err := bind.CheckHost("fil", m.Sig.Model, at); err != nil {
		return nil, err
	}
	return m, nil
}

// Close does nothing: the model is garbage collected.
func (*model) Close() error { return nil }
