package servertest

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
)

// Jobs is a job.Service for tests of front ends: it keeps jobs in memory and executes nothing. It is safe for concurrent
// use.
type Jobs struct {
	// Down makes every method fail as if Temporal were away.
	Down bool

	mu   sync.Mutex
	jobs []*job.Status
}

var _ job.Service = (*Jobs)(nil)

// Submit adds a running job.
func (j *Jobs) Submit(_ context.Context, spec *job.Spec) (*job.Status, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.Down {
		return nil, status.Errorf(status.Unavailable, "Temporal cannot be reached")
	}
	if spec.Model == "" {
		return nil, status.Errorf(status.InvalidArg, "the job names no model")
	}
	st := &job.Status{ID: spec.ID, Spec: *spec, State: job.Running, Created: time.Unix(1e9, 0).UTC(), Rows: job.Rows{Total: 4, Done: 2}}
	if st.ID == "" {
		st.ID = "job-" + strconv.Itoa(len(j.jobs))
	}
	j.jobs = append(j.jobs, st)
	return new(*st), nil
}

// List returns the jobs, the latest first.
func (j *Jobs) List(_ context.Context, after string, limit int) ([]job.Status, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []job.Status
	for _, st := range slices.Backward(j.jobs) {
		if all = append(all, *st); st.ID == after {
			all = nil
		}
	}
	return all[:min(limit, len(all))], nil
}

// Show returns a job.
func (j *Jobs) Show(_ context.Context, id string) (*job.Status, error) {
	return j.update(id, func(*job.Status) {})
}

// update changes a job and returns a copy of it.
func (j *Jobs) update(id string, change func(*job.Status)) (*job.Status, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, st := range j.jobs {
		if st.ID == id {
			change(st)
			return new(*st), nil
		}
	}
	return nil, status.Errorf(status.NotFound, "there is no job '%s'", id)
}

// set sets the state of a job.
func (j *Jobs) set(id string, s job.State) error {
	_, err := j.update(id, func(st *job.Status) { st.State = s })
	return err
}

// Pause makes a job paused.
func (j *Jobs) Pause(_ context.Context, id string) error { return j.set(id, job.Paused) }

// Resume makes a job running.
func (j *Jobs) Resume(_ context.Context, id string) error { return j.set(id, job.Running) }

// Cancel makes a job cancelled.
func (j *Jobs) Cancel(_ context.Context, id string) error { return j.set(id, job.Cancelled) }

// End makes a job completed, with two rows that failed.
func (j *Jobs) End(id string) error {
	_, err := j.update(id, func(st *job.Status) {
		st.State, st.Rows.Failed, st.Ended, st.Manifest = job.Completed, 2, time.Unix(1e9+1, 0).UTC(), "/out/manifest.json"
	})
	return err
}

// Failures returns the rows 1 and 3 of a job that has ended.
func (j *Jobs) Failures(_ context.Context, id string, row int64, limit int) ([]job.FailedRow, error) {
	st, err := j.update(id, func(*job.Status) {})
	if err != nil || !st.State.Final() {
		return nil, err
	}
	rows := []job.FailedRow{
		{Row: 1, Place: "in.jsonl:2", Error: "no such word", Code: status.InvalidArg.String()},
		{Row: 3, Place: "in.jsonl:4", Error: "bad JSON", Code: status.InvalidArg.String()},
	}
	rows = slices.DeleteFunc(rows, func(r job.FailedRow) bool { return r.Row < row })
	return rows[:min(limit, len(rows))], nil
}

// Result returns the manifest of a completed job.
func (j *Jobs) Result(_ context.Context, id string) (*job.Manifest, error) {
	st, err := j.update(id, func(*job.Status) {})
	switch {
	case err != nil:
		return nil, err
	case st.State != job.Completed:
		return nil, status.Errorf(status.InvalidArg, "job '%s' is %s, expected a completed one", id, st.State)
	}
	part := job.Part{Path: "part-0.jsonl", Rows: 2, Failed: 2, Errors: "failed-0.jsonl", Bytes: 20, Sum: "00"}
	return &job.Manifest{Job: id, Model: st.Spec.Model, Version: 1, Format: "jsonl", Rows: st.Rows, Parts: []job.Part{part}, Sum: "11"}, nil
}
