package repository_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/inspect"
)

// TestGraphCarries checks that the graph has the tensors passed between steps, copied or not.
func TestGraphCarries(t *testing.T) {
	cudatest.NotAtDevices(t, "it counts the bytes of edges in host memory")
	t.Parallel()
	w := newWorld(t)
	r := w.repo(t, folder(t, doubleModel+ensemble("ens", step("plain", "-1", "IN", "A"), step("plain", "-1", "A", "X"))))
	for range 3 {
		if _, err := send(t.Context(), r, w.request("ens", 1)); err != nil {
			t.Fatal(err)
		}
	}
	g, err := r.Graph("ens", -1)
	if err != nil {
		t.Fatal(err)
	}
	want := []inspect.CarriedView{{Place: "host", Bytes: 12}}
	for i := range g.Edges {
		if diff := cmp.Diff(want, g.Edges[i].Carried); diff != "" {
			t.Errorf("tensor %s (-want +got):\n%s", g.Edges[i].Tensor, diff)
		}
	}
	if len(g.Edges) != 3 || len(g.Nodes) != 2 || g.Nodes[0].InFlight != 0 {
		t.Errorf("%d edges, nodes %+v", len(g.Edges), g.Nodes)
	}
	if g, err = r.Graph("plain", -1); err != nil || g.Edges[0].Carried == nil || len(g.Edges[0].Carried) != 0 {
		t.Errorf("a plain model: %+v, %v", g, err)
	}
}
