package cli_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/cli"
)

const expected = `{"ensemble": "e", "requests": [
 {"name": "a", "inputs": [{"name": "P", "datatype": "BYTES", "shape": [1], "file": "p.bin"}],
  "outputs": [{"name": "V", "datatype": "FP32", "shape": [2], "data": [0.6, 0.8]}, {"name": "L", "datatype": "BYTES", "shape": [1], "data": ["l"]}],
  "atol": 0.5, "cosine": 0.9},
 {"name": "b", "ensemble": "f", "inputs": [], "outputs": []}]}`

func readExamples(t *testing.T) []cli.Example {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{cli.ExpectedFile: expected, "p.bin": "\xff\x00"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := cli.ReadExamples(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestReadExamples(t *testing.T) {
	t.Parallel()
	list := readExamples(t)
	if len(list) != 2 || list[0].Request.Model != "e" || list[1].Request.Model != "f" {
		t.Fatalf("examples = %+v", list)
	}
	if got := list[0].Request.Inputs[0].Data; string(got) != "\x02\x00\x00\x00\xff\x00" {
		t.Errorf("file input = %q", got)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	e := readExamples(t)[0]
	label, nan := client.Text("L", []int64{1}, "l"), float32(math.NaN())
	tests := []struct {
		name    string
		outputs []client.Tensor
		want    string
	}{
		{"same", []client.Tensor{label, client.Of("V", []int64{2}, float32(0.6), 0.8)}, ""},
		{"close", []client.Tensor{label, client.Of("V", []int64{2}, float32(0.65), 0.75)}, ""},
		{"far", []client.Tensor{label, client.Of("V", []int64{2}, float32(0.6), 1.4)}, "element 1 is 1.4, expected 0.8 within 0.5"},
		{"not a number", []client.Tensor{label, client.Of("V", []int64{2}, nan, 0.8)}, "element 0 is NaN"},
		{"other direction", []client.Tensor{label, client.Of("V", []int64{2}, float32(0.9), 0.35)}, "row 0 has cosine"},
		{"missing", []client.Tensor{label}, "the response has 1 outputs, expected 2"},
		{"other name", []client.Tensor{label, client.Of("W", []int64{2}, float32(0.6), 0.8)}, "the response has no output 'V'"},
		{"other shape", []client.Tensor{label, client.Of("V", []int64{1, 2}, float32(0.6), 0.8)}, "got shape [1 2], expected [2]"},
		{"other type", []client.Tensor{label, client.Of("V", []int64{2}, 0.6, 0.8)}, "got FP64, expected FP32"},
		{"other text", []client.Tensor{client.Text("L", []int64{1}, "m"), client.Of("V", []int64{2}, float32(0.6), 0.8)}, `got BYTES [1] ["m"], expected BYTES [1] ["l"]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := e.Check(&client.Response{Outputs: tt.outputs})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}
