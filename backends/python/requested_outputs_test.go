package python_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
)

// TestRequestedOutputs checks requested_output_names of a request: the requested names, or all.
func TestRequestedOutputs(t *testing.T) {
	t.Parallel()
	o := options(t)
	cfg, err := config.Load("testdata/models/told")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Output = append(cfg.Output, output("REST", tensor.FP32, 1))
	s := settings(t, "told", cfg)
	x := running(t, opened(t, o), s, 1)[0]
	for _, tt := range []struct {
		meta         *infer.Meta
		wanted, want []string // sorted, because requested_output_names has no order
	}{
		{nil, nil, []string{"OUT", "REST"}},
		{nil, []string{"OUT"}, []string{"OUT"}},
		{&infer.Meta{ID: "r"}, nil, []string{"OUT", "REST"}},
		{&infer.Meta{ID: "r"}, []string{"REST", "OUT"}, []string{"OUT", "REST"}},
	} {
		b := &backends.Batch{Rows: 1, In: make([]tensor.Tensor, 2), Out: make([]tensor.Tensor, 2), Allocator: s.Alloc}
		b.Requests = []backends.Request{{Ctx: t.Context(), Meta: tt.meta, RequestedOutputs: tt.wanted, Rows: 1}}
		if diff := cmp.Diff(tt.want, readRequested(t.Context(), t, x, b)); diff != "" {
			t.Errorf("outputs wanted, of %v (-want +got):\n%s", tt.wanted, diff)
		}
	}
}

func readRequested(ctx context.Context, t *testing.T, x backends.Instance, b *backends.Batch) []string {
	t.Helper()
	defer tensor.ReleaseAll(b.Out)
	if err := x.Execute(ctx, b); err != nil || b.Requests[0].Err != nil {
		t.Fatal(err, b.Requests[0].Err)
	}
	text, _, _ := tensor.NextBytes(b.Out[0].Bytes())
	var told struct {
		Outputs []string `json:"outputs"`
	}
	if err := json.Unmarshal(text, &told); err != nil {
		t.Fatal(err)
	}
	return told.Outputs
}
