package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/starter"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// probed is the name of the model of which readPorts reads the ports.
const probed = "model"

// readPorts reads the inputs and outputs of a model with its runtime: it loads the model from a repository of its own.
func (p *program) readPorts(ctx context.Context, m *starter.Model, settings options.BackendConfig) (err error) {
	root, err := os.MkdirTemp("", "tutti-init-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := m.Link(filepath.Join(root, probed)); err != nil {
		return err
	}
	r, err := p.look(ctx, repository.Settings{Roots: []string{root}, Only: []string{probed}, GPUFallback: true}, settings)
	if err != nil {
		return err
	}
	cfg, err := r.Config(probed, 0)
	if err != nil {
		err = failureOf(r.Repository, probed, err)
		advice := ". " + m.Undeclared()
		if status.CodeOf(err) == status.Unavailable { // the runtime is missing, and the error says how to fetch it
			advice = ""
		}
		err = fmt.Errorf("the inputs and outputs of '%s' (%s) cannot be read: %w%s", m.Path, m.Format, err, advice)
	}
	if err = errors.Join(err, r.Close(ctx)); err != nil {
		return err
	}
	return takePorts(m, cfg)
}

// takePorts sets the ports of a completed configuration, with the batch dimension.
func takePorts(m *starter.Model, cfg *modelconfig.ModelConfig) error {
	m.Inputs, m.Outputs = nil, nil
	port := func(name string, d modelconfig.DataType, dims []int64) starter.Port {
		if cfg.GetMaxBatchSize() > 0 {
			dims = append([]int64{-1}, dims...)
		}
		return starter.Port{Name: name, DType: tensor.DType(d), Shape: dims}
	}
	for _, in := range cfg.GetInput() {
		m.Inputs = append(m.Inputs, port(in.GetName(), in.GetDataType(), in.GetDims()))
	}
	for _, out := range cfg.GetOutput() {
		m.Outputs = append(m.Outputs, port(out.GetName(), out.GetDataType(), out.GetDims()))
	}
	if len(m.Inputs) == 0 || len(m.Outputs) == 0 {
		return fmt.Errorf("'%s' (%s) declares no inputs and outputs. %s", m.Path, m.Format, m.Undeclared())
	}
	return nil
}

// unloadable is the error of a written repository that does not load.
type unloadable struct{ model, reason string }

func (e *unloadable) Error() string {
	return fmt.Sprintf("the repository does not load, so nothing was written: model '%s': %s", e.model, e.reason)
}

// fetchCommand is the command in the error of a model whose runtime is missing.
var fetchCommand = regexp.MustCompile(`tutti runtime fetch [a-z0-9-]+`)

// sampled is the result of the sample request.
type sampled struct {
	resp    *client.Response
	missing string // the reason that there is no golden request
	fetch   string // the command that fetches the model's runtime, if that is the reason
	golden  bool   // the golden request was written
}

// record serves a repository, sends its sample request and returns the response. A missing runtime is no error.
func (p *program) record(ctx context.Context, dir string, r *starter.Repository, settings options.BackendConfig) (out *sampled, err error) {
	args := append([]string{
		"--model-repository=" + dir, "--exit-on-error=false", "--http-address=" + loopback, "--http-port=0", "--allow-grpc=false", "--allow-metrics=false",
		"--dashboard=false", "--gpu-fallback=cpu", "--exit-connection-secs=0",
	}, settings.Args()...)
	s, err := tutti.Open(ctx, tutti.Settings{Components: p.components, Args: args})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var broken error
	for _, m := range s.Models() {
		switch {
		case m.Err == nil:
		case m.Name == r.ModelName(probed) && status.CodeOf(m.Err) == status.Unavailable:
			return &sampled{
				missing: m.Err.Error() + ", and write the repository again into an empty folder", fetch: fetchCommand.FindString(m.Err.Error()),
			}, nil
		case m.Name != r.Name || broken == nil: // the ensemble fails when one of its models does
			text := strings.ReplaceAll(m.Err.Error(), filepath.Join(dir, r.ModelName(probed), "1", r.Model.File), r.Model.Path)
			broken = &unloadable{m.Name, text}
		}
	}
	if broken != nil {
		return nil, broken
	}
	if err := s.Start(); err != nil { //nolint:contextcheck // Close ends what Start starts, in its order
		return nil, err
	}
	c := client.NewHTTP("http://"+s.HTTPAddress(), nil)
	defer func() { err = errors.Join(err, c.Close()) }()
	return send(ctx, c, r)
}

// send sends the sample request.
func send(ctx context.Context, c client.Client, r *starter.Repository) (*sampled, error) {
	req := &client.Request{Model: r.Name}
	for _, in := range r.Sample {
		if in.Shape == nil {
			return &sampled{missing: "a sample of input '" + in.Name + "' would be too large"}, nil
		}
		req.Inputs = append(req.Inputs, client.Tensor{Name: in.Name, DType: in.DType, Shape: in.Shape, Data: in.Data})
	}
	resp, err := c.Infer(ctx, req)
	switch {
	case err == nil:
		return &sampled{resp: resp}, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case r.Kind == starter.Custom: // nothing is known of the values that it accepts
		return &sampled{missing: fmt.Sprintf("the model refuses the sample request (%v): write one with values that it accepts", err)}, nil
	}
	advice := ""
	if r.Tokenized {
		advice = "; is the tokenizer that of this model? --tokenizer FILE names another"
	}
	return nil, fmt.Errorf("the model fails at the sample request, so nothing was written: %w%s; --kind %s takes the model without steps", err, advice, starter.Custom)
}

