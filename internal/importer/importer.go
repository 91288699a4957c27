// Package importer writes model repositories from the pipelines of other servers: the configuration of OpenVINO Model Server,
// InferenceGraph of KServe, and Pipeline of Seldon Core 2. Each pipeline becomes an ensemble, each model a folder with a config.pbtxt.
//
// What a file says and the repository cannot is in the report, with its place and the reason. A file that is not valid, or whose
// meaning depends on what is not known, is an error: nothing is guessed silently.
//
//   - reader.go: JSON and YAML, with places, limits and unknown fields
//   - graph.go, render.go: ensembles and models, and their text
//   - metadata.go: the tensors of models
//   - ovms.go, kserve.go, switch.go, seldon.go: the formats
package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tutti-server/tutti/core/infer"
)

// Settings are what a repository is made from.
type Settings struct {
	// File is the file of the other server.
	File string
	// Metadata returns the KServe v2 metadata of a model, and nil if they are not known. Optional.
	Metadata func(ctx context.Context, model string) (*infer.Metadata, error)
	// Endpoint, unless empty, is the HOST:PORT of a server that keeps the models: they become remote models. Without it, models of OpenVINO
	// Model Server are copied, and services of KServe have endpoints of their own.
	Endpoint string

	_ struct{}
}

// Note is something that did not carry over as it was.
type Note struct {
	Line   int    `json:"line"`   // of the file
	Place  string `json:"place"`  // for example, "nodes.root.steps[1].condition"
	What   string `json:"what"`   // what the file says
	Reason string `json:"reason"` // why it did not carry over, and what there is instead
}

// Result is a repository that is not written yet, and the report about it.
type Result struct {
	Format    string   `json:"format"`
	Ensembles []string `json:"ensembles"`
	Models    []string `json:"models"`
	Notes     []Note   `json:"notes"` // never nil

	folders []*folder
}

// folder is a model's folder.
type folder struct {
	name, text string
	from       string // folder whose versions are copied; empty for none
}

// errors of a whole file.
var errEmpty = errors.New("the file is empty")

// maxFile bounds the size of a file: the largest published ones have some hundred KB.
const maxFile = 16 << 20

// Import reads a file.
func Import(ctx context.Context, s Settings) (*Result, error) {
	data, err := readFile(s.File)
	if err != nil {
		return nil, err
	}
	r := &reader{file: s.File}
	docs, err := r.documents(data)
	if err != nil {
		return nil, err
	}
	b := &builder{Settings: s, reader: r, ctx: ctx, result: &Result{Notes: []Note{}, Ensembles: []string{}, Models: []string{}}}
	for _, d := range docs {
		b.document(d)
	}
	if err := errors.Join(append(r.errs, b.missing()...)...); err != nil {
		return nil, err
	}
	if b.result.Format == "" {
		return nil, fmt.Errorf("'%s' has no pipeline, expected the keys model_config_list and pipeline_config_list (OpenVINO Model Server), kind: InferenceGraph (KServe) or kind: Pipeline (Seldon Core 2)", s.File)
	}
	b.finish()
	return b.result, nil
}

// readFile reads a file of limited size.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("'%s' is a folder, expected the file with the pipelines", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("'%s' has %d bytes, expected at most %d: it is no configuration of pipelines", path, info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = fmt.Errorf("'%s': %w", path, errEmpty)
	}
	return data, err
}

// Write writes the repository into an empty folder.
func (r *Result) Write(dir string) error {
	for _, f := range r.folders {
		if err := os.MkdirAll(filepath.Join(dir, f.name), 0o755); err != nil { //nolint:gosec // a repository is for everybody
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.name, "config.pbtxt"), []byte(f.text), 0o644); err != nil { //nolint:gosec // a repository is for everybody
			return err
		}
		if f.from != "" {
			if err := os.CopyFS(filepath.Join(dir, f.name), versionsOnly(f.from)); err != nil {
				return err
			}
		}
	}
	return nil
}
