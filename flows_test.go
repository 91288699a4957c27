package tutti //nolint:testpackage // what the looks hold is no one else's business

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// TestFlow takes the rates of edges over the last looks.
func TestFlow(t *testing.T) {
	t.Parallel()
	alloc := tensor.NewChecked(t, nil)
	buf, err := alloc.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Tensor{DType: tensor.Uint8, Shape: tensor.Of(100), Buf: buf, Len: 100}
	defer x.Release()
	var m telemetry.Model
	edges := m.Edges([]string{"A", "B"})
	h := &lastLook{first: 1}
	v := &overview{past: map[served]*lastLook{{"m", 1}: h}}
	look := func(times int) {
		v.second++
		for range times {
			edges[1].Carried(&x)
		}
		h.flows.look(v.second, m.Carried())
	}
	for _, c := range []struct {
		times int
		rate  float64
	}{{3, 300}, {1, 200}, {0, 400. / 3}, {0, 100}, {1, 100}, {0, 40}, {0, 20}, {0, 20}} {
		look(c.times)
		g := &infer.GraphView{Model: "m", Version: 1, Edges: []infer.EdgeView{
			{Tensor: "A"}, {Tensor: "B", Carried: []infer.CarriedView{{Place: "device"}, {Place: "host", Bytes: 7}}}, {Tensor: "C"},
		}}
		v.flow(g)
		want := []infer.CarriedView{{Place: "device"}, {Place: "host", Bytes: 7, Rate: c.rate}}
		if diff := cmp.Diff(want, g.Edges[1].Carried); diff != "" {
			t.Errorf("look %d (-want +got):\n%s", v.second, diff)
		}
	}
	v.flow(&infer.GraphView{Model: "unknown"})
}
