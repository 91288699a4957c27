package repository

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// goldenFolder is a model's folder with golden requests: requests with the responses that the model must give
// before it serves.
const goldenFolder = "golden"

// goldenCase is one file of the golden folder: a request in the v2 protocol's JSON, and expected outputs. Outputs
// that the case does not list are not compared.
type goldenCase struct {
	Inputs    []goldenTensor `json:"inputs"`
	Outputs   []goldenTensor `json:"outputs"`
	Tolerance *tolerance     `json:"tolerance"` // applies to outputs without a tolerance
}

// tolerance is the permitted difference of floating-point elements: |got-want| <= Absolute + Relative*|want|.
type tolerance struct {
	Absolute float64 `json:"absolute"`
	Relative float64 `json:"relative"`
}

// defaultTolerance covers the differences between kernels of different processors.
var defaultTolerance = tolerance{Absolute: 1e-5, Relative: 1e-4} //nolint:gochecknoglobals // a constant

// checkGoldens sends the golden requests of a version. The error names the first file with an unexpected response, or the figure that
// misses the bound by which responses in a lower precision are compared.
func (r *Repository) checkGoldens(ctx context.Context, f *folder, v *version, x *dryRun) error {
	dir := filepath.Join(f.dir, goldenFolder)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return status.Errorf(status.InvalidArg, "golden requests of model '%s' cannot be read: %w", f.name, err)
	}
	asked := 0
	bound, lower, err := v.goldenBound(f.cfg)
	if err != nil {
		return err
	}
	sum := &precision.Comparison{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || ignoredFile(e.Name()) {
			continue
		}
		judge := (*goldenCase).compare
		switch {
		case bound != nil:
			judge = func(g *goldenCase, resp *infer.Response) error { return g.add(sum, resp, v.sig.MaxBatch > 0) }
		case lower != nil:
			judge = func(g *goldenCase, resp *infer.Response) error { return lower.explain(g.compare(resp)) }
		}
		if err := r.checkGolden(ctx, f, e.Name(), x, judge); err != nil {
			return status.Errorf(status.InvalidArg, "golden request '%s' of model '%s': %w", e.Name(), f.name, err)
		}
		asked++
	}
	if bound != nil {
		if err := bound.Check(sum.Outputs()); err != nil {
			return status.Errorf(status.InvalidArg, "golden requests of model '%s' miss the fidelity '%s': %w", f.name, bound, err)
		}
	}
	if asked > 0 {
		r.s.Log.InfoContext(ctx, "golden requests answered", slog.String("model", f.name), slog.Int64("version", v.sig.Version), slog.Int("requests", asked))
	}
	return nil
}

// goldenBound returns the bound by which golden requests of a version are compared, nil for their tolerance.
//
// It is the fidelity that the version's configuration demands. That of an ensemble counts while one of its steps computes in a lower
// precision than fp32. Where the ensemble demands none, lower is the first such step.
func (v *version) goldenBound(cfg *modelconfig.ModelConfig) (bound *precision.Bound, lower *version, err error) {
	if !config.IsEnsemble(cfg) {
		bound, err = precision.Demanded(cfg, v.sig.Version)
		return bound, nil, err
	}
	i := slices.IndexFunc(v.uses, func(u *version) bool { return u.precision != "" && u.precision != string(precision.FP32) })
	if i < 0 {
		return nil, nil, nil
	}
	bound, err = precision.BoundOf(cfg)
	if bound == nil {
		lower = v.uses[i]
	}
	return bound, lower, err
}

// explain adds to the difference in an ensemble's response that its step, this version, computes in a lower precision, and what to do.
func (v *version) explain(difference error) error {
	if difference == nil {
		return nil
	}
	return fmt.Errorf("%w: version %d of its model '%s' computes in %s. To compare the ensemble by a bound, give it the parameter '%s', "+
		"for example 'cosine=0.985'", difference, v.sig.Version, v.sig.Model, v.precision, precision.FidelityKey)
}

// checkGolden sends one golden request, and calls judge with its response.
func (r *Repository) checkGolden(ctx context.Context, f *folder, name string, x *dryRun, judge func(*goldenCase, *infer.Response) error) error {
	text, err := readBelow(f.dir, filepath.Join(goldenFolder, name))
	if err != nil {
		return err
	}
	var g goldenCase
	if err := json.Unmarshal(text, &g); err != nil {
		return fmt.Errorf("cannot be parsed: %w", err)
	}
	if len(g.Outputs) == 0 {
		return errors.New("it has no 'outputs' to compare with")
	}
	req, err := r.goldenRequest(f.name, &g)
	if err != nil {
		return err
	}
	resp, err := x.send(ctx, req)
	switch {
	case err != nil:
		return err
	case resp == nil:
		return errors.New("the model gave no answer")
	}
	defer resp.Release()
	return judge(&g, resp)
}

