package overview //nolint:testpackage // the test drives the private samples second by second

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// TestFlow checks the rates of edges over the last samples.
func TestFlow(t *testing.T) {
	t.Parallel()
	alloc := tensortest.NewChecked(t, nil)
	buf, err := alloc.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Tensor{DType: tensor.Uint8, Shape: tensor.Of(100), Buf: buf, Len: 100}
	defer x.Release()
	var m telemetry.Model
	edges := m.Edges([]string{"A", "B"})
	s := &samples{first: 1}
	w := &Window{versions: map[versionKey]*samples{{"m", 1}: s}}
	sample := func(times int) {
		w.second++
		for range times {
			edges[1].Carried(&x)
		}
		s.flows.sample(w.second, m.Carried())
	}
	for _, c := range []struct {
		times int
		rate  float64
	}{{3, 300}, {1, 200}, {0, 400. / 3}, {0, 100}, {1, 100}, {0, 40}, {0, 20}, {0, 20}} {
		sample(c.times)
		g := &inspect.GraphView{Model: "m", Version: 1, Edges: []inspect.EdgeView{
			{Tensor: "A"}, {Tensor: "B", Carried: []inspect.CarriedView{{Place: "device"}, {Place: "host", Bytes: 7}}}, {Tensor: "C"},
		}}
		w.addFlows(g)
		want := []inspect.CarriedView{{Place: "device"}, {Place: "host", Bytes: 7, Rate: c.rate}}
		if diff := cmp.Diff(want, g.Edges[1].Carried); diff != "" {
			t.Errorf("sample %d (-want +got):\n%s", w.second, diff)
		}
	}
	w.addFlows(&inspect.GraphView{Model: "unknown"})
}
