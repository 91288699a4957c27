package forest_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends/fil/forest"
	"github.com/tutti-server/tutti/backends/fil/forest/foresttest"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/racetest"
)

// walk follows a tree as a framework does: with comparisons in FP64, one test after the other. It returns the leaf.
func walk(nodes []forest.Node, row []float32) *forest.Node {
	n := &nodes[0]
	for n.Test != forest.Leaf {
		next := n.Right
		if holds(n, float64(row[n.Feature])) {
			next = n.Left
		}
		n = &nodes[next]
	}
	return n
}

// holds reports whether a row goes left.
func holds(n *forest.Node, x float64) bool {
	near := float64(float32(1e-35))
	if n.ZeroMissing && (math.IsNaN(x) || math.Abs(x) <= near) || math.IsNaN(x) {
		return n.DefaultLeft
	}
	switch n.Test {
	case forest.Less:
		return x < n.Threshold
	case forest.LessEqual:
		return x <= n.Threshold
	case forest.Greater:
		return x > n.Threshold
	case forest.GreaterEqual:
		return x >= n.Threshold
	case forest.Equal:
		return x == n.Threshold
	case forest.InTruncated:
		x = math.Trunc(x)
	}
	return x >= 0 && x <= 1<<24 && slices.Contains(n.Categories, uint32(x))
}

// values are the values and thresholds where comparisons are delicate.
var values = []float64{
	0, math.Copysign(0, -1), 1, -1, 0.1, float64(float32(0.1)), 0.3, -0.3, 1e-36, -1e-36, 1e-35, float64(float32(1e-35)), -1e-35, 2e-35, -2e-35,
	1e-46, -1e-46, math.SmallestNonzeroFloat32, math.MaxFloat32, -math.MaxFloat32, 1e300, -1e300, math.Inf(1), math.Inf(-1),
	2, 3.99, 31, 32, 63, 64, 100, 1e7, 1 << 24, 1<<24 + 2, 1 << 31, 1 << 32, -0.5, 0.5,
}

// grow appends a random tree to nodes and returns its root.
func grow(r *rand.Rand, nodes *[]forest.Node, depth, features, outputs int, tests []forest.Test) int32 {
	at := int32(len(*nodes))
	*nodes = append(*nodes, forest.Node{})
	if depth == 0 || r.IntN(6) == 0 && at > 0 {
		n := forest.Node{Value: math.Round(r.NormFloat64()*1000) / 8}
		for range outputs {
			n.Vector = append(n.Vector, math.Round(r.NormFloat64()*1000)/8)
		}
		(*nodes)[at] = n
		return at
	}
	n := forest.Node{Test: tests[r.IntN(len(tests))], Feature: int32(r.IntN(features)), DefaultLeft: r.IntN(2) == 0, Threshold: values[r.IntN(len(values))]}
	n.ZeroMissing = n.Test == forest.LessEqual && r.IntN(2) == 0
	if n.Test >= forest.In {
		for range r.IntN(5) {
			n.Categories = append(n.Categories, uint32(r.IntN(70)))
		}
		if r.IntN(3) == 0 {
			n.Categories = append(n.Categories, 1<<24, math.MaxUint32)
		}
	}
	n.Left = grow(r, nodes, depth-1, features, outputs, tests)
	n.Right = grow(r, nodes, depth-1, features, outputs, tests)
	(*nodes)[at] = n
	return at
}

// TestLeaves compares random forests, of all tests and of plain ones, with a walk through each tree.
func TestLeaves(t *testing.T) {
	t.Parallel()
	all := []forest.Test{forest.Less, forest.LessEqual, forest.Greater, forest.GreaterEqual, forest.Equal, forest.In, forest.InTruncated}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 26))
		h := forest.Head{Features: 1 + r.IntN(9), Outputs: 1 + r.IntN(3), Double: seed%2 == 0, BaseFirst: seed%3 == 0}
		tests := all[:1+r.IntN(len(all))]
		vector := seed%5 == 0
		b, err := forest.NewBuilder(h)
		if err != nil {
			t.Fatal(err)
		}
		var trees [][]forest.Node
		for i := range 1 + r.IntN(40) {
			var nodes []forest.Node
			grow(r, &nodes, r.IntN(11), h.Features, h.Outputs, tests)
			trees = append(trees, nodes)
			output := i % h.Outputs
			if vector {
				output = -1
			}
			if err := b.Add(nodes, output); err != nil {
				t.Fatal(err)
			}
		}
		f := built(t, b)
		rows := 1 + r.IntN(150)
		x := make([]float32, rows*h.Features)
		for i := range x {
			if x[i] = float32(values[r.IntN(len(values))]); r.IntN(8) == 0 {
				x[i] = float32(math.NaN())
			}
		}
		want := make([]float32, rows*h.Outputs) // the values are multiples of 1/8: sums are exact
		for row := range rows {
			for i, nodes := range trees {
				leaf := walk(nodes, x[row*h.Features:][:h.Features])
				for k := range h.Outputs {
					if vector {
						want[row*h.Outputs+k] += float32(leaf.Vector[k])
					} else if k == i%h.Outputs {
						want[row*h.Outputs+k] += float32(leaf.Value)
					}
				}
			}
		}
		got := make([]float32, len(want))
		f.Predict(x, got, foresttest.Plain{})
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: predictions differ:\n got %v\nwant %v", seed, got, want)
		}
	}
}

