// Package starter writes a model repository around a model file: its configuration, native steps before and after it, an
// ensemble of them, a sample request and a README. It reads the inputs and outputs of ONNX files without a runtime; those of other
// formats come from the caller.
//
// For example, a classifier in resnet.onnx becomes the models resnet_decode, resnet_model and resnet_top_k, and the ensemble resnet.
//
//	starter.go    Build, and the types of a written repository
//	file.go       the formats of model files
//	onnx.go       the inputs and outputs of an ONNX file
//	kind.go       the kind of a model, from its inputs and outputs
//	hints.go      files that are often beside a model: labels, tokenizer, preprocessing
//	image.go, detect.go, text.go, custom.go    the steps of each kind
//	render.go, readme.go                       the text of the files
package starter

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
)

// The kinds of models, which Options.Kind names.
const (
	Classify = "classify" // image -> labels with probabilities
	Detect   = "detect"   // image -> boxes
	Embed    = "embed"    // text or image -> vector
	Text     = "text"     // text -> labels with probabilities
	Custom   = "custom"   // the model alone
)

// Kinds returns the kinds of models.
func Kinds() []string { return []string{Classify, Detect, Embed, Text, Custom} }

// Options are the arguments of Build.
type Options struct {
	Model     string // path of the model: a file, or a folder of the formats that are folders
	Labels    string // path of a file with the names of the classes; empty for none, or for one that is found beside the model
	Tokenizer string // path of a tokenizer file; empty likewise
	Kind      string // one of Kinds; empty guesses
	Name      string // name of the ensemble; empty derives it from Model, or from Dir
	Dir       string // folder that will be written, for the name of the ensemble and the README
	// Ports reads the inputs and outputs of a format that Build cannot read itself, with the model's runtime. Nil refuses such formats.
	Ports func(m *Model) error
	// Refine takes from Ports what the file leaves open: a runtime may know the size of an output that the file calls variable.
	Refine bool

	_ struct{}
}

// Port is an input or output of a model file.
type Port struct {
	Name  string
	DType tensor.DType
	// Shape includes the batch dimension. -1 is a variable dimension. Nil: the file does not say.
	Shape []int64
	// Symbols has the names of variable dimensions, or empty strings. It may be shorter than Shape.
	Symbols []string
}

// Model is a model file with its inputs and outputs.
type Model struct {
	Path, Format, Backend string
	File                  string // name of the file, or folder, in the version folder
	Inputs, Outputs       []Port
	// External are the files with weights, as paths relative to the folder of Path.
	External []string
	// Meta is the metadata of the file. For example, that of Ultralytics has the labels.
	Meta map[string]string
	// Last has the type of the operator that computes each output, for example Softmax; copies and changes of shape are skipped.
	Last map[string]string
}

// Repository is a repository that Build has planned.
type Repository struct {
	Name string // of the ensemble
	Kind string
	// Notes say what was guessed, and how to change it, one sentence each.
	Notes   []string
	Folders []Folder
	// Ensemble is the ensemble's place in Folders.
	Ensemble int
	// Sample are the inputs of the sample request.
	Sample []Sample
	Model  *Model
	// Tokenized is true if a tokenizer step is in front of the model.
	Tokenized bool

	outputs []port // of the ensemble
	labels  []string
}

// Folder is the folder of one model in a repository.
type Folder struct {
	Name, Config string
	Files        []File
}

// File is a file of a Folder. Its content is Data, or that of the file or folder From.
type File struct {
	Path string // relative to the folder
	From string
	Data []byte
}

// Sample is an input of the sample request. Its elements are Data in the protocol's binary form.
type Sample struct {
	Name  string
	DType tensor.DType
	Shape []int64
	Data  []byte
	// File is the file with the content of the only element, beside the README; empty if the request holds it.
	File    string
	Content []byte
}

// Build plans a repository. It writes nothing.
func Build(o *Options) (*Repository, error) {
	if o.Kind != "" && !slices.Contains(Kinds(), o.Kind) {
		return nil, fmt.Errorf("unknown kind '%s', expected one of %s", o.Kind, strings.Join(Kinds(), ", "))
	}
	m, err := Open(o.Model)
	if err != nil {
		return nil, err
	}
	if m.Format == formatTorch {
		return nil, fmt.Errorf("the TorchScript file '%s' has no names, types and shapes of inputs and outputs. %s", o.Model, m.Undeclared())
	}
	if m.incomplete() {
		if o.Ports == nil {
			return nil, fmt.Errorf("the inputs and outputs of '%s' cannot be read without its runtime", o.Model)
		}
		if err := o.Ports(m); err != nil {
			return nil, err
		}
	}
	if o.Refine {
		if err := m.refine(o.Ports); err != nil {
			return nil, err
		}
	}
	b := &builder{o: o, m: m, r: &Repository{Model: m}}
	if err := b.check(); err != nil {
		return nil, err
	}
	if err := b.findHints(); err != nil {
		return nil, err
	}
	if err := b.choose(); err != nil {
		return nil, err
	}
	if b.r.Name, err = nameOf(o); err != nil {
		return nil, err
	}
	b.r.Kind = b.kind
	if err := b.build(); err != nil {
		return nil, err
	}
	b.assemble()
	return b.r, nil
}

// incomplete reports whether the file does not declare all that a configuration needs.
func (m *Model) incomplete() bool {
	unknown := func(p Port) bool { return p.Shape == nil }
	return len(m.Inputs) == 0 || len(m.Outputs) == 0 || slices.ContainsFunc(m.Outputs, unknown) || slices.ContainsFunc(m.Inputs, unknown)
}

