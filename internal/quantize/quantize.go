// Package quantize makes a version of a model in another precision, and measures how far a version's outputs are from those of its
// reference.
//
//	quantize.go  Make: a new version folder beside the others
//	measure.go   Measure: two versions with the same requests, and the record of it
//	requests.go  the requests: golden, captured, or from files, of the model or of an ensemble around it
//	convert.go   files in another precision: onnxruntime's quantiser in a Python environment of its own (quantize.py)
//	report.go    the report for people
//
// A version folder appears in one step, complete with its record (fidelity.json): a server that polls sees all of it or nothing. A
// version that misses the fidelity that the configuration demands is not written.
package quantize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Settings are the arguments of Make and Measure.
type Settings struct {
	lab.Settings

	// Dir is the folder of the model. The folder around it is the repository.
	Dir string
	// Reference is the version to compare with, 0 for the highest one that can be: see reference.
	Reference int64
	// Data are files with the requests to measure with: see requests. Calibration are files with those to calibrate with; none means
	// that activations are quantised while the model executes.
	Data, Calibration []string
	// Ensemble is the model that requests of files are for, if that is not the model itself. Its steps call the model.
	Ensemble string
	// Bound is the fidelity to demand in place of that of the configuration; nil takes that one.
	Bound *precision.Bound
	// Python returns the interpreter of the quantiser's environment. It is called when a file is converted.
	Python func() (string, error)
	// Write writes the change of config.pbtxt that declares the version, before the version appears.
	Write bool
	// Log receives what the quantiser prints. Optional.
	Log io.Writer
}

// Result is a measured version.
type Result struct {
	Model   string `json:"model"`
	Version int64  `json:"version"`
	// Folder is that of the version. It is empty for a version that was made and is not written, because it misses the bound.
	Folder string            `json:"folder,omitempty"`
	Record *precision.Record `json:"record"`
	// Bound is the fidelity that is demanded, empty for none. Missed says what was missed.
	Bound  string `json:"fidelity,omitempty"`
	Missed string `json:"missed,omitempty"`
	// Kept is how many of the matrix products of an int8 version stay in FP32, because the others alone have the fidelity.
	Kept     int `json:"kept_fp32,omitempty"`
	Products int `json:"products,omitempty"`
	// Smoothed is how many of them read activations whose channels were scaled, with the inverse in the weights.
	Smoothed int `json:"smoothed,omitempty"`
	// Bytes are the sizes of the reference's and of the version's files.
	Bytes [2]int64 `json:"bytes"`
	// Change is the change of config.pbtxt that declares the version, nil if it is declared.
	Change *lab.Change `json:"-"`
	Diff   string      `json:"diff,omitempty"`
}

// model is the model that a call is about.
type model struct {
	*Settings
	root, name string
	text       []byte                   // of config.pbtxt, nil without one
	cfg        *modelconfig.ModelConfig // with the defaults that a server fills in
	versions   []int64                  // in ascending order
}

// open reads the configuration and the versions of the model.
func (s *Settings) open() (*model, error) {
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return nil, err
	}
	m := &model{Settings: s, root: filepath.Dir(dir), name: filepath.Base(dir)}
	m.Dir = dir
	if m.versions, _, err = repository.VersionFolders(dir); err != nil {
		return nil, fmt.Errorf("expected the folder of a model: %w", err)
	}
	if len(m.versions) == 0 {
		return nil, status.Errorf(status.NotFound, "'%s' has no version folder, expected the folder of a model", dir)
	}
	path := filepath.Join(dir, config.FileName)
	if m.text, err = config.ReadText(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if m.cfg, err = config.Parse(path, m.text); err != nil {
		return nil, err
	}
	config.NormaliseAndCheck(m.cfg, config.Source{Dir: dir, Name: m.name}, nil) // the load reports faults
	switch backend := m.cfg.GetBackend(); backend {
	case onnxRuntime, openVINO:
	default:
		return nil, status.Errorf(status.Unsupported, "model '%s' is of backend '%s', expected onnxruntime or openvino: others have no declared precision", m.name, backend)
	}
	return m, nil
}