// add adds a response to a comparison: golden requests have the responses of the model in fp32, and a version in another precision is as
// close to them as its configuration demands, and not element by element.
func (g *goldenCase) add(sum *precision.Comparison, resp *infer.Response, batched bool) error {
	var want, got []precision.Tensor
	for i := range g.Outputs {
		w := &g.Outputs[i]
		d, data, err := w.encode()
		if err != nil {
			return fmt.Errorf("output '%s' %w", w.Name, err)
		}
		t := resp.Output(w.Name)
		if t == nil {
			return fmt.Errorf("the answer has no output '%s'", w.Name)
		}
		want = append(want, precision.Tensor{Name: w.Name, DType: d, Shape: w.Shape, Data: data})
		got = append(got, precision.Tensor{Name: w.Name, DType: t.DType, Shape: t.Shape.Dims(), Data: t.Bytes()})
	}
	return sum.Add(want, got, batched)
}

func (r *Repository) goldenRequest(model string, g *goldenCase) (*infer.Request, error) {
	req := infer.NewRequest()
	req.Model = model
	for i := range g.Inputs {
		t, err := g.Inputs[i].tensor(r.s.Alloc)
		if err != nil {
			req.Release()
			return nil, fmt.Errorf("input '%s': %w", g.Inputs[i].Name, err)
		}
		req.Inputs = append(req.Inputs, infer.Named{Name: g.Inputs[i].Name, Tensor: t})
	}
	return req, nil
}

// compare returns the first difference between a response and the expected outputs, or nil.
func (g *goldenCase) compare(resp *infer.Response) error {
	for i := range g.Outputs {
		want := &g.Outputs[i]
		got := resp.Output(want.Name)
		if got == nil {
			return fmt.Errorf("the answer has no output '%s'", want.Name)
		}
		if err := want.compare(got, *cmp.Or(want.Tolerance, g.Tolerance, &defaultTolerance)); err != nil {
			return fmt.Errorf("output '%s' %w", want.Name, err)
		}
	}
	return nil
}

// goldenTensor is a tensor in JSON: nested or flat data, or raw bytes in base64.
type goldenTensor struct {
	Name      string          `json:"name"`
	Datatype  string          `json:"datatype"`
	Shape     []int64         `json:"shape"`
	Data      json.RawMessage `json:"data"`
	Raw       []byte          `json:"raw"`
	Tolerance *tolerance      `json:"tolerance"`
}

func (g *goldenTensor) encode() (tensor.DType, []byte, error) {
	d, shape := tensor.ParseDType(g.Datatype), tensor.Of(g.Shape...)
	n := shape.Elements()
	switch {
	case d == tensor.Invalid:
		return d, nil, fmt.Errorf("has unknown datatype '%s'", g.Datatype)
	case n < 0 || n > maxWarmup:
		return d, nil, fmt.Errorf("has no usable shape %s", shape)
	}
	data := g.Raw
	if data == nil {
		leaves, err := flatten(g.Data)
		if err != nil {
			return d, nil, err
		}
		if int64(len(leaves)) != n {
			return d, nil, fmt.Errorf("has %d elements, expected %d for shape %s", len(leaves), n, shape)
		}
		for _, x := range leaves {
			if data, err = appendElement(data, d, x); err != nil {
				return d, nil, err
			}
		}
	}
	if d == tensor.Bytes {
		return d, data, tensor.CheckBytes(data, n)
	}
	if want := n * int64(d.Size()); int64(len(data)) != want {
		return d, nil, fmt.Errorf("has %d bytes, expected %d for shape %s", len(data), want, shape)
	}
	return d, data, nil
}

// tensor returns the tensor in memory of a.
func (g *goldenTensor) tensor(a tensor.Allocator) (t tensor.Tensor, err error) {
	in := sampleInput{shape: tensor.Of(g.Shape...)}
	if in.dtype, in.data, err = g.encode(); err == nil {
		t, err = in.tensor(a)
	}
	return t, err
}

// flatten returns the leaves of nested JSON arrays.
func flatten(data []byte) ([]any, error) {
	if len(data) == 0 {
		return nil, errors.New("has neither 'data' nor 'raw'")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var leaves []any
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return leaves, nil
		}
		if err != nil {
			return nil, err
		}
		if x, ok := tok.(json.Delim); !ok {
			leaves = append(leaves, tok)
		} else if x == '{' || x == '}' {
			return nil, errors.New("has an object among its data")
		}
	}
}

