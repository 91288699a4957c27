package main

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/inference"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/steps"
)

// panicked is part of the log line of a recovered panic. The process survives it, but it is a defect.
const panicked = " panicked"

// fuzzSeeds is the number of random configurations without -fuzz.
const fuzzSeeds = 40

// FuzzConfig checks that no configuration causes a panic or disturbs another model. Any field of the schema may
// have any value of its type. Each configuration goes to validate, to a server that starts, to a repository in poll
// mode, and to a running server as the override of a load request. A configuration may be refused.
func FuzzConfig(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same seeds in every run
	for range fuzzSeeds {
		choices := make([]byte, 64)
		for i := range choices {
			choices[i] = byte(random.Uint32())
		}
		f.Add(choices)
	}
	z := newConfigFuzz(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		cfg := anyConfig(choices)
		text, err := prototext.MarshalOptions{Multiline: true}.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		z.write(t, root, "part", []byte(partConfig))
		r := z.polled(t, root)
		z.write(t, root, "m", text)
		z.poll(t, r)
		z.validate(t, root)
		z.serve(t, root)
		z.load(t, cfg)
		if t.Failed() {
			t.Logf("the configuration is:\n%s", text)
		}
	})
}

// partConfig is the model that is served beside the random one.
const partConfig = `backend: "identity" input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }`

// configFuzz holds the state that all inputs of FuzzConfig share.
type configFuzz struct {
	model  []byte // a model.onnx
	client inference.GRPCInferenceServiceClient
	log    *watch // of the server that client calls
}

// newConfigFuzz starts the server that receives the load requests.
func newConfigFuzz(f *testing.F) *configFuzz {
	f.Helper()
	model, err := os.ReadFile(filepath.Join(examplesDir, "digits", "digits_cnn", "1", "model.onnx"))
	if err != nil {
		f.Fatal(err)
	}
	z := &configFuzz{model: model}
	root := f.TempDir()
	z.write(f, root, "part", []byte(partConfig))
	z.write(f, root, "m", nil)
	a, log := serveLogged(f, components(), "--model-repository", root, "--model-control-mode=explicit", "--load-model=part")
	z.client, z.log = dialStub(f, a.grpc), log
	return z
}

// write writes a model's folder.
func (z *configFuzz) write(tb testing.TB, root, name string, text []byte) {
	tb.Helper()
	version := filepath.Join(root, name, "1")
	if err := os.MkdirAll(version, 0o750); err != nil {
		tb.Fatal(err)
	}
	for path, data := range map[string][]byte{filepath.Join(root, name, "config.pbtxt"): text, filepath.Join(version, "model.onnx"): z.model} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// polled opens a repository in poll mode.
func (*configFuzz) polled(t *testing.T, root string) *polledRepository {
	t.Helper()
	c := components()
	known, err := steps.NewRegistry(c.Steps...)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := backends.NewRegistry(c.Backends(known)...)
	if err != nil {
		t.Fatal(err)
	}
	p := &polledRepository{}
	p.Repository, err = repository.Open(t.Context(), repository.Settings{
		Roots: []string{root}, Mode: repository.Polled, PollInterval: never, LoadThreads: 1,
		Backends: registry, Alloc: tensor.NewPool(), Metrics: telemetry.NewMetrics(), Log: slog.New(slog.NewTextHandler(&p.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// polledRepository is a repository with its log.
type polledRepository struct {
	*repository.Repository

	log bytes.Buffer
}

// poll polls the repository until it has handled the new folder, and closes it.
func (*configFuzz) poll(t *testing.T, r *polledRepository) {
	t.Helper()
	for range 2 {
		if err := r.Poll(t.Context()); err != nil && strings.Contains(err.Error(), "panic") {
			t.Errorf("polling failed: %v", err)
		}
	}
	if err := r.ModelReady("part", -1); err != nil {
		t.Errorf("the model that served is gone after polling: %v", err)
	}
	if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("closing what was polled failed: %v", err)
	}
	survived(t, "poll", r.log.String())
}

// validate loads the repository as tutti validate does.
func (*configFuzz) validate(t *testing.T, root string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Main(t.Context(), []string{"tutti", "validate", root}, &out, &errs, components()); code > 1 {
		t.Errorf("validate ended with %d:\n%s", code, &errs)
	}
	if strings.Contains(out.String(), "failed: panic: ") {
		t.Errorf("validate met a panic:\n%s", &out)
	}
}

// serve starts and stops a server with the repository.
func (*configFuzz) serve(t *testing.T, root string) {
	t.Helper()
	a, log := serveLogged(t, components(), "--model-repository", root, "--exit-on-error=false")
	if why := reason(t, a, "part"); why != "" {
		t.Errorf("the model beside it is not served: %s", why)
	}
	survived(t, "serve", log.String())
}

// load sends the configuration with a load request, reads the model's metadata, configuration and statistics, and
// unloads it.
func (z *configFuzz) load(t *testing.T, cfg *modelconfig.ModelConfig) {
	t.Helper()
	override, err := protojson.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, _ = z.client.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: "m", Parameters: map[string]*inference.ModelRepositoryParameter{
		"config": {ParameterChoice: &inference.ModelRepositoryParameter_StringParam{StringParam: string(override)}},
	}}) // which may be refused
	_, _ = z.client.ModelConfig(ctx, &inference.ModelConfigRequest{Name: "m"})
	_, _ = z.client.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "m"})
	_, _ = z.client.ModelStatistics(ctx, &inference.ModelStatisticsRequest{Name: "m"})
	_, _ = z.client.RepositoryModelUnload(ctx, &inference.RepositoryModelUnloadRequest{ModelName: "m"})
	ready, err := z.client.ModelReady(ctx, &inference.ModelReadyRequest{Name: "part"})
	if err != nil || !ready.GetReady() {
		t.Errorf("the model that served is gone after a load request: %v", err)
	}
	survived(t, "load", z.log.take())
}

// survived fails the test if a log reports a panic.
func survived(t *testing.T, what, log string) {
	t.Helper()
	if strings.Contains(log, panicked) {
		t.Errorf("%s met a panic:\n%s", what, log)
	}
}

// take returns the log so far and clears it.
func (w *watch) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.text.Reset()
	return w.text.String()
}
