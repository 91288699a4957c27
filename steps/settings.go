package steps

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Find returns the path of the file that a parameter names. It searches the version folder, then the model folder. The
// file must be regular, and may lie outside of these folders only by way of a symbolic link in them.
func (s *Settings) Find(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("file '%s' of model '%s' is outside the model folder", name, s.Model)
	}
	odd := ""
	for _, dir := range []string{s.Dir, s.ModelDir} {
		path := filepath.Join(dir, name)
		switch info, err := os.Stat(path); {
		case err != nil:
		case info.Mode().IsRegular():
			return path, nil
		default: // opening a pipe would wait for its writer forever
			odd = fmt.Sprintf(": expected a file at '%s', found %s", path, info.Mode())
		}
	}
	if odd == "" {
		odd = fmt.Sprintf(" is neither in '%s' nor in '%s'", s.Dir, s.ModelDir)
		if near := config.DidYouMean(name, s.files()); near != "" {
			odd += "." + near
		}
	}
	return "", config.WithFix(config.Errorf(config.StepParam, "", "file '%s' of model '%s'%s", name, s.Model, odd), "put the file into the model's folder, or correct its name")
}

// files returns the names of the files in the version folder and in the model folder.
func (s *Settings) files() []string {
	var names []string
	for _, dir := range []string{s.Dir, s.ModelDir} {
		entries, _ := os.ReadDir(dir) // a folder that cannot be read counts as empty
		for _, e := range entries {
			if e.Type().IsRegular() {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// Wrong returns the error of a parameter whose value is not what the step expected. For example, "parameter 'k' of model 'm' is '-1',
// expected a number of at least 0".
func (s *Settings) Wrong(key, expected string) error {
	return fmt.Errorf("parameter '%s' of model '%s' is '%s', expected %s", key, s.Model, s.Params[key], expected)
}

// Int parses parameter key as an integer of at least lowest.
func (s *Settings) Int(key string, lowest int) (int, error) {
	n, err := strconv.Atoi(s.Params[key])
	if err != nil || n < lowest {
		return 0, s.Wrong(key, fmt.Sprintf("an integer of at least %d", lowest))
	}
	return n, nil
}

// Bool parses parameter key as "true" or "false".
func (s *Settings) Bool(key string) (bool, error) {
	switch s.Params[key] {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, s.Wrong(key, "true or false")
	}
}

// Float parses parameter key as a finite number.
func (s *Settings) Float(key string) (float64, error) {
	f, err := strconv.ParseFloat(s.Params[key], 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, s.Wrong(key, "a number")
	}
	return f, nil
}

// InputError returns an invalid-argument error for a row of a batch, for Batch.Fail. It names the
// input, and the row where its request has several. For example, "input 'IMAGE' row 1: ...".
func InputError(b *backends.Batch, input string, row int, err error) error {
	place := ""
	for i := range b.Requests {
		if r := &b.Requests[i]; r.Rows > 1 && row >= r.First && row < r.First+r.Rows {
			place = fmt.Sprintf(" row %d", row-r.First)
		}
	}
	return status.Errorf(status.InvalidArg, "input '%s'%s: %w", input, place, err)
}

// Labels are the lines of a labels file, each encoded as a BYTES element. Line 0 is the label
// of class 0. It is nil where no file is configured.
type Labels [][]byte

var noLabel = tensor.AppendBytes(nil, "")

// of returns the label of a class, an empty one if class is negative.
func (l Labels) of(class int) []byte {
	if class < 0 {
		return noLabel
	}
	return l[class]
}

// WriteLabels allocates output port with the labels of classes, which must be below len(l). A
// negative class has an empty label. It does nothing if l is nil.
func WriteLabels[T int32 | int64](b *backends.Batch, port int, shape tensor.Shape, l Labels, classes []T) error {
	if l == nil {
		return nil
	}
	n := 0
	for _, class := range classes {
		n += len(l.of(int(class)))
	}
	out, err := b.AllocBytes(port, shape, n)
	if err != nil {
		return err
	}
	dst := out.Bytes()
	for _, class := range classes {
		dst = dst[copy(dst, l.of(int(class))):]
	}
	return nil
}

// Labels reads the text file that parameter key names and returns its lines, each encoded as a
// BYTES element. It returns nil if the parameter is empty. The text must be UTF-8.
func (s *Settings) Labels(key string) (Labels, error) {
	name := s.Params[key]
	if name == "" {
		return nil, nil
	}
	path, err := s.Find(name)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the labels of model '%s': %w", s.Model, err)
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	labels := make(Labels, len(lines))
	for i, line := range lines {
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("labels file '%s' of model '%s', line %d: expected UTF-8, found % x", name, s.Model, i+1, line)
		}
		labels[i] = tensor.AppendBytes(nil, bytes.TrimSuffix(line, []byte("\r")))
	}
	return labels, nil
}

// FloatPort returns an input that is FP32 unless config.pbtxt declares it FP16.
func (s *Settings) FloatPort(name string, dims ...int64) config.Port {
	p := config.Port{Name: name, DType: tensor.FP32, Dims: tensor.Of(dims...)}
	declared := func(in config.Port) bool { return in.Name == name && in.DType == tensor.FP16 }
	if slices.ContainsFunc(s.Inputs, declared) {
		p.DType = tensor.FP16
	}
	return p
}

// Floats returns n elements of t from index first on. The type of t must be FP32 or FP16. FP32 elements are borrowed
// from t. FP16 elements are converted into scratch, which is grown if needed; grown is the scratch for the next call.
//
// hot: no allocation once scratch has grown.
func Floats(scratch []float32, t *tensor.Tensor, first, n int) (values, grown []float32) {
	if t.DType != tensor.FP16 {
		return tensor.Slice[float32](t)[first : first+n], scratch
	}
	scratch = slices.Grow(scratch[:0], n)[:n]
	for i, h := range tensor.Slice[uint16](t)[first : first+n] {
		scratch[i] = tensor.FP16ToFloat32(h)
	}
	return scratch, scratch
}

// CheckWidth calls check with the extent that config.pbtxt declares for the only dimension of the only input, where it is fixed.
func (s *Settings) CheckWidth(check func(int) error) error {
	if len(s.Inputs) != 1 {
		return nil
	}
	dims := s.Inputs[0].ModelDims()
	if dims.Rank() != 1 || dims.Dim(0) < 0 {
		return nil
	}
	if err := check(int(dims.Dim(0))); err != nil {
		return fmt.Errorf("model '%s': %w", s.Model, err)
	}
	return nil
}

// ExampleConfig returns the Config of an Example: head, which may be empty, then the parameter "step", then others, each a key and a value.
func ExampleConfig(head, step string, params ...string) string {
	params = append([]string{Key, step}, params...)
	lines := make([]string, 0, 1+len(params)/2)
	if head != "" {
		lines = append(lines, head)
	}
	for i := 0; i < len(params); i += 2 {
		lines = append(lines, fmt.Sprintf("parameters { key: %q value { string_value: %q } }", params[i], params[i+1]))
	}
	return strings.Join(lines, "\n")
}

// Reader reads numbers among the parameters. After the first error, which it keeps, the step must not be used.
type Reader struct {
	Settings *Settings
	Err      error
}

// Int parses parameter key as an integer from lowest to highest.
func (r *Reader) Int(key string, lowest, highest int) int {
	n, err := r.Settings.Int(key, lowest)
	if err == nil && n > highest {
		err = fmt.Errorf("parameter '%s' of model '%s' is %d, expected at most %d", key, r.Settings.Model, n, highest)
	}
	r.Err = cmp.Or(r.Err, err)
	return n
}

// Float parses parameter key as a finite number.
func (r *Reader) Float(key string) float32 { return float32(r.Float64(key)) }

// Float64 is Float for a number that is not rounded.
func (r *Reader) Float64(key string) float64 {
	f, err := r.Settings.Float(key)
	r.Err = cmp.Or(r.Err, err)
	return f
}

// Shape returns the shape of an output: dims, after the number of rows of b in a model that batches.
func Shape(b *backends.Batch, batched bool, dims ...int64) tensor.Shape {
	s := tensor.Of(dims...)
	if batched {
		return s.Prepend(int64(b.Rows))
	}
	return s
}

// Outputs keeps the first error of Alloc, after which the outputs must not be used.
type Outputs struct {
	Batch *backends.Batch
	Err   error
}

// Alloc allocates output port of type d, which has elements T, and returns its elements. They are not cleared.
func Alloc[T tensor.Number](o *Outputs, port int, d tensor.DType, shape tensor.Shape) []T {
	t, err := o.Batch.Alloc(port, d, shape)
	if err != nil {
		o.Err = cmp.Or(o.Err, err)
		return nil
	}
	return tensor.Slice[T](t)
}

// Write allocates output port and copies data to it: elements of type d, encoded where that is BYTES.
func Write(b *backends.Batch, port int, d tensor.DType, shape tensor.Shape, data []byte) error {
	var out *tensor.Tensor
	var err error
	if d == tensor.Bytes {
		out, err = b.AllocBytes(port, shape, len(data))
	} else {
		out, err = b.Alloc(port, d, shape)
	}
	if err == nil {
		copy(out.Bytes(), data)
	}
	return err
}