func appendElement(dst []byte, d tensor.DType, x any) ([]byte, error) {
	wrong := fmt.Errorf("has %v among its data, expected %s", x, d)
	switch x := x.(type) {
	case bool:
		if d != tensor.Bool {
			return nil, wrong
		}
		if x {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case string:
		if d == tensor.Bytes {
			return tensor.AppendBytes(dst, x), nil
		}
		v, err := strconv.ParseFloat(x, 64) // "NaN" and "Infinity", which are not JSON numbers
		if err != nil || d != tensor.FP32 && d != tensor.FP64 {
			return nil, wrong
		}
		return appendFloat(dst, d, v), nil
	case json.Number:
		return appendNumber(dst, d, x, wrong)
	}
	return nil, wrong
}

func appendNumber(dst []byte, d tensor.DType, x json.Number, wrong error) ([]byte, error) {
	var v uint64
	err := wrong
	switch d {
	case tensor.FP32, tensor.FP64:
		f, failed := x.Float64()
		if failed != nil {
			return nil, wrong
		}
		return appendFloat(dst, d, f), nil
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		var n int64
		n, err = strconv.ParseInt(x.String(), 10, 8*d.Size())
		v = uint64(n)
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		v, err = strconv.ParseUint(x.String(), 10, 8*d.Size())
	case tensor.FP16, tensor.BF16:
		return nil, fmt.Errorf("is %s, which is given as 'raw'", d)
	}
	if err != nil {
		return nil, wrong
	}
	return append(dst, binary.LittleEndian.AppendUint64(nil, v)[:d.Size()]...), nil
}

func appendFloat(dst []byte, d tensor.DType, v float64) []byte {
	if d == tensor.FP32 {
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(v)))
	}
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}

// compare returns the first difference between a tensor and the expected one, or nil.
func (g *goldenTensor) compare(got *tensor.Tensor, near tolerance) error {
	d, want, err := g.encode()
	if err != nil {
		return err
	}
	shape := tensor.Of(g.Shape...)
	switch {
	case got.DType != d:
		return fmt.Errorf("is %s, expected %s", got.DType, d)
	case !got.Shape.Equal(shape):
		return fmt.Errorf("has shape %s, expected %s", got.Shape, shape)
	case d == tensor.Bytes:
		return compareTexts(got.Bytes(), want)
	}
	size := d.Size()
	for i := 0; i*size < len(want); i++ {
		a, b := got.Bytes()[i*size:][:size], want[i*size:][:size]
		if bytes.Equal(a, b) || d.IsFloat() && withinTolerance(toFloat(d, a), toFloat(d, b), near) {
			continue
		}
		return fmt.Errorf("has %s at element %d, expected %s", formatElement(d, a), i, formatElement(d, b))
	}
	return nil
}

func compareTexts(got, want []byte) error {
	for i := 0; len(want) > 0; i++ {
		var a, b []byte
		var ok bool
		if b, want, ok = tensor.NextBytes(want); !ok {
			break // it was checked
		}
		if a, got, ok = tensor.NextBytes(got); !ok || !bytes.Equal(a, b) {
			return fmt.Errorf("has %q at element %d, expected %q", a, i, b)
		}
	}
	return nil
}

func withinTolerance(got, want float64, near tolerance) bool {
	switch {
	case math.IsNaN(want):
		return math.IsNaN(got)
	case math.IsInf(want, 0) || math.IsInf(got, 0):
		return got == want
	}
	return math.Abs(got-want) <= near.Absolute+near.Relative*math.Abs(want)
}

func toFloat(d tensor.DType, b []byte) float64 {
	switch d {
	case tensor.FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case tensor.BF16:
		return float64(tensor.BF16ToFloat32(binary.LittleEndian.Uint16(b)))
	case tensor.FP16:
		return float64(tensor.FP16ToFloat32(binary.LittleEndian.Uint16(b)))
	default:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
}

func formatElement(d tensor.DType, b []byte) string {
	if d.IsFloat() {
		bits := 64
		if d != tensor.FP64 {
			bits = 32
		}
		return strconv.FormatFloat(toFloat(d, b), 'g', -1, bits)
	}
	wide := make([]byte, 8)
	copy(wide, b)
	v := binary.LittleEndian.Uint64(wide)
	switch d {
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		unused := 64 - 8*d.Size()
		return strconv.FormatInt(int64(v<<unused)>>unused, 10)
	default:
		return strconv.FormatUint(v, 10)
	}
}
