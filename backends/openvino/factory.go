package openvino

import (
	"context"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/runtimes"
)

const (
	// modelFile is the name of the model file, or of a folder with a file of that name and its weights.
	modelFile = "model.xml"
	// savedModel is the file by which a folder is recognised as a TensorFlow SavedModel.
	savedModel = "saved_model.pb"
)

// NewFactory returns the openvino backend. Its settings are library-path and default-max-batch-size (see bind.Library).
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:        "openvino",
		DefaultFile: modelFile,
		ConfigKeys:  []string{bind.KeyMaxBatch, bind.KeyLibrary},
		Params:      slices.Concat(handed, []string{keyDevice, keyExtension, keyFixed, keyPad, keyReshape, keyReshape + "S", keyBF16}),
		Native:      true,
		Guide:       guide,
		New:         open,
	}
}

// backend is the open backend.
type backend struct {
	lib      *library
	core     *core
	maxBatch int
}

var _ backends.Describer = (*backend)(nil)

// Describe implements backends.Describer.
func (b *backend) Describe() string { return "OpenVINO " + b.lib.version + ", " + b.lib.path }

func open(o backends.Options) (backends.Backend, error) {
	path, maxBatch, err := bind.Library("openvino", &o, runtimes.Find)
	if err != nil {
		return nil, err
	}
	lib, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	b := &backend{lib: lib, maxBatch: maxBatch}
	if b.core, err = openCore(lib, ""); err != nil {
		lib.release()
		return nil, status.Errorf(status.Unavailable, "unable to start OpenVINO '%s': %w", path, err)
	}
	return b, nil
}

// Load reads and compiles a model file. The instances of the model share the compiled model.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	set, err := modelSettings(&s)
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	path, err := bind.ModelFile(&s, modelFile, isSavedModel)
	if err != nil {
		return nil, err
	}
	m := &model{pad: set.pad}
	from := b.core
	if set.extension != "" { // a separate core: the operators are not for other models
		if m.own, err = openCore(b.lib, set.extension); err != nil {
			return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
		}
		from = m.own
	}
	if err := m.load(&s, from, path, &set, b.maxBatch); err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// Close releases the library. Outputs in memory of the runtime keep it open.
func (b *backend) Close() error {
	if b.lib != nil {
		b.core.close()
		b.lib.release()
		b.lib = nil
	}
	return nil
}

// guide is the documentation of the backend.
var guide = backends.Guide{
	Doc: "Serves the formats of OpenVINO: its IR, ONNX, PaddlePaddle, TensorFlow SavedModel folders, frozen graphs and TFLite. " +
		"It computes in f32 unless the configuration says otherwise: the runtime's own choice is bf16 on some processors, which changes results.",
	Limits: "Optional and ragged inputs, custom operators by `model_operations`, and instances of `KIND_GPU` are refused; " +
		"another device is named by TARGET_DEVICE. 4 bit and 8 bit floating types have no counterpart in the protocol. " +
		"A run whose requests are all cancelled ends between two nodes of the graph.",
	Params: []backends.Param{
		{Key: keyDevice, Doc: "The device that the model is compiled for, CPU by default"},
		{Key: keyExtension, Doc: "A library of custom operators, beside config.pbtxt unless absolute"},
		{Key: keyFixed, Doc: "Keeps the fixed batch size of the file, instead of making it variable"},
		{Key: keyPad, Doc: "Pads smaller batches to that size"},
		{Key: keyReshape, Doc: "Gives the inputs the shapes of config.pbtxt"},
		{Key: keyBF16, Doc: "Computes in bf16"},
		{Key: strings.Join(handed, ", "), Doc: "Passed to the runtime unchanged; CACHE_DIR is beside config.pbtxt unless absolute"},
	},
}
