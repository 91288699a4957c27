package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/replay"
)

// replayed runs tutti replay -o json and returns its report, and its exit status.
func replayed(t *testing.T, args ...string) (*replay.Report, int) {
	t.Helper()
	var out, log bytes.Buffer
	code := cli.Main(t.Context(), append([]string{"tutti", "replay", "-o", "json"}, args...), &out, &log, components())
	report := &replay.Report{}
	if err := json.Unmarshal(out.Bytes(), report); err != nil {
		t.Fatalf("%v: %s%s", err, &out, &log)
	}
	return report, code
}

// TestReplay captures requests to an ensemble with a model of ONNX Runtime, and replays them on its repository and on one whose first
// step has changed.
func TestReplay(t *testing.T) {
	t.Parallel()
	requireRuntime(t)
	digits := filepath.Join(examplesDir, "digits")
	a := serve(t, "--model-repository="+digits, "--dashboard-token="+captureToken)
	image, err := os.ReadFile(filepath.Join(digits, "three.png"))
	if err != nil {
		t.Fatal(err)
	}
	c := client.NewHTTP("http://"+a.http, nil)
	t.Cleanup(func() { _ = c.Close() })
	dir := t.TempDir()
	captureWhile(t, a, func(int) {
		if _, err := c.Infer(t.Context(), &client.Request{Model: "digits", Inputs: []client.Tensor{client.Text("IMAGE", []int64{1, 1}, string(image))}}); err != nil {
			t.Error(err)
		}
	}, "--count=2", "--out="+dir)
	if r, code := replayed(t, dir, "--against", digits); code != 0 || r.Requests != 2 || r.Equal != 2 || r.Compared != replay.ComparedSteps || r.Results[0].Tensors != 5 {
		t.Errorf("status %d, %+v, %+v", code, r, r.Results[0])
	}
	changed := t.TempDir()
	if err := os.CopyFS(changed, os.DirFS(digits)); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(changed, "digits_decode", "config.pbtxt")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, `parameters { key: "scale" value { string_value: "1/200" } }`...)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r, code := replayed(t, dir, "--against", changed)
	if code != 1 || r.Distinct != 2 || r.Results[0].Step != "digits_decode" || r.Results[0].Differences[0].Tensor != "image" {
		t.Errorf("status %d, %+v, %+v", code, r, r.Results[0])
	}
}

// TestReplayStream replays requests to a decoupled ensemble of decoupled steps, whose responses are compared in their order.
func TestReplayStream(t *testing.T) {
	t.Parallel()
	const stream = "../../examples/stream"
	a := serve(t, "--model-repository="+stream, "--dashboard-token="+captureToken)
	c := dialGRPC(t, a.grpc)
	t.Cleanup(func() { _ = c.Close() })
	dir := t.TempDir()
	captureWhile(t, a, func(int) {
		req := &client.Request{Model: "repeat_square", Inputs: []client.Tensor{
			client.Of("IN", []int64{3}, int32(2), int32(0), int32(3)), client.Of("DELAY", []int64{3}, uint32(0), uint32(0), uint32(0)), client.Of("WAIT", []int64{1}, uint32(0)),
		}}
		if err := c.Stream(t.Context(), req, func(*client.Response) error { return nil }); err != nil {
			t.Error(err)
		}
	}, "--count=3", "--out="+dir)
	if r, code := replayed(t, dir, "--against", stream); code != 0 || r.Equal != 3 || r.Results[0].Tensors < 11 {
		t.Errorf("status %d, %+v, %+v", code, r, r.Results[0])
	}
	if r, code := replayed(t, dir, "--against", "grpc://"+a.grpc); code != 0 || r.Equal != 3 || r.Compared != replay.ComparedResponses {
		t.Errorf("status %d, %+v, %+v", code, r, r.Results[0])
	}
	r, code := replayed(t, dir, "--against", "http://"+a.http)
	if code != 1 || r.Failed != 3 || !strings.Contains(r.Results[0].Error, "expected --against grpc://") {
		t.Errorf("status %d, %+v, %+v", code, r, r.Results[0])
	}
}
