//go:build !race

package repository_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/repository"
)

// manyIdentities writes a repository of n identity models, as make bench-repo uses it.
func manyIdentities(tb testing.TB, n int) string {
	tb.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "-- model-%05d/config.pbtxt --\nbackend: \"identity\" max_batch_size: 8\n"+
			"input { name: \"INPUT0\" data_type: TYPE_FP32 dims: [ 1 ] }\noutput { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: [ 1 ] }\n-- model-%05d/1/ --\n", i, i)
	}
	return folder(tb, b.String())
}

// heap returns the size of the live heap in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestIdleModelBudget bounds the live heap of a model without requests.
func TestIdleModelBudget(t *testing.T) {
	const n, limit = 1000, 40 << 10
	root, w := manyIdentities(t, n), newWorld(t)
	before := heap()
	r := w.repo(t, root)
	if each := (heap() - before) / n; each > limit {
		t.Errorf("a model takes %d bytes, want at most %d", each, limit)
	}
	runtime.KeepAlive(r)
}

// manyEnsembles writes a repository of n ensembles, each with ten steps over the same ten identity models.
func manyEnsembles(tb testing.TB, n int) string {
	tb.Helper()
	const ports = "max_batch_size: 8\ninput { name: \"INPUT0\" data_type: TYPE_FP32 dims: [ 1 ] }\noutput { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
	const steps = 10
	var b, chain strings.Builder
	from := "INPUT0"
	for i := range steps {
		fmt.Fprintf(&b, "-- step%d/config.pbtxt --\nbackend: \"identity\" %s-- step%d/1/ --\n", i, ports, i)
		to := fmt.Sprintf("after%d", i)
		if i == steps-1 {
			to = "OUTPUT0"
		}
		fmt.Fprintf(&chain, "  step { model_name: \"step%d\" model_version: -1 input_map { key: \"INPUT0\" value: %q } output_map { key: \"OUTPUT0\" value: %q } }\n", i, from, to)
		from = to
	}
	for i := range n {
		fmt.Fprintf(&b, "-- ensemble-%05d/config.pbtxt --\nplatform: \"ensemble\" %sensemble_scheduling {\n%s}\n-- ensemble-%05d/1/ --\n", i, ports, chain.String(), i)
	}
	return folder(tb, b.String())
}

// TestIdleEnsembleBudget bounds the live heap of an ensemble of ten steps without requests.
func TestIdleEnsembleBudget(t *testing.T) {
	const n, limit = 1000, 20 << 10
	few, many, w := manyEnsembles(t, 0), manyEnsembles(t, n), newWorld(t)
	start := heap()
	alone := w.repo(t, few)
	before := heap()
	models := before - start
	r := w.repo(t, many)
	if each := (heap() - before - models) / n; each > limit {
		t.Errorf("an ensemble takes %d bytes, want at most %d", each, limit)
	}
	runtime.KeepAlive(alone)
	runtime.KeepAlive(r)
}

// TestTenThousandBudget opens a repository of ten thousand models, one of them broken.
func TestTenThousandBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("part of make test-all")
	}
	w := newWorld(t)
	r := w.repo(t, manyIdentities(t, 10_000), folder(t, "-- broken/config.pbtxt --\nbackend: \"identity\" max_batch_size: x\n-- broken/1/ --\n"))
	if len(r.Models()) != 10_001 || len(r.Failures()) != 1 {
		t.Errorf("%d models, %d failures", len(r.Models()), len(r.Failures()))
	}
}

// BenchmarkRepository is make bench-repo: loading 1,000 identity models, the memory of an idle one, the same for 1,000
// ensembles of ten steps, polling the models' unchanged folders, and finding one.
func BenchmarkRepository(b *testing.B) {
	const n = 1000
	root := manyIdentities(b, n)
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			w := newWorld(b)
			before := heap()
			began := time.Now()
			r, err := w.open(b.Context(), root)
			if err != nil || len(r.Failures()) > 0 {
				b.Fatal(err, r.Failures()[0])
			}
			b.ReportMetric(time.Since(began).Seconds(), "s/load")
			b.ReportMetric(float64(heap()-before)/n/1024, "KiB/model")
			if err := r.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	chains := manyEnsembles(b, n)
	b.Run("ensembles", func(b *testing.B) {
		for b.Loop() {
			w := newWorld(b)
			before := heap()
			began := time.Now()
			r, err := w.open(b.Context(), chains)
			if err != nil || len(r.Failures()) > 0 {
				b.Fatal(err, r.Failures()[0])
			}
			b.ReportMetric(time.Since(began).Seconds(), "s/load")
			b.ReportMetric(float64(heap()-before)/n/1024, "KiB/ensemble")
			if err := r.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("poll", func(b *testing.B) {
		w := newWorld(b)
		w.more.Mode = repository.Polled
		r := w.repo(b, root)
		for b.Loop() {
			if err := r.Poll(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("find", func(b *testing.B) {
		r := newWorld(b).repo(b, root)
		for b.Loop() {
			if err := r.ModelReady("model-00500", 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWatching measures what a server does every second for 1,000 idle models: reading their counters, states and readiness.
func BenchmarkWatching(b *testing.B) {
	const n = 1000
	w := newWorld(b)
	r := w.repo(b, manyIdentities(b, n))
	b.Run("counters", func(b *testing.B) {
		for b.Loop() {
			r.Counters()
		}
	})
	b.Run("index", func(b *testing.B) {
		for b.Loop() {
			r.Index(false)
		}
	})
	b.Run("opened", func(b *testing.B) {
		for b.Loop() {
			r.Opened()
		}
	})
	b.Run("ready", func(b *testing.B) {
		for b.Loop() {
			for _, name := range r.Models() {
				_ = r.ModelReady(name, 1)
			}
		}
	})
}
