//go:build cgo

// Package tensorflow is the tensorflow backend: it serves SavedModels and graphs (GraphDef) through the C API of TensorFlow, which
// it opens at run time.
//
//	tensorflow.go  the factory and the backend, the files of a model
//	settings.go    parameters of config.pbtxt, the session's ConfigProto, the signatures of a SavedModel
//	session.go     the opened library and its errors; a loaded model
//	instance.go    a model and its sessions; executions, outputs, inputs that the runtime still uses after a run
//	tf.h           the used part of the C API, by function name
//	shim.h, shim.c C functions over it: loading, looking up operations; call.c: one execution
//
// Memory: inputs are read where they are; TensorFlow copies unaligned ones. Outputs stay in memory of the runtime, wrapped as
// tensors. An output that shares its memory (an input that is passed through, a constant, a variable) is copied, and strings are
// copied in both directions. A model that stores an input, for example in a variable or a queue, gets copies of its inputs from the
// first time that is detected.
//
// As in Triton, each instance has its own session with its own weights and variables, unless MAX_SESSION_SHARE_COUNT allows several
// instances to share one. Thread counts apply to the process and are set by the first session, unless TF_USE_PER_SESSION_THREADS
// gives each session its own pools.
//
// The C API cannot stop a run: the server responds to a cancelled request while its batch continues. Refused at load, with their
// names: sparse and ragged tensors, resources and variants, complex, quantised, 4-bit and 8-bit floating point types, devices,
// custom operator libraries, execution accelerators, and Keras files. The runtime logs errors only, to standard error, unless
// TF_CPP_MIN_LOG_LEVEL is set: the level applies to the process. Release 2.21 always writes two lines about oneDNN when it creates
// the first session. Without cgo the package is empty.
package tensorflow

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// NewFactory returns the tensorflow backend. Its settings are library-path and default-max-batch-size (see bind.Library).
func NewFactory() backends.Factory {
	return backends.Factory{
		Name: "tensorflow", Platforms: []string{savedModelPlatform, graphPlatform}, DefaultFile: savedModelFolder,
		ConfigKeys: []string{bind.KeyMaxBatch, bind.KeyLibrary}, Params: keys, Native: true, Guide: guide, New: open,
	}
}

// backend is the open backend.
type backend struct {
	lib      *library
	maxBatch int
}

var _ backends.Describer = (*backend)(nil)

// Describe implements backends.Describer.
func (b *backend) Describe() string { return "TensorFlow " + b.lib.version + ", " + b.lib.path }

func open(o backends.Options) (backends.Backend, error) {
	path, maxBatch, err := bind.Library("tensorflow", &o, runtimes.Find)
	if err != nil {
		return nil, err
	}
	lib, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	return &backend{lib: lib, maxBatch: maxBatch}, nil
}

// Load loads a model and its first session. Loading cannot be interrupted.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	m := &model{log: s.Log, how: loaded{lib: b.lib}}
	var err error
	if m.how.set, err = modelSettings(s.Config); err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	if m.how.files, err = find(&s); err != nil {
		return nil, err
	}
	if err := m.load(&s, b.maxBatch); err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// Close does nothing: libraries are never unloaded.
func (*backend) Close() error { return nil }

// guide is the documentation of the backend.
var guide = backends.Guide{
	Doc: "Serves SavedModels (Keras models exported as such, too) and graphs. The platform names the format; without one the existing " +
		"file does. The configuration must declare a graph's inputs and outputs, because the graph does not mark them.",
	Limits: "Sparse and ragged tensors, resources, variants, complex and quantised types, GPUs, custom operator libraries, execution " +
		"accelerators and Keras files are refused by name at load. The C interface cannot stop a run: the batch of a request that is cancelled runs on.",
	Params: []backends.Param{
		{Key: keyIntra, Doc: "Threads within an operation; the first session's are those of the process"},
		{Key: keyInter, Doc: "Threads over operations, likewise"},
		{Key: keyPerSession, Doc: "Gives each session its own threads"},
		{Key: keyShare, Doc: "How many instances share a session with its weights; 1 by default, as in Triton"},
		{Key: keyTag, Doc: "The tag of the graph in the SavedModel, `serve` by default"},
		{Key: keySignature, Doc: "The signature, `serving_default` by default"},
		{Key: keyInitOps, Doc: "A JSON file of operations that a graph runs once it is loaded"},
	},
}

// Platforms and default file names of the two formats.
const (
	savedModelPlatform = "tensorflow_savedmodel"
	savedModelFolder   = "model.savedmodel"
	graphPlatform      = "tensorflow_graphdef"
	graphFile          = "model.graphdef"
)

