package tensorflow

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

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

// files has the path and the format of a model.
type files struct {
	path  string
	graph bool // a GraphDef, not a SavedModel
}

// unread adds the expected format to an error of the runtime.
func (f *files) unread(err error) error {
	if f.graph {
		return bind.UnreadableFile(err, "a GraphDef", f.path)
	}
	return bind.UnreadableFile(err, "a SavedModel's graph", filepath.Join(f.path, savedModelFile))
}

// find returns the files of a model. Without a platform in the configuration, the existing file determines the format.
func find(s *backends.Settings) (files, error) {
	name := savedModelFolder
	f := files{}
	switch p := s.Config.GetPlatform(); p {
	case graphPlatform:
		name, f.graph = graphFile, true
	case savedModelPlatform:
	case "":
		if isFile(s.File(graphFile)) {
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
func (f *files) check(s *backends.Settings) error {
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
	case !slices.ContainsFunc([]string{savedModelFile, savedModelFile + "txt"}, func(n string) bool { return isFile(filepath.Join(f.path, n)) }):
		return status.Errorf(status.NotFound, "unable to find '%s' for model '%s'", filepath.Join(f.path, savedModelFile), s.Model)
	}
	return nil
}

// keras refuses a file in a format of Keras, which only its Python code can read.
func keras(s *backends.Settings, path string) error {
	found := ""
	if kerasFile(path) {
		found = path
	} else if _, err := os.Stat(path); err != nil {
		list, _ := os.ReadDir(s.Dir)
		if i := slices.IndexFunc(list, func(e os.DirEntry) bool { return kerasFile(e.Name()) }); i >= 0 {
			found = filepath.Join(s.Dir, list[i].Name())
		}
	}
	if found == "" {
		return nil
	}
	return status.Errorf(status.Unsupported,
		"unable to load model '%s': '%s' is a Keras file, which only Keras reads: save it by model.export('%s') and serve that folder", s.Model, found, savedModelFolder)
}

func kerasFile(name string) bool {
	return slices.Contains([]string{".keras", ".h5", ".hdf5"}, strings.ToLower(filepath.Ext(name)))
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
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
	if !isFile(path) {
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