// The backends with a declared precision.
const (
	onnxRuntime = "onnxruntime"
	openVINO    = "openvino"
)

func (m *model) folder(version int64) string {
	return filepath.Join(m.Dir, strconv.FormatInt(version, 10))
}

// file returns the path of the model file below a version folder, and in it.
func (m *model) file(dir string) string {
	name := m.cfg.GetDefaultModelFilename()
	path := filepath.Join(dir, name)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Join(path, name) // a folder with the file and its external data
	}
	return path
}

// reference returns the version to compare version with: the highest one below it that is declared fp32 or nothing.
func (m *model) reference(version int64) (int64, error) {
	if m.Reference > 0 {
		if !slices.Contains(m.versions, m.Reference) {
			return 0, status.Errorf(status.NotFound, "model '%s' has no version %d, expected one of %v", m.name, m.Reference, m.versions)
		}
		if m.Reference == version {
			return 0, status.Errorf(status.InvalidArg, "version %d cannot be compared with itself: name another one by --against", version)
		}
		return m.Reference, nil
	}
	for _, n := range slices.Backward(m.versions) {
		declared, err := precision.Declared(m.cfg, n)
		if err != nil {
			return 0, err
		}
		if n < version && (declared == precision.FP32 || declared == precision.None) {
			return n, nil
		}
	}
	return 0, status.Errorf(status.NotFound, "model '%s' has no version below %d that is declared fp32: name the one to compare with by --against", m.name, version)
}

// bound returns the fidelity that is demanded, nil for none.
func (m *model) bound() (*precision.Bound, error) {
	if m.Bound != nil {
		return m.Bound, nil
	}
	return precision.BoundOf(m.cfg)
}

// Make makes a version in another precision and measures it. It is written if it has the fidelity that is demanded. Otherwise Missed of
// the result says why it is not.
func Make(ctx context.Context, s *Settings, to precision.Precision) (r *Result, err error) {
	m, err := s.open()
	if err != nil {
		return nil, err
	}
	number := m.versions[len(m.versions)-1] + 1
	from, err := m.reference(number)
	if err != nil {
		return nil, err
	}
	if err := m.possible(to, from); err != nil {
		return nil, err
	}
	change, err := m.declare(number, to, from)
	if err != nil {
		return nil, err
	}
	w, err := m.samples(ctx, from)
	if err != nil {
		return nil, err
	}
	tmp, err := m.search(ctx, w, to, number, from, &r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if r.Missed != "" {
		return r, nil
	}
	if change != nil {
		r.Change, r.Diff = change, change.Diff()
	}
	if change != nil && m.Write {
		if err := change.Write(); err != nil {
			return nil, err
		}
	}
	r.Folder = m.folder(number)
	return r, publish(r.Record, tmp, r.Folder)
}

// search makes the version in a hidden folder beside the others, which the caller must remove, and measures it.
//
// Where int8 misses the fidelity that is demanded, the matrix products with the largest error stay in FP32: 1 of them, then 2, 4 and so on,
// up to half of them. Beyond that a version has little left to gain.
func (m *model) search(ctx context.Context, w *samples, to precision.Precision, number, from int64, r **Result) (tmp string, err error) {
	for keep := 0; ; keep = max(1, 2*keep) {
		if tmp, err = os.MkdirTemp(m.Dir, ".quantize-"); err != nil {
			return "", err
		}
		made, err := m.convert(ctx, w, to, keep, m.folder(from), tmp)
		if err == nil {
			*r, err = m.measure(ctx, w.requests, tmp, number, to, from)
		}
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(tmp))
		}
		(*r).Kept, (*r).Products, (*r).Smoothed = keep, made.Products, made.Smoothed
		if (*r).Missed == "" || to != precision.INT8 || max(1, 2*keep) > made.Products/2 {
			return tmp, nil
		}
		if err := os.RemoveAll(tmp); err != nil {
			return "", err
		}
	}
}

