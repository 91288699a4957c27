package repository_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/repository"
)

// opening opens a repository whose models call init[name] while they load, with the context of the load.
func opening(t *testing.T, w *world, archive string, init map[string]func(ctx context.Context, r *repository.Repository) error) *repository.Repository {
	t.Helper()
	var r *repository.Repository
	w.spy.init = func(ctx context.Context, model string) error {
		if f := init[model]; f != nil {
			return f(ctx, r)
		}
		return nil
	}
	r = w.explicit(t, folder(t, archive))
	return r
}

func loads(names ...string) func(context.Context, *repository.Repository) error {
	return func(ctx context.Context, r *repository.Repository) error {
		for _, name := range names {
			if err := r.Load(ctx, name, infer.LoadOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestLoadInside checks that models which load and unload others while they load, several levels deep, change them
// for good, even when their own load fails.
// shows: repository
func TestLoadInside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	archive := plain("outer", "spy") + plain("middle", "spy") + plain("inner", "spy") + plain("unwanted", "spy") + plain("fails", "spy")
	r := opening(t, w, archive, map[string]func(context.Context, *repository.Repository) error{
		"outer": func(ctx context.Context, r *repository.Repository) error {
			err := loads("middle")(ctx, r)
			if r.ModelReady("middle", -1) != nil {
				return errors.New("the loaded model does not serve yet")
			}
			return errors.Join(err, r.Unload(ctx, "unwanted", false))
		},
		"middle": loads("inner"),
		"fails": func(ctx context.Context, r *repository.Repository) error {
			return errors.Join(loads("unwanted")(ctx, r), errors.New("the model gives up"))
		},
	})
	load(t, r, "unwanted", "")
	load(t, r, "outer", "")
	wantIndex(t, r, "fails\ninner 1 READY\nmiddle 1 READY\nouter 1 READY\nunwanted 1 UNAVAILABLE unloaded\n")
	wantValues(t, w, r, map[string]float32{"outer": 2, "middle": 2, "inner": 2, "unwanted": 0})
	load(t, r, "fails", "load failed for model 'fails': version 1 is at UNAVAILABLE state: the model gives up;\n")
	wantValues(t, w, r, map[string]float32{"outer": 2, "unwanted": 2, "fails": 0})
}

// TestLoadItself checks that a model cannot load or unload itself, or an outer model, while they load.
func TestLoadItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var got []string
	try := func(ctx context.Context, r *repository.Repository, name string) {
		for _, err := range []error{r.Load(ctx, name, infer.LoadOptions{}), r.Unload(ctx, name, false)} {
			if err != nil {
				got = append(got, err.Error())
			}
		}
	}
	r := opening(t, w, plain("outer", "spy")+plain("inner", "spy"), map[string]func(context.Context, *repository.Repository) error{
		"outer": loads("inner"),
		"inner": func(ctx context.Context, r *repository.Repository) error {
			try(ctx, r, "inner")
			try(ctx, r, "outer")
			return nil
		},
	})
	load(t, r, "outer", "")
	want := []string{
		"model 'inner' is itself being loaded", "model 'inner' is itself being loaded",
		"model 'outer' is itself being loaded", "model 'outer' is itself being loaded",
	}
	if !slices.Equal(got, want) {
		t.Errorf("errors %q, want %q", got, want)
	}
	wantValues(t, w, r, map[string]float32{"outer": 2, "inner": 2})
}

// TestLoadInsideEnsemble checks that the models of an ensemble may concurrently load others while the ensemble
// loads.
func TestLoadInsideEnsemble(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	archive := pair + plain("x", "spy") + plain("y", "spy") + ensemble("ens", step("part", "-1", "IN", "M"), step("other", "-1", "M", "X"))
	r := opening(t, w, archive, map[string]func(context.Context, *repository.Repository) error{"part": loads("x", "y"), "other": loads("y", "x")})
	load(t, r, "ens", "")
	wantValues(t, w, r, map[string]float32{"ens": 4, "x": 2, "y": 2})
	unload(t, r, "ens", true)
	wantValues(t, w, r, map[string]float32{"ens": 0, "part": 0, "x": 2, "y": 2})
}

// TestReadyOfModels checks that the server, the model and an ensemble that uses it are not ready while a loaded model reports that it is not.
func TestReadyOfModels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.repo(t, folder(t, pair+ensemble("ens", step("part", "-1", "IN", "M"), step("other", "-1", "M", "X"))))
	for _, ready := range []bool{true, false, true} {
		var why error
		if !ready {
			why = errors.New("the worker died")
		}
		w.spy.unready.Store(&why)
		if r.Ready() != ready || (r.ModelReady("part", -1) == nil) != ready {
			t.Errorf("ready: %v, model: %v; want a model that is ready: %v", r.Ready(), r.ModelReady("part", -1), ready)
		}
		if err := r.ModelReady("ens", -1); (err == nil) != ready || err != nil && !strings.Contains(err.Error(), "in ensemble 'ens', ") {
			t.Errorf("ensemble: %v; want one that is ready: %v", err, ready)
		}
	}
}
