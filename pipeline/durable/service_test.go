package durable

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
)

// doubles reads the results that a manifest names: the double of each row, by the id that was kept.
func doubles(t *testing.T, out string, m *job.Manifest) map[string]float32 {
	t.Helper()
	all := map[string]float32{}
	next := int64(0)
	for _, p := range m.Parts {
		if p.First != next {
			t.Errorf("part %s begins with row %d, want %d", p.Path, p.First, next)
		}
		next += p.Rows + p.Failed
		text, err := os.ReadFile(filepath.Join(out, p.Path))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if p.Rows == 0 {
			continue
		}
		if int64(len(lines)) != p.Rows {
			t.Errorf("part %s has %d rows, want %d", p.Path, len(lines), p.Rows)
		}
		for _, line := range lines {
			var row struct {
				ID string
				Y  float32
			}
			if err = json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if _, twice := all[row.ID]; twice {
				t.Errorf("row '%s' has two results", row.ID)
			}
			all[row.ID] = row.Y
		}
	}
	if next != m.Rows.Total {
		t.Errorf("the parts have %d rows, want %d", next, m.Rows.Total)
	}
	return all
}

// files returns what a folder has.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			list = append(list, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestFailedRowReasons has rows with errors that say more than their code: one that ends the model's process again and again fails, and the job
// goes on; what is retryable is sent again, whatever its code.
func TestFailedRowReasons(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	rows := numbers(1, 20)
	rows[3] = crashing
	r.model.busy.Store(3)
	_, m := r.run(job.Spec{ID: "reasons", Input: job.Place{URI: r.dataset(rows...)}, Output: job.Place{URI: filepath.Join(t.TempDir(), "out")}, Keep: []string{"id"}})
	failed, err := r.service.Failures(t.Context(), "reasons", 0, 10)
	want := job.FailedRow{
		Row: 3, Place: "rows.jsonl:4", Error: "requests with the same inputs have ended processes 3 times", Code: "UNAVAILABLE", Reason: "REQUEST_CRASHES_MODEL",
	}
	if err != nil || m.Rows.Done != 19 || len(failed) != 1 || failed[0] != want {
		t.Errorf("%+v, %+v, %v, want the row %+v", m, failed, err, want)
	}
}