// publish makes the folder of a version appear.
func publish(record *precision.Record, tmp, folder string) error {
	if err := record.Write(tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // a repository is for everybody
		return err
	}
	if _, err := os.Lstat(folder); err == nil {
		return status.Errorf(status.AlreadyExists, "'%s' has appeared meanwhile: run the command again", folder)
	}
	return os.Rename(tmp, folder)
}

// possible refuses what cannot be made.
func (m *model) possible(to precision.Precision, from int64) error {
	file := m.file(m.folder(from))
	isONNX := strings.EqualFold(filepath.Ext(file), ".onnx")
	if isONNX {
		found, err := precision.OfONNX(file)
		if err != nil {
			return err
		}
		if found != precision.FP32 {
			return status.Errorf(status.InvalidArg, "'%s' is %s, expected a file in fp32: name its version by --against", file, found)
		}
	}
	processor := precision.Machine()
	switch {
	case to == precision.INT8 && !isONNX:
		return status.Errorf(status.Unsupported, "the quantiser reads ONNX files, and the file of model '%s' is '%s': quantise it with NNCF, put the result "+
			"into a version folder, and measure it: tutti quantize %s --measure VERSION", m.name, file, m.Dir)
	case m.cfg.GetBackend() == openVINO && (to == precision.BF16 && !processor.FastBF16() || to == precision.FP16 && !processor.FastFP16()):
		return status.Errorf(status.Unsupported, "this processor has no instructions for %s (%s): run the command on one that has them", to, processor)
	case m.cfg.GetBackend() == onnxRuntime && to == precision.BF16 && (runtime.GOARCH != "arm64" || !processor.FastBF16()):
		return status.Errorf(status.Unsupported, `ONNX Runtime computes in bf16 on arm64 processors with BF16 only: take backend: "openvino" `+
			"with default_model_filename, which computes the same file in bf16 where the processor can (this one: %s)", processor)
	case m.cfg.GetBackend() == onnxRuntime && to == precision.FP16 && !m.onGPU() && (runtime.GOARCH != "arm64" || !processor.FastFP16()):
		return status.Errorf(status.Unsupported, `ONNX Runtime computes in fp16 on GPUs and on arm64 processors with FP16 only, and model '%s' runs on this processor (%s): `+
			`take backend: "openvino", or an instance_group of KIND_GPU`, m.name, processor)
	}
	return nil
}

func (m *model) onGPU() bool {
	return slices.ContainsFunc(m.cfg.GetInstanceGroup(), func(g *modelconfig.ModelInstanceGroup) bool {
		return g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU
	})
}

// declare returns the change of config.pbtxt that declares a version, nil if it is declared.
func (m *model) declare(version int64, p precision.Precision, from int64) (*lab.Change, error) {
	was := m.cfg.GetParameters()[precision.Key].GetStringValue()
	declared, err := precision.Declared(m.cfg, from)
	if err != nil {
		return nil, err
	}
	if declared == precision.None {
		declared = precision.FP32
	}
	value, err := precision.With(was, version, p, declared)
	if err != nil {
		return nil, err
	}
	edits := []config.Edit{}
	if value != was {
		edits = append(edits, config.Edit{Path: "parameters." + precision.Key, Value: value})
	}
	if m.Bound != nil && m.Bound.String() != m.cfg.GetParameters()[precision.FidelityKey].GetStringValue() {
		edits = append(edits, config.Edit{Path: "parameters." + precision.FidelityKey, Value: m.Bound.String()})
	}
	if len(edits) == 0 {
		return nil, nil //nolint:nilnil // documented
	}
	c := &lab.Change{Model: m.name, Path: filepath.Join(m.Dir, config.FileName), From: m.text}
	if c.To, err = config.EditText(m.text, edits...); err != nil {
		return nil, err
	}
	_, err = config.Parse(c.Path, c.To)
	return c, err
}
