// Package caffe2 is the caffe2 backend: it serves the nets of Caffe2, which has had no release since PyTorch 1.13. A model is converted to
// ONNX when it is loaded, and ONNX Runtime executes it.
//
//	caffe2.go         the factory and the backend
//	files.go          the files of a model, and the converted one
//	netdef, convert, onnxgraph  reading nets, converting them, writing ONNX models
//
// A version folder has two files, as Triton's Caffe2 backend had them: model.netdef is the predict net, and init_model.netdef the net
// whose operators fill the weights.
package caffe2

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tempfolder"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Name is the value of the field backend in config.pbtxt.
const Name = "caffe2"

// modelFile is the name of the predict net.
const modelFile = "model.netdef"

// NewFactory returns the caffe2 backend. onnx is the factory of the onnxruntime backend, which executes the converted models, with its
// settings of --backend-config.
func NewFactory(onnx backends.Factory) backends.Factory {
	return backends.Factory{
		Name: Name, Platforms: []string{"caffe2_netdef"}, DefaultFile: modelFile, Native: true, Params: slices.Clone(onnx.Params),
		Guide: backends.Guide{Doc: guideDoc, Limits: guideLimits},
		New: func(o backends.Options) (backends.Backend, error) {
			tempfolder.RemoveStale(tempDir(), tempPrefix, nil)
			o.Config = maps.Clone(o.Others[onnx.Name])
			if o.Config == nil {
				o.Config = map[string]string{}
			}
			o.Config[bind.KeyMaxBatch] = "0" // a net does not say whether it batches: the configuration does
			inner, err := onnx.New(o)
			if err != nil {
				return nil, err
			}
			return &backend{inner: inner}, nil
		},
		Auto: func(map[string]string) config.Auto { return config.AutoCPU },
	}
}

// backend converts models for another backend.
type backend struct{ inner backends.Backend }

var _ backends.Describer = (*backend)(nil)

// Describe implements backends.Describer.
func (b *backend) Describe() string {
	if d, ok := b.inner.(backends.Describer); ok {
		return "nets are converted for " + d.Describe()
	}
	return ""
}

// Close closes the backend that executes the models.
func (b *backend) Close() error { return b.inner.Close() }

// Load converts the nets of a version and loads the ONNX model.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	path, err := bind.ModelFile(&s, modelFile, nil)
	if err != nil {
		return nil, err
	}
	temp, err := tempfolder.Make(tempDir(), tempPrefix)
	if err != nil {
		return nil, status.Errorf(status.Internal, "model '%s': unable to make a folder for the converted model: %w (TMPDIR names another place)", s.Model, err)
	}
	if err := convertFiles(ctx, &s, path, temp.Path()); err != nil {
		return nil, errors.Join(err, temp.Remove())
	}
	s.Dir, s.Filename, s.Origin = temp.Path(), "", path
	s.EditConfigs(func(cfg *modelconfig.ModelConfig) { cfg.DefaultModelFilename = convertedFile })
	inner, err := b.inner.Load(ctx, s)
	if err != nil {
		return nil, errors.Join(err, temp.Remove())
	}
	if d, ok := inner.(backends.DeviceModel); ok {
		return deviceModel{d, temp}, nil
	}
	// The session of the host is open: it has mapped the weights. Without their names, the files end with it, also in a process that is killed.
	if err := temp.Remove(); err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return inner, nil
}

// deviceModel is a model with instances at GPUs. Its files stay, because each of them reads them.
type deviceModel struct {
	backends.DeviceModel
	temp *tempfolder.Folder
}

var _ backends.ThreadedModel = deviceModel{}

// Threads implements backends.ThreadedModel.
func (m deviceModel) Threads() int {
	if t, ok := m.DeviceModel.(backends.ThreadedModel); ok {
		return t.Threads()
	}
	return 1
}

// Close unloads the model and removes its files.
func (m deviceModel) Close() error { return errors.Join(m.DeviceModel.Close(), m.temp.Remove()) }
