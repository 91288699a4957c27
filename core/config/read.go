package config

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Source is the origin of one model's configuration.
type Source struct {
	Dir, Name  string // Dir is the model's folder, Name the name of the model
	ConfigName string // selects configs/CONFIGNAME.pbtxt over config.pbtxt. Optional.
	Override   string // JSON that replaces the file. Optional.
}

// Read reads a model's configuration, deduces a missing backend, fills in defaults and checks it. It returns all
// diagnostics; if HasFault reports true for them the model must be rejected. The configuration is nil if the text
// does not parse. A missing file is no fault if the model's files determine the backend.
func Read(s Source, o *Options) (*modelconfig.ModelConfig, []Diagnostic) {
	cfg, places, err := s.Open()
	if err != nil {
		return nil, []Diagnostic{diagnosticOf(err, s.Name)}
	}
	list := NormaliseAndCheck(cfg, s, o)
	places.Locate(list)
	return cfg, list
}

// NormaliseAndCheck fills in the defaults of a configuration as written, and checks it: the second half of Read.
func NormaliseAndCheck(cfg *modelconfig.ModelConfig, s Source, o *Options) []Diagnostic {
	cfg.Name = cmp.Or(cfg.Name, s.Name)
	list := Hints(cfg)
	Deduce(cfg, s.Dir, s.Name)
	notes, err := NormaliseWith(cfg, s.Name, o)
	list = append(list, notes...)
	list = append(list, noBackend(cfg, s.Dir, inspect(cfg, o))...)
	list = append(list, strictFaults(cfg, o, list)...)
	if err != nil { // Triton checks this last
		list = append(list, diagnosticOf(err, s.Name))
	}
	return list
}

// FirstError returns the error of the first fault in list, or nil.
func FirstError(list []Diagnostic) error {
	for i := range list {
		if err := list[i].Err(); err != nil {
			return err
		}
	}
	return nil
}

// strictFaults returns the additional faults of cfg under strict options.
func strictFaults(cfg *modelconfig.ModelConfig, o *Options, said []Diagnostic) []Diagnostic {
	switch {
	case o == nil, IsEnsemble(cfg) && !o.StrictEnsembleConfig, !IsEnsemble(cfg) && !o.NoAutoComplete:
		return nil
	}
	return slices.DeleteFunc(CheckComplete(cfg), func(d Diagnostic) bool {
		return slices.ContainsFunc(said, func(s Diagnostic) bool { return s.Code == d.Code && s.Field == d.Field })
	})
}

func diagnosticOf(err error, model string) Diagnostic {
	d, ok := Diagnosed(err)
	if !ok {
		d = newDiagnostic(Unreadable, "", err.Error())
		d.status = status.CodeOf(err)
	}
	d.Model = model
	return d
}

// Open reads the override or the file, and finds the positions of its fields. A model without a file, whose files
// determine the backend, gets a configuration with only that.
func (s *Source) Open() (*modelconfig.ModelConfig, *Positions, error) {
	if s.Override != "" {
		cfg, err := ParseJSON(s.Override)
		return cfg, nil, err
	}
	path := PathOf(s.Dir, s.ConfigName)
	text, err := ReadText(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		cfg := new(modelconfig.ModelConfig)
		if Deduce(cfg, s.Dir, s.Name); cfg.GetBackend() == "" && cfg.GetPlatform() == "" {
			return nil, nil, Coded(NoFile, "", err)
		}
		return cfg, nil, nil
	case err != nil:
		return nil, nil, err
	}
	cfg, err := Parse(path, text)
	if err != nil {
		return nil, nil, err
	}
	return cfg, NewPositions(path, text), nil
}

// Deduce sets the missing backend of a configuration as Triton does: by the default file in the highest version
// folder, else by a folder named MODEL.BACKEND. It does nothing if neither exists.
func Deduce(cfg *modelconfig.ModelConfig, dir, name string) {
	if cfg.GetBackend() != "" || cfg.GetPlatform() != "" || IsEnsemble(cfg) {
		return
	}
	version := highestVersion(dir)
	for _, d := range defaultFiles {
		file := d.file
		if f := cfg.GetDefaultModelFilename(); f != "" {
			if filepath.Ext(f) != filepath.Ext(file) || !filepath.IsLocal(f) {
				continue
			}
			file = f
		}
		if _, err := os.Stat(filepath.Join(version, file)); err == nil && version != "" {
			cfg.Backend, cfg.Platform = d.backend, d.platform
			deduceFormat(cfg, d.file)
			return
		}
	}
	at := strings.IndexByte(name, '.')
	if at <= 0 || at+1 == len(name) {
		return
	}
	cfg.Backend = name[at+1:]
	// A backend with a file of its own name keeps that; any other has Triton's.
	if cfg.DefaultModelFilename == "" && !slices.ContainsFunc(defaultFiles, func(d defaultFile) bool { return d.backend == cfg.Backend }) {
		cfg.DefaultModelFilename = "model." + cfg.Backend
	}
}

// deduceFormat sets the format of a forest by the name of its default file.
func deduceFormat(cfg *modelconfig.ModelConfig, file string) {
	if cfg.Backend != filBackend || cfg.GetParameters()[filFormat] != nil {
		return
	}
	for format, usual := range filFiles {
		if usual == file {
			if cfg.Parameters == nil {
				cfg.Parameters = map[string]*modelconfig.ModelParameter{}
			}
			cfg.Parameters[filFormat] = &modelconfig.ModelParameter{StringValue: format}
		}
	}
}

