package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
)

// ExpectedFile is the file in a repository of examples with requests and their expected responses.
const ExpectedFile = "expected.json"

// Example is a request with its expected response.
type Example struct {
	Name    string          `json:"name"`
	Request client.Request  `json:"-"`
	Outputs []client.Tensor `json:"outputs"` // the answer's, all of them
	Atol    float64         `json:"atol"`    // the largest absolute difference of an FP32 element
	// Cosine is the smallest cosine similarity of a row of an FP32 output with its
	// expectation; 0 when it is not asked for.
	Cosine float64 `json:"cosine"`
}

// ReadExamples reads the examples of a repository.
func ReadExamples(dir string) ([]Example, error) {
	path := filepath.Join(dir, ExpectedFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f struct {
		Ensemble string `json:"ensemble"`
		Requests []struct {
			Example
			Ensemble string            `json:"ensemble"`
			Inputs   []json.RawMessage `json:"inputs"`
		} `json:"requests"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("cannot read '%s': %w", path, err)
	}
	list := make([]Example, len(f.Requests))
	for i, r := range f.Requests {
		e := r.Example
		e.Request = client.Request{Model: cmp.Or(r.Ensemble, f.Ensemble), ID: r.Name}
		for _, raw := range r.Inputs {
			in, err := readInput(dir, raw)
			if err != nil {
				return nil, fmt.Errorf("cannot read '%s', request '%s': %w", path, r.Name, err)
			}
			e.Request.Inputs = append(e.Request.Inputs, in)
		}
		list[i] = e
	}
	return list, nil
}

// readInput decodes an input. Its data may be the bytes of a file.
func readInput(dir string, raw []byte) (client.Tensor, error) {
	var t client.Tensor
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, err
	}
	var f struct {
		File string `json:"file"`
	}
	if err := json.Unmarshal(raw, &f); err != nil || f.File == "" {
		return t, err
	}
	data, err := os.ReadFile(filepath.Join(dir, f.File))
	if err != nil {
		return t, err
	}
	return client.Text(t.Name, t.Shape, data), nil
}

// Check compares a response with the expected one.
func (e *Example) Check(resp *client.Response) error {
	if len(resp.Outputs) != len(e.Outputs) {
		return fmt.Errorf("example '%s': the response has %d outputs, expected %d", e.Name, len(resp.Outputs), len(e.Outputs))
	}
	for i := range e.Outputs {
		want := &e.Outputs[i]
		got := resp.Output(want.Name)
		if got == nil {
			return fmt.Errorf("example '%s': the response has no output '%s'", e.Name, want.Name)
		}
		if err := e.checkOutput(got, want); err != nil {
			return fmt.Errorf("example '%s', output '%s': %w", e.Name, want.Name, err)
		}
	}
	return nil
}

func (e *Example) checkOutput(got, want *client.Tensor) error {
	switch {
	case got.DType != want.DType:
		return fmt.Errorf("got %s, expected %s", got.DType, want.DType)
	case !slices.Equal(got.Shape, want.Shape):
		return fmt.Errorf("got shape %v, expected %v", got.Shape, want.Shape)
	case want.DType == tensor.FP32:
		return e.checkFloats(got, want)
	case !slices.Equal(got.Data, want.Data):
		return fmt.Errorf("got %s, expected %s", abbreviate(got), abbreviate(want))
	}
	return nil
}

func (e *Example) checkFloats(got, want *client.Tensor) error {
	g, err := client.Values[float32](got)
	if err != nil {
		return err
	}
	w, err := client.Values[float32](want)
	switch {
	case err != nil:
		return err
	case len(g) != len(w):
		return fmt.Errorf("got %d elements, expected %d", len(g), len(w))
	}
	for i := range w {
		if diff := math.Abs(float64(g[i]) - float64(w[i])); !(diff <= e.Atol) { // NaN must not pass
			return fmt.Errorf("element %d is %v, expected %v within %v", i, g[i], w[i], e.Atol)
		}
	}
	return e.checkCosine(g, w, want.Shape)
}

// checkCosine compares the directions of rows.
func (e *Example) checkCosine(got, want []float32, shape []int64) error {
	if e.Cosine == 0 || len(shape) == 0 || len(want) == 0 {
		return nil
	}
	width := int(shape[len(shape)-1])
	for row := 0; width > 0 && (row+1)*width <= len(want); row++ {
		c := cosine(got[row*width:(row+1)*width], want[row*width:(row+1)*width])
		if !(c >= e.Cosine) { // NaN must not pass
			return fmt.Errorf("row %d has cosine %v to the expected one, expected at least %v", row, c, e.Cosine)
		}
	}
	return nil
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}

const (
	shortElements = 6  // the most elements of a shortened tensor
	shortRunes    = 60 // the most characters of a shortened text
)

// abbreviate returns the type, the shape and the first elements of a tensor.
func abbreviate(t *client.Tensor) string {
	return fmt.Sprintf("%s %s %s", t.DType, brackets(t.Shape, len(t.Shape)), strings.ReplaceAll(shortData(t), "\n", `\n`))
}

func shortData(t *client.Tensor) string {
	switch t.DType {
	case tensor.Bytes:
		list, err := t.Strings()
		if err != nil {
			return err.Error()
		}
		texts := make([]string, len(list))
		for i, s := range list {
			texts[i] = shortText(s)
		}
		return brackets(texts, shortElements)
	case tensor.FP32:
		list, _ := client.Values[float32](t)
		texts := make([]string, len(list))
		for i, x := range list {
			texts[i] = strconv.FormatFloat(float64(x), 'g', 4, 32)
		}
		return brackets(texts, shortElements)
	case tensor.Int32:
		list, _ := client.Values[int32](t)
		return brackets(list, shortElements)
	case tensor.Int64:
		list, _ := client.Values[int64](t)
		return brackets(list, shortElements)
	default:
		return fmt.Sprintf("%d bytes", len(t.Data))
	}
}

// shortText quotes a text, or returns the size of binary data.
func shortText(s string) string {
	if !utf8.ValidString(s) {
		return fmt.Sprintf("(%d bytes)", len(s))
	}
	if r := []rune(s); len(r) > shortRunes {
		s = string(r[:shortRunes]) + "..."
	}
	return strconv.Quote(s)
}

// brackets formats the first elements of a list, at most most.
func brackets[T any](list []T, most int) string {
	var b strings.Builder
	b.WriteString("[")
	for i, x := range list {
		if i > 0 {
			b.WriteString(",")
		}
		if i == most {
			fmt.Fprintf(&b, " ... %d in all", len(list))
			break
		}
		fmt.Fprint(&b, x)
	}
	return b.String() + "]"
}
