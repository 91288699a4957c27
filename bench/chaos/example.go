package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
)

// stored is a request with its right response, from the expected.json of a folder of examples.
type stored struct {
	request client.Request
	outputs []client.Tensor
	atol    float64 // the largest absolute difference of an FP32 element
}

// readStored reads the examples of a folder.
func readStored(dir string) ([]stored, error) {
	text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		return nil, err
	}
	var f struct {
		Ensemble string `json:"ensemble"`
		Requests []struct {
			Ensemble string            `json:"ensemble"`
			Inputs   []json.RawMessage `json:"inputs"`
			Outputs  []client.Tensor   `json:"outputs"`
			Atol     float64           `json:"atol"`
		} `json:"requests"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s/expected.json: %w", dir, err)
	}
	var list []stored
	for _, r := range f.Requests {
		s := stored{request: client.Request{Model: cmp.Or(r.Ensemble, f.Ensemble)}, outputs: r.Outputs, atol: r.Atol}
		for _, raw := range r.Inputs {
			in, err := readInput(dir, raw)
			if err != nil {
				return nil, err
			}
			s.request.Inputs = append(s.request.Inputs, in)
		}
		list = append(list, s)
	}
	return list, nil
}

// readInput decodes an input. Its data may be the bytes of a file.
func readInput(dir string, raw []byte) (client.Tensor, error) {
	var t client.Tensor
	var f struct {
		File string `json:"file"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, err
	}
	if err := json.Unmarshal(raw, &f); err != nil || f.File == "" {
		return t, err
	}
	data, err := os.ReadFile(filepath.Join(dir, f.File))
	return client.Text(t.Name, t.Shape, data), err
}

// check compares a response with the right one.
func (s *stored) check(resp *client.Response) error {
	if len(resp.Outputs) != len(s.outputs) {
		return differs("%s responds with %d outputs, expected %d", s.request.Model, len(resp.Outputs), len(s.outputs))
	}
	for i := range s.outputs {
		want := &s.outputs[i]
		got := resp.Output(want.Name)
		if got == nil || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) || !s.equal(got, want) {
			return differs("%s responds with %+v as output '%s', expected %+v", s.request.Model, got, want.Name, want)
		}
	}
	return nil
}

func (s *stored) equal(got, want *client.Tensor) bool {
	if want.DType != tensor.FP32 {
		return slices.Equal(got.Data, want.Data)
	}
	g, err := client.Values[float32](got)
	w, failed := client.Values[float32](want)
	return err == nil && failed == nil && slices.EqualFunc(g, w, func(a, b float32) bool { return math.Abs(float64(a)-float64(b)) <= s.atol })
}