// TestJob runs a job with rows that fail, and then jobs that reuse its results.
func TestJob(t *testing.T) { //nolint:tparallel // each job goes on from the one before
	t.Parallel()
	r := newRig(t)
	r.work()
	out := filepath.Join(t.TempDir(), "out")
	rows := numbers(1, 300)
	rows[17], rows[250] = -5, -6
	spec := job.Spec{ID: "first", Input: job.Place{URI: r.dataset(rows...)}, Output: job.Place{URI: out}, Keep: []string{"id"}, ChunkRows: 40}
	st, m := r.run(spec)
	want := job.Rows{Total: 300, Done: 298, Failed: 2}
	if st.Rows != want || m.Rows != want || st.Chunks != 8 || st.Finished != 8 || m.Fingerprint != "content-1" || m.Version != 1 {
		t.Errorf("%+v, manifest %+v", st, m)
	}
	got := doubles(t, out, m)
	for i, v := range rows {
		if y, ok := got[fmt.Sprintf("row %d", i)]; ok != (v > 0) || ok && y != 2*v {
			t.Errorf("row %d: %g, %v", i, y, ok)
		}
	}
	if r.model.low.Load() == 0 {
		t.Error("no request has the lowest priority")
	}
	failed, err := r.service.Failures(t.Context(), "first", 0, 10)
	if err != nil || len(failed) != 2 || failed[0] != (job.FailedRow{Row: 17, Place: "rows.jsonl:18", Error: "-5 has no double", Code: "INTERNAL", Reason: "INTERNAL"}) {
		t.Errorf("%+v, %v", failed, err)
	}
	if failed, err = r.service.Failures(t.Context(), "first", 18, 10); err != nil || len(failed) != 1 || failed[0].Row != 250 {
		t.Errorf("from row 18: %+v, %v", failed, err)
	}

	t.Run("again", func(t *testing.T) {
		st, err := r.service.Submit(t.Context(), &job.Spec{ID: "first", Model: "double", Input: spec.Input, Output: spec.Output, Keep: spec.Keep, ChunkRows: 40})
		if err != nil || st.State != job.Completed {
			t.Errorf("the same job: %+v, %v", st, err)
		}
		if _, err = r.service.Submit(t.Context(), &job.Spec{ID: "first", Model: "double", Input: spec.Input, Output: spec.Output}); status.CodeOf(err) != status.AlreadyExists {
			t.Errorf("another one with its ID: %v", err)
		}
	})
	t.Run("failed rows alone", func(t *testing.T) {
		r.model.negated.Store(true)
		defer r.model.negated.Store(false)
		before := r.model.rows.Load()
		spec := spec
		spec.ID, spec.Output.URI = "alone", filepath.Join(t.TempDir(), "alone")
		spec.Input.URI = filepath.Join(out, "_errors")
		if _, m := r.run(spec); m.Rows.Done != 2 || doubles(t, spec.Output.URI, m)["row 17"] != -10 {
			t.Errorf("%+v", m)
		}
		if n := r.model.rows.Load() - before; n > 4 { // with those of the check
			t.Errorf("%d rows were executed", n)
		}
	})
	t.Run("after a fix", func(t *testing.T) {
		r.model.negated.Store(true)
		before := r.model.rows.Load()
		old := m.Parts
		spec := spec
		spec.ID = "second"
		st, m := r.run(spec)
		if want := (job.Rows{Total: 300, Done: 300, Reused: 298}); st.Rows != want || m.Rows != want {
			t.Errorf("%+v, want %+v", st.Rows, want)
		}
		if n := r.model.rows.Load() - before; n > 2 {
			t.Errorf("%d rows were executed", n)
		}
		if m.Parts[1] != old[1] || m.Parts[0] == old[0] {
			t.Errorf("parts are %+v, were %+v", m.Parts[:2], old[:2])
		}
		if got := doubles(t, out, m); got["row 17"] != -10 || len(got) != 300 {
			t.Errorf("%d results, row 17 has %g", len(got), got["row 17"])
		}
		parts := slices.DeleteFunc(files(t, out), func(name string) bool { return !strings.HasPrefix(name, "part-") })
		if len(parts) != len(m.Parts) {
			t.Errorf("files %q, want those of %d parts", parts, len(m.Parts))
		}
		if _, err := r.service.Result(t.Context(), "first"); status.CodeOf(err) != status.NotFound {
			t.Errorf("the result that was replaced: %v", err)
		}
	})
	t.Run("more rows in another order", func(t *testing.T) {
		before := r.model.rows.Load()
		more := append(slices.Clone(rows), numbers(1001, 50)...)
		rng := rand.New(rand.NewPCG(1, 2))
		path := r.dataset(more...)
		text, _ := os.ReadFile(path)
		lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
		rng.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		for i := range lines {
			lines[i] = strings.TrimSuffix(lines[i], "\n") + "\n"
		}
		if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		spec := spec
		spec.ID, spec.Input.URI = "third", path
		st, m := r.run(spec)
		if want := (job.Rows{Total: 350, Done: 350, Reused: 300}); st.Rows != want {
			t.Errorf("%+v, want %+v", st.Rows, want)
		}
		if n := r.model.rows.Load() - before; n > 50+16 { // with those of the check
			t.Errorf("%d rows were executed", n)
		}
		if got := doubles(t, out, m); len(got) != 350 || got["row 349"] != 2*1050 {
			t.Errorf("%d results, row 349 has %g", len(got), got["row 349"])
		}
		fresh := spec
		fresh.ID, fresh.Output.URI = "fresh", filepath.Join(t.TempDir(), "fresh")
		if _, other := r.run(fresh); other.Sum != m.Sum || other.Sum == "" {
			t.Errorf("checksum %s, of a run without earlier results %s", m.Sum, other.Sum)
		}
	})
	t.Run("another model", func(t *testing.T) {
		r.model.content.Store("content-2")
		spec := spec
		spec.ID = "fourth"
		if st, m := r.run(spec); st.Rows.Reused != 0 || st.Rows.Done != 300 || m.Fingerprint != "content-2" {
			t.Errorf("%+v", st)
		}
	})
	list, err := r.service.List(t.Context(), "", 0)
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	if err != nil || !slices.Equal(ids, []string{"fourth", "fresh", "third", "second", "alone", "first"}) {
		t.Errorf("%q, %v", ids, err)
	}
	if page, err := r.service.List(t.Context(), "fresh", 2); err != nil || len(page) != 2 || page[0].ID != "third" || page[0].Rows.Done != 350 {
		t.Errorf("%+v, %v", page, err)
	}
}
