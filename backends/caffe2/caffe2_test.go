//go:build cgo

package caffe2_test

import (
	"encoding/binary"
	"log/slog"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/caffe2"
	"github.com/tutti-server/tutti/backends/onnx"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func factory() backends.Factory { return caffe2.NewFactory(onnx.NewFactory()) }

// options returns the options with the path of ONNX Runtime, or skips the test.
func options(tb testing.TB) backends.Options {
	tb.Helper()
	return backends.Options{
		Log:    slog.New(slog.DiscardHandler),
		Others: map[string]map[string]string{"onnxruntime": {"library-path": preparedtest.Runtime(tb, "onnxruntime")}},
	}
}

// settings returns the settings of a model whose nets are in dir.
func settings(tb testing.TB, dir, pbtxt string) backends.Settings {
	tb.Helper()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(pbtxt), cfg); err != nil {
		tb.Fatal(err)
	}
	cfg.Name = "m"
	return backends.Settings{
		Model: "m", Version: 3, Dir: dir, ModelDir: tb.TempDir(), Config: cfg, Instances: 1, Alloc: tensor.NewPool(), Log: slog.New(slog.DiscardHandler),
	}
}

// load loads a model, which the test closes.
func load(tb testing.TB, s backends.Settings) (backends.Model, error) {
	tb.Helper()
	b, err := factory().New(options(tb))
	if err != nil {
		tb.Fatal(err)
	}
	m, err := b.Load(tb.Context(), s)
	tb.Cleanup(func() {
		if m != nil {
			_ = m.Close()
		}
		_ = b.Close()
	})
	return m, err
}

func floats(v backendtest.Value) []float64 {
	var out []float64
	for b := v.Data; len(b) >= 4; b = b[4:] {
		out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	}
	return out
}
