package repository_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"tutti/core/infer"
	"tutti/repository"
	"tutti/scheduler/device"
)

// TestRegroup changes the instances of a model that serves: it is not loaded again, and
// closed once.
func TestRegroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.Mode = repository.Explicit
	w.more.Limits = device.Settings{RateLimit: true, Limits: []device.Limit{{Name: "R", Count: 1, Device: device.EveryDevice}}}
	root := folder(t, spyModel("m", ""))
	r := w.repo(t, root)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "m", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const base = `backend: "spy" max_batch_size: 8 `
	for _, tc := range []struct {
		name, file, text       string
		loads, made, wantError int
	}{
		{"instances", "config.pbtxt", base + "instance_group { count: 3 }", 1, 4, 0},
		{"more than there is", "config.pbtxt", base + "instance_group { rate_limiter { resources { name: 'R' count: 2 } } }", 1, 5, 1},
		{"passive ones", "config.pbtxt", base + "instance_group { count: 2 } instance_group { passive: true }", 1, 8, 0},
		{"nothing", "config.pbtxt", base + "instance_group { count: 2 } instance_group { passive: true }", 2, 11, 0},
		{"something else", "config.pbtxt", base + "dynamic_batching {} instance_group {}", 3, 12, 0},
		{"a file", "1/new", "x", 4, 13, 0},
	} {
		write(tc.file, tc.text)
		if err := r.Load(t.Context(), "m", infer.LoadOptions{}); (err != nil) != (tc.wantError > 0) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if loads, made := w.spy.count("load m"), w.spy.count("instance m"); loads != tc.loads || made != tc.made {
			t.Errorf("%s: loaded %d times with %d instances, want %d and %d", tc.name, loads, made, tc.loads, tc.made)
		}
		if got, err := ask(t.Context(), r, w.request("m", 4)); err != nil || got != 8 {
			t.Errorf("%s: got %v, %v", tc.name, got, err)
		}
	}
	if err := r.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if loads, closed := w.spy.count("load m"), w.spy.count("close model m"); loads != closed {
		t.Errorf("loaded %d times, closed %d times", loads, closed)
	}
	if made, closed := w.spy.count("instance m"), w.spy.count("close instance m"); made != closed {
		t.Errorf("%d instances were made and %d closed", made, closed)
	}
}