// mostGolden is the most bytes of the tensors of a golden request: it is read at each load.
const mostGolden = 4 << 20

// write writes the golden request into the folder of the ensemble.
func (s *sampled) write(dir string, r *starter.Repository) error {
	if s.resp == nil {
		return nil
	}
	size := 0
	for _, in := range r.Sample {
		size += len(in.Data)
	}
	g := golden{Tolerance: &tolerances{Absolute: 1e-3, Relative: 1e-2}}
	for i := range s.resp.Outputs {
		size += len(s.resp.Outputs[i].Data)
	}
	if size > mostGolden {
		s.missing = fmt.Sprintf("its tensors have %d bytes, more than %d", size, mostGolden)
		return nil
	}
	for _, in := range r.Sample {
		g.Inputs = append(g.Inputs, goldenOf(&client.Tensor{Name: in.Name, DType: in.DType, Shape: in.Shape, Data: in.Data}))
	}
	for i := range s.resp.Outputs {
		if out := &s.resp.Outputs[i]; s.stable(out) {
			g.Outputs = append(g.Outputs, goldenOf(out))
		}
	}
	data, err := g.text()
	if err != nil {
		return err
	}
	s.golden = true
	to := filepath.Join(dir, r.Name, "golden", "sample.json")
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // a repository is for everybody
		return err
	}
	return os.WriteFile(to, data, 0o644) //nolint:gosec // a repository is for everybody
}

// leastGap is the least difference of two scores whose order is the same on every processor.
const leastGap = 1e-3

// stable reports whether an output is the same on other processors, within the tolerance. The order of classes with nearly the same
// score is not.
func (s *sampled) stable(out *client.Tensor) bool {
	scores := s.resp.Output("probabilities")
	if scores == nil {
		scores = s.resp.Output("scores")
	}
	if scores == nil || out.Name == scores.Name || slices.Contains([]string{"embedding", "count"}, out.Name) {
		return true
	}
	values, err := client.Values[float32](scores)
	if err != nil {
		return true
	}
	width := int(scores.Shape[len(scores.Shape)-1])
	for i := 1; i < len(values); i++ {
		if i%width != 0 && values[i] > 0 && math.Abs(float64(values[i-1]-values[i])) < leastGap {
			return false
		}
	}
	return true
}

// golden is a golden request: docs/repository.md describes its form.
type golden struct {
	Inputs    []goldenPart `json:"inputs"`
	Outputs   []goldenPart `json:"outputs"`
	Tolerance *tolerances  `json:"tolerance"`
}

// tolerances are the permitted differences of numbers with a fraction.
type tolerances struct {
	Absolute float64 `json:"absolute"`
	Relative float64 `json:"relative"`
}

// goldenPart is a tensor with elements in JSON, or with its bytes.
type goldenPart struct {
	Name     string          `json:"name"`
	Datatype string          `json:"datatype"`
	Shape    []int64         `json:"shape"`
	Data     json.RawMessage `json:"data,omitempty"`
	Raw      []byte          `json:"raw,omitempty"`
	// Tolerance replaces that of the request.
	Tolerance *tolerances `json:"tolerance,omitempty"`
}

func goldenOf(t *client.Tensor) goldenPart {
	g := goldenPart{Name: t.Name, Datatype: t.DType.String(), Shape: t.Shape}
	var parts struct{ Data json.RawMessage }
	text, err := t.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &parts)
	}
	if g.Data = parts.Data; err != nil || len(g.Data) == 0 || t.DType != tensor.Bytes && len(t.Data) > 1<<14 { // NaN and FP16 have no form in JSON
		g.Data, g.Raw = nil, t.Data
	}
	return g
}

// text returns the file with one tensor per line.
func (g *golden) text() ([]byte, error) {
	var t strings.Builder
	list := func(name string, parts []goldenPart) error {
		fmt.Fprintf(&t, "  \"%s\": [\n", name)
		for i, part := range parts {
			line, err := json.Marshal(part)
			if err != nil {
				return err
			}
			end := ","
			if i == len(parts)-1 {
				end = ""
			}
			fmt.Fprintf(&t, "    %s%s\n", line, end)
		}
		t.WriteString("  ],\n")
		return nil
	}
	t.WriteString("{\n")
	if err := errors.Join(list("inputs", g.Inputs), list("outputs", g.Outputs)); err != nil {
		return nil, err
	}
	fmt.Fprintf(&t, "  \"tolerance\": { \"absolute\": %v, \"relative\": %v }\n}\n", g.Tolerance.Absolute, g.Tolerance.Relative)
	return []byte(t.String()), nil
}