// noBackend is Triton's error if no backend can be deduced, with what the folder has.
func noBackend(cfg *modelconfig.ModelConfig, dir string, list []Diagnostic) []Diagnostic {
	for i := range list {
		if list[i].Code == NoBackend {
			list[i].Reason = fmt.Sprintf("Invalid model name: Could not determine backend for model '%s' with no backend in model configuration. "+
				"Expected model name of the form 'model.<backend_name>'.", cfg.GetName())
			noBackendFile(&list[i], dir)
		}
	}
	return list
}

// highestVersion returns the version folder with the highest number, or "".
func highestVersion(dir string) string {
	best, path := int64(0), ""
	for _, name := range fileNames(dir) {
		if n, ok := VersionOf(name); ok && n > best {
			best, path = n, filepath.Join(dir, name)
		}
	}
	return path
}

// LooksLikeVersion reports whether a folder that is not a version was probably meant as one. For example, 0, 01,
// v2, 1.0, -1 or 3-old.
func LooksLikeVersion(name string) bool {
	if _, ok := VersionOf(name); ok {
		return false
	}
	name = strings.TrimLeft(name, "vV-+")
	return name != "" && name[0] >= '0' && name[0] <= '9'
}

// NeedsVersion reports whether a model needs a version folder. Ensembles, native steps and remote ones are version 1 without
// one. Under StrictEnsembleConfig an ensemble needs one.
func NeedsVersion(cfg *modelconfig.ModelConfig, o *Options) bool {
	if IsEnsemble(cfg) {
		return o != nil && o.StrictEnsembleConfig
	}
	return cfg.GetBackend() != nativeBackend && cfg.GetBackend() != remoteBackend
}

// NoVersionFolder is Triton's error for a model without a version folder. ignored are folders that were probably
// meant as one.
func NoVersionFolder(model string, ignored []string) error {
	const text = "at least one version must be available under the version policy of model '%s'"
	if len(ignored) == 0 {
		return Errorf(NoVersion, "", text, model)
	}
	number := strings.TrimLeft(ignored[0], "vV-+0") // that the name most likely stands for
	number = cmp.Or(strings.TrimSuffix(number, strings.TrimLeft(number, "0123456789")), "1")
	return WithFix(Errorf(NoVersion, "", text+", folder '%s' is no version", model, ignored[0]), "rename folder '"+ignored[0]+"' to "+number)
}

// IgnoredVersionFolder is the notice for a folder that is ignored.
func IgnoredVersionFolder(model, folder string) Diagnostic {
	d := newDiagnostic(FolderName, "", fmt.Sprintf("folder '%s' of model '%s' is no version and is ignored", folder, model))
	d.Model = model
	return d
}

// VersionOf returns the number of a version folder. It must be positive, without leading zeros.
func VersionOf(name string) (int64, bool) {
	n, err := strconv.ParseInt(name, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == name
}

// fileKinds maps the suffixes of model files to backends.
var fileKinds = map[string]string{
	".onnx": onnxRuntime, ".plan": "tensorrt", ".savedmodel": "tensorflow", ".graphdef": "tensorflow", ".pb": "tensorflow",
	".pt": "pytorch", ".pt2": "torch_aoti", ".xml": "openvino", ".py": pythonBackend,
	".netdef": "caffe2",
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
		held = "the folder holds '" + strings.Join(names[:min(len(names), maxNamed)], "', '") + "'"
	}
	if len(names) > maxNamed {
		held += " and more"
	}
	alike := slices.DeleteFunc(slices.Clone(names), func(other string) bool { return filepath.Ext(other) != filepath.Ext(name) })
	if len(alike) == 1 {
		fix = fmt.Sprintf("rename '%s' to '%s', or set default_model_filename: %q", alike[0], name, alike[0])
	}
	return At(WithFix(Coded(ModelFile, "default_model_filename", fmt.Errorf("%w, %s", err, held)), fix), filepath.Clean(dir), 0)
}

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

// maxLabels bounds the lines of a label file. The largest public class lists have 21,843.
const maxLabels = 1 << 20

// ReadLabels reads the label files that cfg names for outputs, in the model's folder dir, into sig. A label file
// has one label per line.
func ReadLabels(cfg *modelconfig.ModelConfig, dir string, sig *Signature) error {
	for _, out := range cfg.GetOutput() {
		at := sig.Output(out.GetName())
		if out.GetLabelFilename() == "" || at < 0 {
			continue
		}
		labels, err := readLabels(dir, out.GetLabelFilename())
		if err != nil {
			return Errorf(LabelFile, "output", "label file '%s' for output '%s' in model '%s' cannot be read: %w",
				out.GetLabelFilename(), out.GetName(), cfg.GetName(), err)
		}
		sig.Outputs[at].Labels = labels
	}
	return nil
}

// readLabels reads a file of the folder dir. The name must not lead out of the folder. A symbolic link may, as in
// Triton.
func readLabels(dir, name string) ([]string, error) {
	if !filepath.IsLocal(name) {
		return nil, errors.New("it is outside the model's folder")
	}
	f, _, err := openRegular(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var labels []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if len(labels) == maxLabels {
			return nil, status.Errorf(status.InvalidArg, "more than %d lines", maxLabels)
		}
		labels = append(labels, strings.TrimRight(lines.Text(), " \t\r"))
	}
	return labels, lines.Err()
}
