// Package steptest is the contract suite of native steps. The test of a step calls Run with its
// factory and a few cases; Run adds the checks that every step must pass.
package steptest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// Case is a step with parameters, and requests with the responses that it must give.
type Case struct {
	Name   string
	Params map[string]string
	// Files are written to the version folder before the step is made.
	Files    map[string][]byte
	MaxBatch int
	// Inputs and Outputs are those that config.pbtxt declares, if any.
	Inputs, Outputs []config.Port
	Requests        []Request
	// Tolerance is the largest difference of FP32 elements from the expected ones.
	Tolerance float32
	// WantNewErr is a part of the error that making the step must return. Requests are then not sent.
	WantNewErr string
}

// Request is one request, with inputs and outputs in the signature's order.
type Request struct {
	Inputs []Value
	// Want are the expected outputs; nil compares none of them.
	Want []Value
	// WantErr is a part of the error that the request must fail with.
	WantErr string
}

// Run checks the declaration of the factory, and for each case:
//
//   - Each request alone, and all together in one batch, give the expected outputs.
//   - A bad request fails alone.
//   - Every buffer is released.
//   - The step works on several goroutines.
//   - A cancelled context and an allocator without memory lead to an error at most.
//   - Random data and empty tensors do not make it panic.
func Run(t *testing.T, f steps.Factory, cases ...Case) {
	t.Helper()
	t.Run("declaration", func(t *testing.T) { declaration(t, &f) })
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { runCase(t, &f, &c) })
	}
}

func runCase(t *testing.T, f *steps.Factory, c *Case) {
	t.Helper()
	s, err := settings(t, f, c)
	var sig *config.Signature
	if err == nil {
		sig, err = f.Signature(s)
	}
	var step steps.Step
	if err == nil {
		step, err = f.New(s)
	}
	if c.WantNewErr != "" {
		if err == nil || !strings.Contains(err.Error(), c.WantNewErr) {
			t.Fatalf("making the step gave error %v, expected it to contain %q", err, c.WantNewErr)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{c: c, sig: sig, step: step}
	t.Run("alone", r.alone)
	t.Run("together", r.together)
	t.Run("concurrent", r.concurrent)
	t.Run("cancelled", r.cancelled)
	t.Run("no memory", r.noMemory)
	t.Run("random data", r.randomData)
	t.Run("empty", r.empty)
}

// settings writes the files of the case and resolves its parameters.
func settings(t *testing.T, f *steps.Factory, c *Case) (*steps.Settings, error) {
	t.Helper()
	dir := t.TempDir()
	version := filepath.Join(dir, "1")
	if err := os.Mkdir(version, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range c.Files {
		if err := os.WriteFile(filepath.Join(version, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	params, err := f.Resolve(c.Params)
	if err != nil {
		return nil, err
	}
	return &steps.Settings{Model: "tested", ModelDir: dir, Dir: version, MaxBatch: c.MaxBatch, Params: params, Inputs: c.Inputs, Outputs: c.Outputs}, nil
}

var lowerSnake = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// declaration checks the parts of a factory that the reference page and config.pbtxt need.
func declaration(t *testing.T, f *steps.Factory) {
	t.Helper()
	if !lowerSnake.MatchString(f.Name) || f.Doc == "" || f.Signature == nil || f.New == nil {
		t.Errorf("factory %q needs a lower_snake_case name, a doc text, a signature and a constructor", f.Name)
	}
	given := map[string]string{"no_such_parameter": "1"}
	for _, p := range f.Params {
		if !lowerSnake.MatchString(p.Key) || p.Doc == "" {
			t.Errorf("parameter %q needs a lower_snake_case key and a doc text", p.Key)
		}
		if p.Required {
			given[p.Key] = "x"
			if len(p.Values) > 0 {
				given[p.Key] = p.Values[0]
			}
		}
	}
	if _, err := f.Resolve(given); err == nil || !strings.Contains(err.Error(), "no_such_parameter") {
		t.Errorf("an unknown parameter gave error %v, expected one that names it", err)
	}
}

// checkOutputs compares the outputs with the signature. Outputs of one request alone may have
// another number of rows where they are Free.
func checkOutputs(t *testing.T, r *runner, out []tensor.Tensor, rows int, alone bool) {
	t.Helper()
	for i := range out {
		p := &r.sig.Outputs[i]
		if !out[i].Present() {
			t.Errorf("output '%s' is missing", p.Name)
			continue
		}
		want := p.FullDims(r.c.MaxBatch)
		if out[i].DType != p.DType || !out[i].Shape.Matches(want) {
			t.Errorf("output '%s' is %s %s, declared %s %s", p.Name, out[i].DType, out[i].Shape, p.DType, want)
		}
		free := alone && p.Unchecked
		if r.c.MaxBatch > 0 && !free && out[i].Shape.Rank() > 0 && out[i].Shape.Dim(0) != int64(rows) {
			t.Errorf("output '%s' has %d rows, expected %d", p.Name, out[i].Shape.Dim(0), rows)
		}
	}
}
