package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

const benchDir = "../../bench"

// TestBenchRepositories checks the responses of the benchmark's ensembles against computed values.
func TestBenchRepositories(t *testing.T) {
	t.Parallel()
	tests := map[string]func(x float32) float32{
		"identities": func(x float32) float32 { return x },
		"identity3":  func(x float32) float32 { return 2*(x+1) - 3 },
		"parallel":   func(x float32) float32 { return 2*x + x*x + (x + 10) },
		"python3":    func(x float32) float32 { return 2*(x+1) - 3 },
	}
	if err := pythonCheck(); err != nil {
		t.Run("python3", func(t *testing.T) { // says so
			t.Parallel()
			preparedtest.Skip(t, "python", err)
		})
		delete(tests, "python3")
	}
	args := []string{"--backend-config", "onnxruntime,library-path=" + requireRuntime(t), "--model-repository=" + benchDir + "/repository/image"}
	for name := range tests {
		args = append(args, "--model-repository="+filepath.Join(benchDir, "repository", name))
	}
	c := client.NewHTTP("http://"+serve(t, args...).http, nil)
	t.Cleanup(func() { _ = c.Close() })
	in, out := make([]float32, 32), make([]float32, 32)
	for name, f := range tests {
		for i := range in {
			in[i] = float32(i) / 4
			out[i] = f(in[i])
		}
		resp, err := c.Infer(t.Context(), &client.Request{Model: name, Inputs: []client.Tensor{client.Of("INPUT0", []int64{2, 16}, in...)}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := gocmp.Diff([]client.Tensor{client.Of("OUTPUT0", []int64{2, 16}, out...)}, resp.Outputs); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	checkImages(t, c)
}

// checkImages checks the five best classes of each image against those of ONNX Runtime after Pillow.
func checkImages(t *testing.T, c client.Client) {
	t.Helper()
	for image, want := range map[string][]int32{
		"0.jpg": {365, 925, 854, 742, 729}, "1.jpg": {925, 742, 729, 667, 365},
		"2.jpg": {854, 925, 641, 742, 729}, "3.jpg": {729, 925, 742, 854, 968},
	} {
		data, err := os.ReadFile(filepath.Join(benchDir, "testdata", "pictures", image))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Infer(t.Context(), &client.Request{
			Model: "image", Inputs: []client.Tensor{client.Text("IMAGE", []int64{1, 1}, string(data))}, Outputs: []string{"INDICES", "PROBABILITIES"},
		})
		if err != nil {
			t.Fatalf("%s: %v", image, err)
		}
		if d := gocmp.Diff(client.Of("INDICES", []int64{1, 5}, want...), *resp.Output("INDICES")); d != "" {
			t.Errorf("%s (-want +got):\n%s", image, d)
		}
		odds, err := client.Values[float32](resp.Output("PROBABILITIES"))
		if err != nil || !slices.IsSortedFunc(odds, func(a, b float32) int { return cmp.Compare(b, a) }) {
			t.Errorf("%s: probabilities %v, %v", image, odds, err)
		}
	}
}

// TestBenchPeerConfigs checks that the configurations that replace native steps in Triton can be parsed.
func TestBenchPeerConfigs(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob(benchDir + "/peers/triton/models/*/*/config.pbtxt")
	if err != nil || len(found) == 0 {
		t.Fatalf("no configurations: %v", err)
	}
	for _, path := range found {
		cfg, err := config.LoadFile(path)
		if err == nil {
			err = errors.Join(config.Normalise(cfg, filepath.Base(filepath.Dir(path))), config.Validate(cfg))
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
