package fil_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// TestExample compares the model of the example that no ensemble uses with LightGBM's own predictions. The tests of the program query
// the others.
func TestExample(t *testing.T) {
	t.Parallel()
	const dir = "../../examples/backends/fil/diabetes_lightgbm"
	text, err := os.ReadFile(filepath.Join(dir, "config.pbtxt"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := &modelconfig.ModelConfig{Name: "diabetes_lightgbm"}
	if err := prototext.Unmarshal(text, cfg); err != nil {
		t.Fatal(err)
	}
	if err := config.Normalise(cfg, cfg.GetName()); err != nil {
		t.Fatal(err)
	}
	var stored struct {
		Inputs, Outputs []struct {
			Shape []int64
			Data  []float64
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "predictions.json"))
	if err == nil {
		err = json.Unmarshal(data, &stored)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := load(t, backends.Settings{Model: cfg.GetName(), Version: 1, Dir: filepath.Join(dir, "1"), ModelDir: dir, Config: cfg, Alloc: tensor.NewPool()})
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, len(stored.Inputs[0].Data))
	for i, v := range stored.Inputs[0].Data {
		x[i] = float32(v)
	}
	got, err := predict(t, m, backendtest.Of(tensor.FP32, stored.Inputs[0].Shape, x...))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range stored.Outputs[0].Data {
		if !near(got[i][0], want) {
			t.Errorf("row %d is %v, want %v", i, got[i][0], want)
		}
	}
}
