package caffe2

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/backends/caffe2/convert"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

const (
	// initPrefix precedes the name of the predict net in that of the init net, as in Triton.
	initPrefix = "init_"
	// convertedFile and weightsFile are the files of a converted model.
	convertedFile = "model.onnx"
	weightsFile   = "weights"
	// tempPrefix begins the names of folders with converted models.
	tempPrefix = "tutti-caffe2-"
	// maxFile is the most bytes of a net: a message of protobuf cannot be larger.
	maxFile = 1<<31 - 1
)

// tempDir returns the folder for converted models.
func tempDir() string { return os.TempDir() }

// convertFiles converts the nets of a version into an ONNX model and a file of weights in the folder to. path is that of the predict net.
func convertFiles(ctx context.Context, s *backends.Settings, path, to string) (err error) {
	defer func() {
		if err != nil && status.CodeOf(err) != status.Cancelled {
			err = status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
		}
	}()
	predict, err := mapFile(path)
	if err != nil {
		return err
	}
	defer predict.close()
	if len(predict.data) == 0 {
		return bind.UnreadableFile(status.Errorf(status.InvalidArg, "the predict net is empty"), "a NetDef of Caffe2", path)
	}
	dir, name := filepath.Split(path)
	initPath := filepath.Join(dir, initPrefix+name)
	if !files.IsRegular(initPath) {
		return config.MissingFile(status.Errorf(status.NotFound,
			"unable to find the init net '%s', which has the weights", initPath), initPath)
	}
	initial, err := mapFile(initPath)
	if err != nil {
		return err
	}
	defer initial.close()
	weights, err := os.OpenFile(filepath.Join(to, weightsFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	source := &convert.Source{
		Predict: predict.data, Init: initial.data, Inputs: ports(s.Config, s.Config.GetInput()), Outputs: ports(s.Config, s.Config.GetOutput()),
		Batched: s.Config.GetMaxBatchSize() > 0, Weights: weights, WeightsFile: weightsFile,
	}
	model, err := convertMapped(ctx, source)
	if bad, ok := errors.AsType[*convert.ParseError](err); ok {
		file := path
		if bad.Init {
			file = initPath
		}
		err = bind.UnreadableFile(err, "a NetDef of Caffe2", file)
	}
	if err = errors.Join(err, weights.Close()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, convertedFile), model, 0o600)
}

// convertMapped converts nets in files that are mapped. A file that becomes shorter meanwhile is an error.
func convertMapped(ctx context.Context, s *convert.Source) (model []byte, err error) {
	fault, err := recovery.Fault(func() (err error) {
		model, err = convert.ONNX(ctx, s)
		return err
	})
	if fault {
		return nil, status.Errorf(status.InvalidArg, "the nets changed while they were read: load the model again")
	}
	return model, err
}

// ports returns the declared inputs or outputs with their whole shapes.
func ports[P interface {
	GetName() string
	GetDataType() modelconfig.DataType
	GetDims() []int64
	GetReshape() *modelconfig.ModelTensorReshape
}](cfg *modelconfig.ModelConfig, list []P) []convert.Port {
	var out []convert.Port
	for _, p := range list {
		dims := p.GetDims()
		if r := p.GetReshape(); r != nil {
			dims = r.GetShape() // the model's
		}
		if cfg.GetMaxBatchSize() > 0 {
			dims = append([]int64{-1}, dims...)
		}
		out = append(out, convert.Port{Name: p.GetName(), DType: tensor.DType(p.GetDataType()), Dims: dims}) //nolint:gosec // the same numbers
	}
	return out
}

// mapped is a file in memory.
type mapped struct{ data []byte }

// mapFile maps a net. Its pages are read when they are needed, and are no memory of the server's own.
func mapFile(path string) (*mapped, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.Size() == 0: // a net without operators
		return &mapped{}, nil
	case info.Size() > maxFile:
		return nil, status.Errorf(status.InvalidArg, "'%s' has %d bytes, expected at most %d, as protobuf does", path, info.Size(), maxFile)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE) //nolint:gosec // a descriptor is small
	if err != nil {
		return nil, status.Errorf(status.Internal, "unable to map '%s': %w", path, err)
	}
	return &mapped{data}, nil
}

func (m *mapped) close() {
	if m.data != nil {
		_ = unix.Munmap(m.data)
	}
}
