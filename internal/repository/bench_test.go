package repository_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/repository"
)

// crowd returns a repository of n models.
func crowd(tb testing.TB, w *world, n int) *repository.Repository {
	tb.Helper()
	var b strings.Builder
	for i := range n {
		b.WriteString(plain(fmt.Sprintf("model-%04d", i), "spy"))
	}
	return w.repo(tb, folder(tb, b.String()))
}

// BenchmarkFind looks one model among a thousand up.
func BenchmarkFind(b *testing.B) {
	r := crowd(b, newWorld(b), 1000)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.ModelReady("model-0500", 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPoll looks at a thousand models of which none has changed.
func BenchmarkPoll(b *testing.B) {
	w := newWorld(b)
	w.more.Mode = repository.Polled
	r := crowd(b, w, 1000)
	for b.Loop() {
		if err := r.Poll(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen opens a thousand models.
func BenchmarkOpen(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		text.WriteString(plain(fmt.Sprintf("model-%04d", i), "spy"))
	}
	root := folder(b, text.String())
	for b.Loop() {
		r, err := newWorld(b).open(b.Context(), root)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
