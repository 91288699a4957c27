package fil

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/racetest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The forest of the benchmark, of the size of a common model of XGBoost. bench/peers/backends/fil.py makes the same.
const (
	benchTrees    = 1000
	benchDepth    = 6
	benchFeatures = 32
)

// uniform are pseudo-random numbers from 0 to 1, the same in Go and Python.
type uniform uint64

func (u *uniform) next() float64 {
	*u = *u*6364136223846793005 + 1442695040888963407
	return float64(*u>>33) / (1 << 31)
}

// benchTree returns a tree whose tests divide the part of the unit cube that reaches them, at a tenth to nine tenths of a side.
func benchTree(u *uniform, id int) map[string]any {
	const tests = 1<<benchDepth - 1
	const nodes = 2*tests + 1
	left, right, parent, feature, fallback := make([]int, nodes), make([]int, nodes), make([]int, nodes), make([]int, nodes), make([]int, nodes)
	condition, zeros := make([]float32, nodes), make([]float32, nodes)
	var low, high [nodes][benchFeatures]float64
	for k := range high[0] {
		high[0][k] = 1
	}
	parent[0] = 1<<31 - 1
	for i := range nodes {
		if i >= tests {
			left[i], right[i], condition[i] = -1, -1, float32(u.next()-0.5)/8
			continue
		}
		left[i], right[i] = 2*i+1, 2*i+2
		k := int(u.next() * benchFeatures)
		at := float32(low[i][k] + (high[i][k]-low[i][k])*(0.1+0.8*u.next()))
		feature[i], condition[i], fallback[i] = k, at, int(2*u.next())
		for _, c := range []int{left[i], right[i]} {
			parent[c], low[c], high[c] = i, low[i], high[i]
		}
		high[left[i]][k], low[right[i]][k] = float64(at), float64(at)
	}
	return map[string]any{
		"id": id, "left_children": left, "right_children": right, "parents": parent, "split_indices": feature, "split_conditions": condition,
		"default_left": fallback, "split_type": make([]int, nodes), "base_weights": zeros, "loss_changes": zeros, "sum_hessian": zeros,
		"categories": []int{}, "categories_nodes": []int{}, "categories_segments": []int{}, "categories_sizes": []int{},
		"tree_param": map[string]string{"num_deleted": "0", "num_feature": "32", "num_nodes": "127", "size_leaf_vector": "1"},
	}
}

// benchModel returns the forest as a file of XGBoost.
func benchModel(tb testing.TB) []byte {
	tb.Helper()
	u := uniform(26)
	trees := make([]any, benchTrees)
	for i := range trees {
		trees[i] = benchTree(&u, i)
	}
	data, err := json.Marshal(map[string]any{"version": []int{3, 0, 0}, "learner": map[string]any{
		"attributes": map[string]string{}, "feature_names": []string{}, "feature_types": []string{},
		"objective":           map[string]any{"name": "binary:logistic", "reg_loss_param": map[string]string{"scale_pos_weight": "1"}},
		"learner_model_param": map[string]string{"base_score": "5E-1", "boost_from_average": "1", "num_class": "0", "num_feature": "32", "num_target": "1"},
		"gradient_booster": map[string]any{"name": "gbtree", "model": map[string]any{
			"gbtree_model_param": map[string]string{"num_parallel_tree": "1", "num_trees": "1000"}, "trees": trees, "tree_info": make([]int, benchTrees),
		}},
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// loadBench returns a function that predicts a batch of rows with the forest of the benchmark.
func loadBench(tb testing.TB, dir string, rows int) func() {
	tb.Helper()
	pool := tensor.NewPool()
	cfg := &modelconfig.ModelConfig{Name: "bench", MaxBatchSize: 64, Parameters: map[string]*modelconfig.ModelParameter{
		keyType: {StringValue: "xgboost_json"}, keyProba: {StringValue: "true"}, keyThreads: {StringValue: "1"},
	}}
	m, err := (&backend{}).Load(tb.Context(), backends.Settings{Model: "bench", Version: 1, Dir: dir, Config: cfg, Alloc: pool, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	in, err := tensor.New(pool, tensor.FP32, tensor.Of(int64(rows), benchFeatures))
	if err != nil {
		tb.Fatal(err)
	}
	u := uniform(64)
	for i := range tensor.Slice[float32](&in) {
		tensor.Slice[float32](&in)[i] = float32(u.next())
	}
	b := &backends.Batch{Requests: make([]backends.Request, 1), Rows: rows, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: pool}
	x, err := m.NewInstance(tb.Context(), tensor.Place{})
	if err != nil {
		tb.Fatal(err)
	}
	ctx := tb.Context()
	return func() {
		if err := x.Execute(ctx, b); err != nil {
			tb.Fatal(err)
		}
		tensor.ReleaseAll(b.Out)
	}
}

// benchFolder returns a version folder with the forest.
func benchFolder(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "xgboost.json"), benchModel(tb), 0o600); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func TestExecuteAllocatesNothing(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector drops pooled memory")
	}
	dir := benchFolder(t)
	for _, rows := range []int{1, 13} {
		run := loadBench(t, dir, rows)
		if n := testing.AllocsPerRun(50, run); n != 0 {
			t.Errorf("%v allocations for a batch of %d, want none", n, rows)
		}
	}
}

// BenchmarkOverhead measures batches of one row and of 64 through 1,000 trees. bench/peers/backends/fil.py measures the calls of
// XGBoost and of treelite.
func BenchmarkOverhead(b *testing.B) {
	dir := benchFolder(b)
	one, many := loadBench(b, dir, 1), loadBench(b, dir, 64)
	b.Run("1000_trees_1_row", func(b *testing.B) { backendtest.Overhead(b, one) })
	b.Run("1000_trees_64_rows", func(b *testing.B) { backendtest.Overhead(b, many) })
}

// BenchmarkLoad measures reading the forest of the benchmark.
func BenchmarkLoad(b *testing.B) {
	dir := benchFolder(b)
	for b.Loop() {
		loadBench(b, dir, 1)
	}
}
