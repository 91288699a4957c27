package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/benchmark"
)

// mostSamples bounds the samples: more make the measurement no better.
const mostSamples = 512

// NoSamplesError is the error of a model without sample requests.
type NoSamplesError struct{ Ensemble, Golden, Expected string }

func (e *NoSamplesError) Error() string {
	return fmt.Sprintf("there are no sample requests to '%s': neither golden requests in '%s' nor requests in '%s'; name files with requests by --data",
		e.Ensemble, e.Golden, e.Expected)
}

// Samples reads the inputs of sample requests to a model of the folder root: those of the files paths, else the golden requests of the
// model, else the requests to it in expected.json of the folder.
func Samples(ctx context.Context, root, model string, paths []string, d *infer.Description) (list [][]client.Tensor, err error) {
	none := &NoSamplesError{model, filepath.Join(root, model, "golden"), filepath.Join(root, "expected.json")}
	if len(paths) == 0 {
		if found, _ := filepath.Glob(filepath.Join(none.Golden, "*.json")); len(found) == 0 {
			list, err = readExpected(none.Expected, model)
			if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
				return nil, none
			}
			return list, err
		}
		paths = []string{none.Golden}
	}
	var others []string
	for _, path := range paths {
		found, err := readExpected(path, model)
		if err != nil || len(found) == 0 { // files of another kind
			others = append(others, path)
		}
		list = append(list, found...)
	}
	if len(others) == 0 {
		return list[:min(len(list), mostSamples)], nil
	}
	requests, err := (&benchmark.Files{Paths: others}).Requests(ctx, d)
	if err != nil {
		return nil, err
	}
	for i := range requests[:min(len(requests), mostSamples)] {
		var sample []client.Tensor
		for _, in := range requests[i].Inputs {
			sample = append(sample, client.Tensor{Name: in.Name, DType: tensor.ParseDType(in.Datatype), Shape: in.Shape, Data: in.Data})
		}
		list = append(list, sample)
	}
	return list[:min(len(list), mostSamples)], nil
}

// requestFile is a request, or a list of requests, of expected.json.
type requestFile struct {
	Ensemble string            `json:"ensemble"`
	Inputs   []json.RawMessage `json:"inputs"`
	Requests []requestFile     `json:"requests"`
}

// readExpected reads the requests to an ensemble in a file as examples have it: none in a file of another extension.
func readExpected(path, ensemble string) (list [][]client.Tensor, err error) {
	if filepath.Ext(path) != ".json" { // it may be as large as a dataset
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f requestFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("'%s' has no requests: %w", path, err)
	}
	for i := range f.Requests {
		r := &f.Requests[i]
		if to := r.Ensemble; to != ensemble && (to != "" || f.Ensemble != ensemble) {
			continue
		}
		var sample []client.Tensor
		for _, raw := range r.Inputs {
			t, err := readTensor(filepath.Dir(path), raw)
			if err != nil {
				return nil, fmt.Errorf("request %d of '%s': %w", i+1, path, err)
			}
			sample = append(sample, t)
		}
		list = append(list, sample)
	}
	return list, nil
}

// readTensor decodes an input. Its data may be the bytes of a file beside the requests.
func readTensor(dir string, raw []byte) (t client.Tensor, err error) {
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
