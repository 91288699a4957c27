package durable

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

// The bounds of lists.
const (
	maxJobs  = 10_000 // that List looks at
	pageJobs = 500
	maxList  = 1000 // jobs or rows of one call
)

// List returns jobs. See job.Service. A job may be listed some moments after Submit.
func (s *Service) List(ctx context.Context, after string, limit int) ([]job.Status, error) {
	ctx, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	if limit <= 0 || limit > maxList {
		limit = maxList
	}
	all, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	if after != "" {
		i := slices.IndexFunc(all, func(j job.Status) bool { return j.ID == after })
		if i < 0 {
			return nil, status.Errorf(status.NotFound, "job '%s' is unknown", after)
		}
		all = all[i+1:]
	}
	return all[:min(len(all), limit)], nil
}

// all returns the jobs that Temporal lists, the latest first.
func (s *Service) all(ctx context.Context) ([]job.Status, error) {
	var all []job.Status
	seen := map[string]bool{}
	for token, more := []byte(nil), true; more && len(all) < maxJobs; more = len(token) > 0 {
		page, err := s.s.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			PageSize: pageJobs, NextPageToken: token,
			Query: "WorkflowType = " + strconv.Quote(workflowType) + ` AND ExecutionStatus != "ContinuedAsNew"`,
		})
		if err != nil {
			return nil, s.coded(err, "")
		}
		for _, info := range page.GetExecutions() {
			if st, _ := s.fromInfo(info); !seen[st.ID] { // the latest of several runs is first
				seen[st.ID] = true
				all = append(all, *st)
			}
		}
		token = page.GetNextPageToken()
	}
	slices.SortStableFunc(all, func(a, b job.Status) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// Result returns the manifest of a completed job. See job.Service.
func (s *Service) Result(ctx context.Context, id string) (*job.Manifest, error) {
	st, err := s.Show(ctx, id)
	if err != nil {
		return nil, err
	}
	if st.State != job.Completed {
		return nil, status.Errorf(status.InvalidArg, "job '%s' has no result: it is %s", id, st.State)
	}
	out, err := dataset.OpenOutput(ctx, st.Spec.Output, s.s.Data)
	if err != nil {
		return nil, err
	}
	return readManifest(ctx, out, id)
}

// readManifest returns the manifest of an output, if it is that of a job.
func readManifest(ctx context.Context, out *dataset.Output, id string) (*job.Manifest, error) {
	text, err := out.Get(ctx, manifestKey)
	if err != nil {
		return nil, err
	}
	var m job.Manifest
	if err = json.Unmarshal(text, &m); err != nil {
		return nil, status.Errorf(status.Internal, "the manifest '%s' is damaged: %w", out.Name(manifestKey), err)
	}
	if m.Job != id {
		return nil, status.Errorf(status.NotFound, "the results of job '%s' were replaced by those of job '%s'", id, m.Job)
	}
	return &m, nil
}

// Failures returns failed rows. See job.Service.
func (s *Service) Failures(ctx context.Context, id string, row int64, limit int) ([]job.FailedRow, error) {
	if limit <= 0 || limit > maxList {
		limit = maxList
	}
	st, err := s.Show(ctx, id)
	if err != nil {
		return nil, err
	}
	if st.Rows.Failed == 0 {
		return []job.FailedRow{}, nil
	}
	out, err := dataset.OpenOutput(ctx, job.Place{URI: st.Spec.Output.URI, Format: errorFormat}, s.s.Data)
	if err != nil {
		return nil, err
	}
	files, err := failureFiles(ctx, out, st, row)
	if err != nil {
		return nil, err
	}
	rows := []job.FailedRow{}
	for _, file := range files {
		for r, err := range out.Rows(ctx, file, 0, failureColumns) {
			if err != nil {
				if err = ignore(err, status.NotFound); err != nil { // replaced meanwhile
					return nil, err
				}
				break
			}
			if f := failedRow(r); f.Row >= row {
				rows = append(rows, f)
			}
			if len(rows) >= limit {
				return rows, nil
			}
		}
	}
	return rows, nil
}

// failureFiles returns the files with the failed rows from one on, in the order of the rows.
func failureFiles(ctx context.Context, out *dataset.Output, st *job.Status, row int64) (files []string, err error) {
	var parts []job.Part
	if st.State == job.Completed {
		m, err := readManifest(ctx, out, st.ID)
		if err != nil {
			return nil, err
		}
		parts = m.Parts
	} else {
		for s, err := range sidecars(ctx, out, "") {
			if err != nil {
				return nil, err
			}
			if s.Job == st.ID {
				for i := range s.Parts {
					parts = append(parts, s.Parts[i].Part)
				}
			}
		}
		slices.SortFunc(parts, func(a, b job.Part) int { return cmp.Compare(a.First, b.First) })
	}
	for i := range parts {
		if parts[i].Errors != "" && parts[i].First+parts[i].Rows+parts[i].Failed > row {
			files = append(files, parts[i].Errors)
		}
	}
	return files, nil
}

// failedRow reads a row of a file of failed rows.
func failedRow(r *dataset.Row) (f job.FailedRow) {
	for i, to := range []any{&f.Row, &f.Place, &f.Error, &f.Code, &f.Reason, &f.Retryable} {
		if r.Err == nil {
			_ = json.Unmarshal(r.Cells[i].Data, to) // written by this package
		}
	}
	return f
}