// built returns the forest of a builder.
func built(t *testing.T, b *forest.Builder) *forest.Forest {
	t.Helper()
	f, err := b.Forest()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// stump is a tree of one test.
func stump(test forest.Test, threshold float64) []forest.Node {
	return []forest.Node{{Test: test, Left: 1, Right: 2, Threshold: threshold}, {Value: 1}, {Value: 2}}
}

func TestAddRefuses(t *testing.T) {
	t.Parallel()
	changed := func(change func(n []forest.Node)) []forest.Node {
		n := stump(forest.Less, 0.5)
		change(n)
		return n
	}
	tests := map[string]struct {
		nodes  []forest.Node
		output int
		want   string
	}{
		"empty":          {nil, 0, "it has no nodes"},
		"output":         {stump(forest.Less, 1), 2, "it belongs to output 2, expected 0 to 1"},
		"child":          {changed(func(n []forest.Node) { n[0].Right = 3 }), 0, "node 0 has child 3, expected 0 to 2"},
		"negative child": {changed(func(n []forest.Node) { n[0].Left = -7 }), 0, "node 0 has child -7"},
		"cycle":          {changed(func(n []forest.Node) { n[0].Left = 0 }), 0, "node 0 is reached twice, expected a tree"},
		"shared child":   {changed(func(n []forest.Node) { n[0].Left = 2 }), 0, "node 2 is reached twice, expected a tree"},
		"feature":        {changed(func(n []forest.Node) { n[0].Feature = 3 }), 0, "node 0 tests feature 3, expected 0 to 2"},
		"nan":            {stump(forest.Less, math.NaN()), 0, "node 0 has threshold NaN, expected a number"},
		"test":           {stump(99, 1), 0, "test 99 is unknown"},
		"vector":         {stump(forest.Less, 1), -1, "the leaf at node 1 has 0 values, expected 2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := forest.NewBuilder(forest.Head{Features: 3, Outputs: 2})
			if err != nil {
				t.Fatal(err)
			}
			err = b.Add(tt.nodes, tt.output)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "tree 0: ") || status.CodeOf(err) != status.InvalidArg {
				t.Errorf("Add = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNewBuilderRefuses(t *testing.T) {
	t.Parallel()
	for want, h := range map[string]forest.Head{
		"0 features":                       {Outputs: 1},
		"0 outputs":                        {Features: 1},
		"65537 outputs":                    {Features: 1, Outputs: forest.MaxOutputs + 1},
		"2 base scores, expected 1":        {Features: 1, Outputs: 1, Base: []float64{1, 2}},
		"base score 0 is NaN":              {Features: 1, Outputs: 1, Base: []float64{math.NaN()}},
		"parameter of the prediction's":    {Features: 1, Outputs: 1, Link: forest.Link{Function: forest.Sigmoid}},
		"softmax over 1 classes, expected": {Features: 1, Outputs: 1, Link: forest.Link{Function: forest.Softmax}},
	} {
		if _, err := forest.NewBuilder(h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewBuilder = %v, want %q", err, want)
		}
	}
}

// TestDeepTree builds a chain of a million tests.
func TestDeepTree(t *testing.T) {
	t.Parallel()
	const depth = 1 << 20
	nodes := make([]forest.Node, 0, 2*depth+1)
	for i := range int32(depth) {
		nodes = append(nodes, forest.Node{Test: forest.LessEqual, Left: 2*i + 1, Right: 2*i + 2, Threshold: float64(i)}, forest.Node{Value: float64(i)})
	}
	nodes = append(nodes, forest.Node{Value: -1})
	b, err := forest.NewBuilder(forest.Head{Features: 1, Outputs: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add(nodes, 0); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 3)
	built(t, b).Predict([]float32{-5, depth - 1.5, depth}, got, foresttest.Plain{})
	if want := []float32{0, depth - 1, -1}; !slices.Equal(got, want) {
		t.Errorf("Predict = %v, want %v", got, want)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		link forest.Link
		want []float32
	}{
		{forest.Link{}, []float32{-2, 0.5}},
		{forest.Link{Function: forest.SignedSquare}, []float32{-4, 0.25}},
		{forest.Link{Function: forest.Hinge}, []float32{0, 1}},
		{forest.Link{Function: forest.Sigmoid, A: 2}, []float32{0.01798621, 0.7310586}},
		{forest.Link{Function: forest.Exponential}, []float32{0.13533528, 1.6487213}},
		{forest.Link{Function: forest.StandardRatio, A: 4}, []float32{1.4142135, 0.91700405}},
		{forest.Link{Function: forest.LogOnePlusExp}, []float32{0.126928, 0.974077}},
		{forest.Link{Function: forest.Softmax}, []float32{0.07585818, 0.9241418}},
		{forest.Link{Function: forest.Ascending}, []float32{-2, 0.5}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.link), func(t *testing.T) {
			t.Parallel()
			b, err := forest.NewBuilder(forest.Head{Features: 1, Outputs: 2, Base: []float64{-2, 0.5}, Link: tt.link})
			if err != nil {
				t.Fatal(err)
			}
			got := make([]float32, 2)
			built(t, b).Predict([]float32{0}, got, foresttest.Plain{})
			for i := range got {
				if math.Abs(float64(got[i]-tt.want[i])) > 1e-6 {
					t.Errorf("Predict = %v, want %v", got, tt.want)
				}
			}
		})
	}
}

func TestPredictAllocatesNothing(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector drops pooled memory")
	}
	b, err := forest.NewBuilder(forest.Head{Features: 1, Outputs: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := b.Add(stump(forest.LessEqual, 3), 0); err != nil {
			t.Fatal(err)
		}
	}
	f, x, out := built(t, b), make([]float32, 100), make([]float32, 100)
	if n := testing.AllocsPerRun(100, func() { f.Predict(x, out, foresttest.Plain{}) }); n != 0 {
		t.Errorf("%v allocations for a prediction, want none", n)
	}
}