// refine sets the dimensions that ports knows and the file does not.
func (m *Model) refine(ports func(*Model) error) error {
	exact := &Model{Path: m.Path, Format: m.Format, Backend: m.Backend, File: m.File, External: m.External}
	if err := ports(exact); err != nil {
		return err
	}
	known := slices.Concat(exact.Inputs, exact.Outputs)
	for _, p := range slices.Concat(m.Inputs, m.Outputs) {
		i := slices.IndexFunc(known, func(k Port) bool { return k.Name == p.Name && len(k.Shape) == len(p.Shape) })
		for d := range p.Shape {
			if i >= 0 && p.Shape[d] < 0 {
				p.Shape[d] = known[i].Shape[d]
			}
		}
	}
	return nil
}

// builder builds one repository.
type builder struct {
	o     *Options
	m     *Model
	r     *Repository
	hints hints
	kind  string
	image imageInput
	find  finding
	batch batching
	steps []stage

	ensembleInputs []port
}

func (b *builder) note(format string, args ...any) {
	b.r.Notes = append(b.r.Notes, fmt.Sprintf(format, args...))
}

// check refuses models that no configuration can serve.
func (b *builder) check() error {
	for _, side := range []struct {
		name  string
		ports []Port
	}{{"input", b.m.Inputs}, {"output", b.m.Outputs}} {
		if len(side.ports) == 0 {
			return fmt.Errorf("'%s' has no %ss", b.m.Path, side.name)
		}
		for _, p := range side.ports {
			if p.DType == tensor.Invalid {
				return fmt.Errorf("%s '%s' of '%s' has no type that requests can have", side.name, p.Name, b.m.Path)
			}
		}
	}
	return nil
}

// build adds the folders of the chosen kind.
func (b *builder) build() error {
	b.batch = b.batching()
	switch b.kind {
	case Classify:
		return b.buildClassifier()
	case Detect:
		return b.buildDetector()
	case Text:
		return b.buildText()
	case Embed:
		if b.image.ok {
			return b.buildImageEmbedding()
		}
		return b.buildText()
	}
	return b.buildCustom()
}

// Labels returns the names of the classes, or nil.
func (r *Repository) Labels() []string { return r.labels }

// ModelName returns the name of a model of the repository. For example, resnet_decode for "decode".
func (r *Repository) ModelName(step string) string { return r.Name + "_" + step }

// nameOf returns the name of the ensemble: that of the model file, or of its folder if the file is called as every other.
func nameOf(o *Options) (string, error) {
	if o.Name != "" {
		if clean(o.Name) != o.Name {
			return "", fmt.Errorf("'%s' is no name of a model, expected letters, digits, '_', '-' and '.', and a letter or digit first", o.Name)
		}
		return o.Name, nil
	}
	path, err := filepath.Abs(o.Model)
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return "", err
	}
	base := filepath.Base(path)
	if info, err := os.Stat(path); err == nil && !info.IsDir() || filepath.Ext(base) == ".savedmodel" {
		base = strings.TrimSuffix(base, filepath.Ext(base))
	}
	for _, name := range []string{base, filepath.Base(dir)} {
		if name = clean(name); name != "" && !common[name] {
			return name, nil
		}
	}
	return "pipeline", nil
}

// common has names that say nothing about a model.
var common = map[string]bool{"model": true, "saved_model": true, "model_quantized": true, "model_fp16": true, "1": true, "models": true, "repository": true, "repo": true}

// clean returns a name without the characters that a model's name cannot have.
func clean(name string) string {
	var b strings.Builder
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', b.Len() > 0 && (c == '_' || c == '-' || c == '.'):
			b.WriteRune(c)
		case b.Len() > 0:
			b.WriteByte('_')
		}
	}
	return strings.TrimRight(b.String(), "_-.")
}

// Write writes the folders of the repository and the sample request into dir, which must exist.
func (r *Repository) Write(dir string) error {
	for _, f := range r.Folders {
		files := append([]File{{Path: configFile, Data: []byte(f.Config)}}, f.Files...)
		for _, file := range files {
			if err := file.write(filepath.Join(dir, f.Name, filepath.FromSlash(file.Path))); err != nil {
				return err
			}
		}
	}
	top := r.sampleFiles()
	for _, name := range slices.Sorted(maps.Keys(top)) {
		if err := (&File{Data: top[name]}).write(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// WriteReadme writes the README. golden says whether the ensemble has a golden request.
func (r *Repository) WriteReadme(dir string, golden bool) error {
	return (&File{Data: []byte(r.readme(golden))}).write(filepath.Join(dir, "README.md"))
}

// configFile is the name of a model's configuration.
const configFile = "config.pbtxt"

// The modes of what is written: a repository is for everybody.
const (
	folderMode = 0o755
	fileMode   = 0o644
)

func (f *File) write(to string) error {
	if err := os.MkdirAll(filepath.Dir(to), folderMode); err != nil {
		return err
	}
	if f.From == "" {
		return os.WriteFile(to, f.Data, fileMode) //nolint:gosec // a repository is for everybody
	}
	return copyTree(f.From, to)
}

var errSpecial = errors.New("it is neither a file nor a folder")

// copyTree copies a file or a folder.
func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	switch {
	case info.Mode().IsRegular():
		return copyFile(from, to)
	case !info.IsDir():
		return fmt.Errorf("'%s' cannot be copied: %w", from, errSpecial)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, folderMode); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "__pycache__" {
			continue
		}
		if err := copyTree(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	_, err = out.ReadFrom(in)
	return errors.Join(err, out.Close())
}
