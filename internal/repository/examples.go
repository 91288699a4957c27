package repository

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

// The bounds of a model's examples: their number, and the bytes of the tensors of one.
const (
	maxExamples     = 20
	maxExampleBytes = 1 << 20
)

// Examples returns the golden requests of a model as examples of its inputs, by file name. Files that are too large, or are none, are left out.
func (r *Repository) Examples(name string) ([]inspect.ExampleView, error) {
	m := r.catalog.Load().called[name]
	if m == nil {
		return nil, status.Errorf(status.NotFound, "Request for unknown model: '%s' is not found", name)
	}
	list := []inspect.ExampleView{}
	entries, err := os.ReadDir(filepath.Join(m.folder.dir, goldenFolder))
	if err != nil {
		return list, nil //nolint:nilerr // it has none
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || ignoredFile(e.Name()) {
			continue
		}
		if x, ok := readExample(m.folder.dir, e.Name()); ok {
			list = append(list, x)
		}
		if len(list) == maxExamples {
			break
		}
	}
	return list, nil
}

// readExample reads the inputs of a golden request.
func readExample(dir, file string) (inspect.ExampleView, bool) {
	x, size := inspect.ExampleView{Name: strings.TrimSuffix(file, ".json"), Inputs: []inspect.ExampleTensor{}}, 0
	text, err := readBelow(dir, filepath.Join(goldenFolder, file))
	var g goldenCase
	if err != nil || json.Unmarshal(text, &g) != nil {
		return x, false
	}
	for i := range g.Inputs {
		in := &g.Inputs[i]
		_, data, err := in.encode()
		if size += len(data); err != nil || size > maxExampleBytes {
			return x, false
		}
		x.Inputs = append(x.Inputs, inspect.ExampleTensor{Name: in.Name, Type: in.Datatype, Shape: in.Shape, Raw: data})
	}
	return x, true
}
