package repository

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// goldenFolder is a model's folder with golden requests: requests with the responses that the model must give
// before it serves.
const goldenFolder = "golden"

// goldenCase is one file of the golden folder: a request in the v2 protocol's JSON, and expected outputs. Outputs
// that the case does not list are not compared.
type goldenCase struct {
	Inputs  []goldenTensor `json:"inputs"`
	Outputs []goldenTensor `json:"outputs"`
	// Tolerance applies to outputs without a tolerance.
	Tolerance *tolerance `json:"tolerance"`
}

// tolerance is the permitted difference of floating-point elements: |got-want| <= Absolute + Relative*|want|.
type tolerance struct {
	Absolute float64 `json:"absolute"`
	Relative float64 `json:"relative"`
}

// defaultTolerance covers the differences between kernels of different processors.
var defaultTolerance = tolerance{Absolute: 1e-5, Relative: 1e-4} //nolint:gochecknoglobals // a constant

// sender sends one request and returns its response.
type sender interface {
	send(ctx context.Context, req *infer.Request) (*infer.Response, error)
}

// checkGoldens sends the golden requests of a version. The error names the first file with an unexpected response.
func (r *Repository) checkGoldens(ctx context.Context, f *folder, sig *config.Signature, x sender) error {
	dir := filepath.Join(f.dir, goldenFolder)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return status.Errorf(status.InvalidArg, "golden requests of model '%s' cannot be read: %w", f.name, err)
	}
	asked := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || ignoredFile(e.Name()) {
			continue
		}
		if err := r.checkGolden(ctx, f, e.Name(), x); err != nil {
			return status.Errorf(status.InvalidArg, "golden request '%s' of model '%s': %w", e.Name(), f.name, err)
		}
		asked++
	}
	if asked > 0 {
		r.s.Log.InfoContext(ctx, "golden requests answered", slog.String("model", f.name), slog.Int64("version", sig.Version), slog.Int("requests", asked))
	}
	return nil
}

func (r *Repository) checkGolden(ctx context.Context, f *folder, name string, x sender) error {
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
	return g.compare(resp)
}

// goldenRequest makes the request of a case.
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
		near := defaultTolerance
		switch {
		case want.Tolerance != nil:
			near = *want.Tolerance
		case g.Tolerance != nil:
			near = *g.Tolerance
		}
		if err := want.compare(got, near); err != nil {
			return fmt.Errorf("output '%s' %w", want.Name, err)
		}
	}
	return nil
}
