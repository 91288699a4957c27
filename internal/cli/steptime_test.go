package cli //nolint:testpackage // the table of times is not exported

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
)

// counted is a server with predefined readings of its statistics.
type counted struct {
	client.Client
	readings [][]infer.Statistics
}

func (*counted) Infer(context.Context, *client.Request) (*client.Response, error) {
	return &client.Response{}, nil
}

// Statistics returns the next reading, and repeats the last one.
func (c *counted) Statistics(context.Context, string) ([]infer.Statistics, error) {
	now := c.readings[0]
	if len(c.readings) > 1 {
		c.readings = c.readings[1:]
	}
	return now, nil
}

func model(name string, requests, us uint64) infer.Statistics {
	d := infer.Duration{Count: requests, Ns: us * 1000}
	return infer.Statistics{Name: name, Version: "1", Inference: infer.InferenceStats{Success: d, Queue: d, ComputeInfer: d}}
}

func TestTimePerStep(t *testing.T) {
	t.Parallel()
	heading := []string{"step", "requests", "queue", "compute", "total"}
	before := []infer.Statistics{model("a", 5, 100), model("b", 0, 0), model("sum", 5, 100)}
	tests := []struct {
		name     string
		readings [][]infer.Statistics
		order    []string
		want     [][]string
	}{
		{
			"alone",
			[][]infer.Statistics{before, {model("a", 6, 130), model("b", 2, 7), model("sum", 6, 150)}},
			[]string{"b", "a"},
			[][]string{heading, {"b", "2", "7 us", "7 us", "7 us"}, {"a", "1", "30 us", "30 us", "30 us"}, {"sum", "1", "50 us", "50 us", "50 us"}},
		},
		{
			"counted late",
			[][]infer.Statistics{before, before, {model("a", 6, 130), model("b", 0, 0), model("sum", 6, 150)}},
			nil,
			[][]string{heading, {"a", "1", "30 us", "30 us", "30 us"}, {"sum", "1", "50 us", "50 us", "50 us"}},
		},
		{
			"others ask too",
			[][]infer.Statistics{before, {model("a", 7, 160), model("b", 0, 0), model("sum", 7, 200)}},
			nil,
			[][]string{heading, {"a", "n/a", "n/a", "n/a", "n/a"}, {"sum", "n/a", "n/a", "n/a", "n/a"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := timedInfer(t.Context(), &counted{readings: tt.readings}, &client.Request{Model: "sum"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.rows("sum", tt.order)); diff != "" {
				t.Errorf("rows:\n%s", diff)
			}
		})
	}
}

func TestShapeOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name             string
		declared, nested []int64
		n                int
		want             []int64
	}{
		{"one text", []int64{-1, 1}, nil, 1, []int64{1, 1}},
		{"flat", []int64{-1, -1}, []int64{4}, 4, []int64{1, 4}},
		{"rows of fixed width", []int64{-1, 4}, []int64{8}, 8, []int64{2, 4}},
		{"nested", []int64{-1, -1}, []int64{2, 3}, 6, []int64{2, 3}},
		{"none", []int64{-1}, []int64{0}, 0, []int64{0}},
		{"fixed", []int64{2, 2}, []int64{4}, 4, []int64{2, 2}},
		{"empty fixed dimension", []int64{-1, 0}, []int64{3}, 3, []int64{1, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, shapeOf(tt.declared, tt.nested, tt.n)); diff != "" {
				t.Errorf("shape:\n%s", diff)
			}
		})
	}
}