// maxGraph is the largest message that TensorFlow reads.
const maxGraph = 1<<31 - 1

// savedModelFile is the graph of a SavedModel; its text form has "txt" after it.
const savedModelFile = "saved_model.pb"

// modelFiles has the path and the format of a model.
type modelFiles struct {
	path  string
	graph bool // a GraphDef, not a SavedModel
}

// unread adds the expected format to an error of the runtime.
func (f *modelFiles) unread(err error) error {
	if f.graph {
		return bind.UnreadableFile(err, "a GraphDef", f.path)
	}
	return bind.UnreadableFile(err, "a SavedModel's graph", filepath.Join(f.path, savedModelFile))
}

// find returns the files of a model. Without a platform in the configuration, the existing file determines the format.
func find(s *backends.Settings) (modelFiles, error) {
	name := savedModelFolder
	f := modelFiles{}
	switch p := s.Config.GetPlatform(); p {
	case graphPlatform:
		name, f.graph = graphFile, true
	case savedModelPlatform:
	case "":
		if files.IsRegular(s.File(graphFile)) {
			name, f.graph = graphFile, true
		}
	default:
		return f, status.Errorf(status.InvalidArg, "unable to load model '%s': unexpected platform '%s', expected %s or %s",
			s.Model, p, savedModelPlatform, graphPlatform)
	}
	f.path = s.File(name)
	if err := keras(s, f.path); err != nil {
		return f, err
	}
	return f, f.check(s)
}

// check makes checks for which TensorFlow has less clear errors.
func (f *modelFiles) check(s *backends.Settings) error {
	info, err := os.Stat(f.path)
	if err != nil {
		return config.MissingFile(status.Errorf(status.NotFound, "unable to find '%s' for model '%s'", f.path, s.Model), f.path)
	}
	switch {
	case f.graph && !info.Mode().IsRegular():
		return status.Errorf(status.InvalidArg, "unable to load model '%s': expected a file at '%s', found %s", s.Model, f.path, info.Mode())
	case f.graph && info.Size() > maxGraph:
		return status.Errorf(status.InvalidArg, "unable to load model '%s': '%s' has %d bytes, expected at most %d", s.Model, f.path, info.Size(), maxGraph)
	case f.graph:
		return nil
	case !info.IsDir():
		return status.Errorf(status.InvalidArg, "unable to load model '%s': expected a SavedModel's folder at '%s', found a file", s.Model, f.path)
	case !files.IsRegular(filepath.Join(f.path, savedModelFile)) && !files.IsRegular(filepath.Join(f.path, savedModelFile+"txt")):
		return status.Errorf(status.NotFound, "unable to find '%s' for model '%s'", filepath.Join(f.path, savedModelFile), s.Model)
	}
	return nil
}

// keras refuses a file in a format of Keras, which only its Python code can read.
func keras(s *backends.Settings, path string) error {
	isKeras := func(name string) bool {
		return slices.Contains([]string{".keras", ".h5", ".hdf5"}, strings.ToLower(filepath.Ext(name)))
	}
	if _, err := os.Stat(path); err != nil && !isKeras(path) {
		list, _ := os.ReadDir(s.Dir)
		if i := slices.IndexFunc(list, func(e os.DirEntry) bool { return isKeras(e.Name()) }); i >= 0 {
			path = filepath.Join(s.Dir, list[i].Name())
		}
	}
	if !isKeras(path) {
		return nil
	}
	return status.Errorf(status.Unsupported,
		"unable to load model '%s': '%s' is a Keras file, which only Keras reads: save it by model.export('%s') and serve that folder", s.Model, path, savedModelFolder)
}

// initOps reads the names of the operations to run once, from a JSON file in the version folder: {"init_ops": ["name"]}.
func initOps(s *backends.Settings, name string) ([]string, error) {
	if name == "" {
		return nil, nil
	}
	if !filepath.IsLocal(name) {
		return nil, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected a file in the version folder", name, keyInitOps)
	}
	path := filepath.Join(s.Dir, name)
	if !files.IsRegular(path) {
		return nil, status.Errorf(status.NotFound, "unable to find '%s', which parameter '%s' names", path, keyInitOps)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Ops []string `json:"init_ops"`
	}
	if err := json.Unmarshal(data, &file); err != nil || file.Ops == nil {
		return nil, status.Errorf(status.InvalidArg, `unable to read '%s': expected {"init_ops": ["name", ...]}`, path)
	}
	return file.Ops, nil
}
