package repository_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/repository"
)

// openMany returns a repository of n models.
func openMany(tb testing.TB, w *world, n int) *repository.Repository {
	tb.Helper()
	var b strings.Builder
	for i := range n {
		b.WriteString(plain(fmt.Sprintf("model-%04d", i), "spy"))
	}
	return w.repo(tb, folder(tb, b.String()))
}

// BenchmarkFind measures the lookup of one model among a thousand.
func BenchmarkFind(b *testing.B) {
	r := openMany(b, newWorld(b), 1000)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.ModelReady("model-0500", 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPoll measures a poll of a thousand unchanged models.
func BenchmarkPoll(b *testing.B) {
	w := newWorld(b)
	w.more.Mode = repository.Polled
	r := openMany(b, w, 1000)
	for b.Loop() {
		if err := r.Poll(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen measures opening a thousand models.
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
