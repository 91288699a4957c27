package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fileKinds maps the suffixes of model files to backends.
var fileKinds = map[string]string{
	".onnx": onnxRuntime, ".plan": "tensorrt", ".savedmodel": "tensorflow", ".graphdef": "tensorflow", ".pb": "tensorflow",
	".pt": "pytorch", ".pt2": "torch_aoti", ".xml": "openvino", ".py": pythonBackend,
}

// maxNamed is the number of files that an error names at most.
const maxNamed = 5

// MissingFile turns err, a missing model file at path, into a fault of default_model_filename that names the files
// that the folder has.
func MissingFile(err error, path string) error {
	dir, name := filepath.Split(path)
	names := fileNames(dir)
	if info, failed := os.Stat(dir); failed != nil || !info.IsDir() || slices.Contains(names, name) {
		return Coded(ModelFile, "default_model_filename", err)
	}
	held := "the folder is empty"
	fix := "put the model's file there, as '" + name + "'"
	if len(names) > 0 {
		held = "the folder holds " + quotedNames(names)
	}
	if other := sameKind(names, name); other != "" {
		fix = fmt.Sprintf("rename '%s' to '%s', or set default_model_filename: %q", other, name, other)
	}
	return At(WithFix(Coded(ModelFile, "default_model_filename", &folderError{err, held}), fix), filepath.Clean(dir), 0)
}

// folderError adds the content of a folder to an error.
type folderError struct {
	err  error
	held string
}

func (h *folderError) Error() string { return h.err.Error() + ", " + h.held }
func (h *folderError) Unwrap() error { return h.err }

// fileNames lists the files and folders of dir that are not hidden, sorted.
func fileNames(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

// sameKind returns the only name with the same suffix as the given one, or "".
func sameKind(names []string, as string) string {
	like := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return filepath.Ext(name) != filepath.Ext(as) })
	if len(like) != 1 {
		return ""
	}
	return like[0]
}

// quotedNames quotes the first names of a list.
func quotedNames(names []string) string {
	more := ""
	if len(names) > maxNamed {
		names, more = names[:maxNamed], " and more"
	}
	return "'" + strings.Join(names, "', '") + "'" + more
}

// noBackendFile adds the content of the highest version folder to the fault of a model without a backend.
func noBackendFile(d *Diagnostic, dir string) {
	version := highestVersion(dir)
	if version == "" {
		return
	}
	d.File = version
	for _, name := range fileNames(version) {
		backend := fileKinds[filepath.Ext(name)]
		usual := slices.IndexFunc(defaultFiles, func(f defaultFile) bool { return f.backend == backend })
		if usual < 0 || backend == "" {
			continue
		}
		d.Reason += fmt.Sprintf(" Folder '%s' holds '%s'.", filepath.Base(version), name)
		d.Fix = fmt.Sprintf("rename it to %s, or set backend: %q and default_model_filename: %q", defaultFiles[usual].file, backend, name)
		return
	}
	d.Reason += fmt.Sprintf(" Folder '%s' holds no model's file.", filepath.Base(version))
	d.Fix = `put the model's file there, such as model.onnx or model.py, or set backend, for example backend: "onnxruntime"`
}
