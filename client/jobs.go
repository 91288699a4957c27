package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/tutti-server/tutti/core/job"
)

// Jobs are the durable jobs of a server, which must have been started with --jobs. It is safe for concurrent use. A
// refusal by the server is an *Error.
type Jobs struct{ c *HTTP }

var _ job.Service = (*Jobs)(nil)

// Jobs returns the durable jobs of the server. For example:
//
//	jobs := client.NewHTTP("http://127.0.0.1:8000", nil).Jobs()
//	st, err := jobs.Submit(ctx, &job.Spec{Model: "text", Input: job.Place{URI: "/data/in.jsonl"}, Output: job.Place{URI: "/data/out"}})
func (c *HTTP) Jobs() *Jobs { return &Jobs{c} }

// jobPath returns the path of a job, or of what is below it.
func jobPath(id, rest string) string { return "/v2/jobs/" + url.PathEscape(id) + rest }

// Submit starts a job.
func (j *Jobs) Submit(ctx context.Context, spec *job.Spec) (*job.Status, error) {
	st := &job.Status{}
	return st, j.c.call(ctx, "/v2/jobs", spec, st)
}

// List returns the jobs, the latest first: at most limit of them, those that follow the job after if it is not empty.
func (j *Jobs) List(ctx context.Context, after string, limit int) ([]job.Status, error) {
	var page struct{ Jobs []job.Status }
	query := url.Values{"limit": {strconv.Itoa(limit)}, "after": {after}}
	return page.Jobs, j.c.call(ctx, "/v2/jobs?"+query.Encode(), nil, &page)
}

// Show returns a job.
func (j *Jobs) Show(ctx context.Context, id string) (*job.Status, error) {
	st := &job.Status{}
	return st, j.c.call(ctx, jobPath(id, ""), nil, st)
}

// change posts to a path below a job, without a body.
func (j *Jobs) change(ctx context.Context, id, verb string) (*job.Status, error) {
	st := &job.Status{}
	return st, j.c.call(ctx, jobPath(id, verb), struct{}{}, st)
}

// Pause stops a job from starting more chunks.
func (j *Jobs) Pause(ctx context.Context, id string) error {
	_, err := j.change(ctx, id, "/pause")
	return err
}

// Resume continues a paused job.
func (j *Jobs) Resume(ctx context.Context, id string) error {
	_, err := j.change(ctx, id, "/resume")
	return err
}

// Cancel ends a job.
func (j *Jobs) Cancel(ctx context.Context, id string) error {
	_, err := j.change(ctx, id, "/cancel")
	return err
}

// Retry submits an ended job again, and returns the new job: only the rows without a result are executed.
func (j *Jobs) Retry(ctx context.Context, id string) (*job.Status, error) {
	return j.change(ctx, id, "/retry")
}

// Failures returns rows that have failed: at most limit of them, from row on.
func (j *Jobs) Failures(ctx context.Context, id string, row int64, limit int) ([]job.FailedRow, error) {
	var page struct{ Rows []job.FailedRow }
	query := url.Values{"limit": {strconv.Itoa(limit)}, "row": {strconv.FormatInt(row, 10)}}
	return page.Rows, j.c.call(ctx, jobPath(id, "/failures?"+query.Encode()), nil, &page)
}

// Result returns the manifest of a completed job.
func (j *Jobs) Result(ctx context.Context, id string) (*job.Manifest, error) {
	m := &job.Manifest{}
	return m, j.c.call(ctx, jobPath(id, "/result"), nil, m)
}
