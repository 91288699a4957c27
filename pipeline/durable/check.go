package durable

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

// The rows that the check sends to the model, and the chunks that it aims at.
const (
	firstRows    = 32
	chunkTime    = 3 // seconds
	minChunkRows = 64
	maxChunkRows = 50_000 // a chunk costs Temporal about 30 ms of CPU time
)

// check is the activity that checks whether a job can run, and pins it to the model's content: it binds the columns of the
// dataset to the inputs, sends the first rows to the model, and claims the output.
func (a *activities) check(ctx context.Context, o checkOrder) (*checked, error) {
	ctx, h := a.beat(ctx, -1)
	defer h.stop()
	d := &data{place: o.place, jobFile: jobFile{Spec: o.Spec}}
	err := a.checkJob(ctx, d)
	return &d.Checked, h.cause(fault(err))
}

func (a *activities) checkJob(ctx context.Context, d *data) (err error) {
	if err = d.open(ctx, a.s); err != nil {
		return err
	}
	c := &d.Checked
	c.Version, d.Selected = d.desc.Version, d.binder.Columns()
	if c.Fingerprint, err = a.s.Fingerprint(d.Spec.Model, c.Version); err != nil {
		return waits(err)
	}
	if d.Recipe, err = recipe(&d.Spec, c.Fingerprint, d.out.Format()); err != nil {
		return err
	}
	if err = a.claim(ctx, d); err != nil {
		return err
	}
	rate, err := a.tryFirst(ctx, d)
	if err != nil {
		return err
	}
	if c.ChunkRows, err = d.chunkRows(ctx, rate); err != nil {
		return err
	}
	text, err := json.Marshal(&d.jobFile)
	if err != nil {
		return err
	}
	if err = d.out.Put(ctx, jobKey(d.Run), text); err != nil {
		return err
	}
	d.used = time.Now()
	a.store(d)
	return nil
}

// tryFirst sends the first rows to the model, and returns how many it executed in a second. It fails if all of them do.
func (a *activities) tryFirst(ctx context.Context, d *data) (rate float64, err error) {
	all, err := d.set.Head(ctx, min(firstRows, max(2*d.desc.MaxBatch, 4)))
	if err != nil {
		return 0, err
	}
	rows, err := d.withoutResults(ctx, all)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	s := &sender{a: a, d: d, gate: a.gate(d.desc)}
	units := make(chan *unit, maxUnits)
	begin := time.Now()
	go s.send(ctx, seq(rows), nil, units)
	var firstError string
	good := 0
	for u := range units {
		<-u.done
		if err == nil {
			err = u.err
		}
		for i := range u.entries {
			switch e := &u.entries[i]; {
			case e.err == nil:
				good++
			case firstError == "":
				firstError = e.row.Place() + ": " + text(e.err)
			}
		}
		for _, r := range u.answers {
			if err == nil {
				err = d.renderer.Render(r.resp.Outputs, r.rows, func(*dataset.Row, []dataset.Cell) error { return nil })
			}
		}
		u.release()
	}
	if err != nil {
		return 0, err
	}
	if good == 0 && len(rows) == len(all) {
		return 0, status.Errorf(status.InvalidArg, "none of the first %d rows can be executed; the first: %s", len(rows), firstError)
	}
	return float64(good) / time.Since(begin).Seconds(), nil
}

// withoutResults returns the rows that have no earlier result.
func (d *data) withoutResults(ctx context.Context, all []*dataset.Row) (rows []*dataset.Row, err error) {
	e, err := d.earlierResults(ctx)
	if err != nil || e.table == nil {
		return all, err
	}
	var buf []byte
	for _, row := range all {
		_, ok, b, err := e.table.find(row.Key, buf)
		if err != nil {
			return nil, storage(err)
		}
		if buf = b; !ok {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func seq(rows []*dataset.Row) func(yield func(*dataset.Row, error) bool) {
	return func(yield func(*dataset.Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// chunkRows returns the rows of a chunk: those that the spec asks for, those of an earlier run, whose chunks are then the
// same, or those that take some seconds.
func (d *data) chunkRows(ctx context.Context, rate float64) (int64, error) {
	if d.Spec.ChunkRows > 0 {
		return d.Spec.ChunkRows, nil
	}
	if !d.Spec.Overwrite {
		for s, err := range sidecars(ctx, d.out, d.Run) {
			if err != nil {
				return 0, err
			}
			if s.Recipe == d.Recipe {
				return s.ChunkRows, nil
			}
		}
	}
	return min(max(int64(rate*chunkTime), minChunkRows), maxChunkRows), nil
}

// owner is the job that writes to an output.
type owner struct {
	Job string `json:"job"`
	Run string `json:"run"`
}

// claim refuses an output that has other files than those of jobs, or that another job writes to.
func (a *activities) claim(ctx context.Context, d *data) error {
	if !d.Spec.Overwrite {
		for o, err := range d.out.List(ctx, "") {
			if err != nil {
				return err
			}
			if !ours(o.Key) {
				return status.Errorf(status.InvalidArg, "the output '%s' has the file '%s', which is of no job; name an empty folder, or set overwrite to replace its content", d.Spec.Output.URI, o.Key)
			}
		}
	}
	text, err := d.out.Get(ctx, ownerKey)
	if err != nil && status.CodeOf(err) != status.NotFound {
		return err
	}
	var other owner
	if err == nil && json.Unmarshal(text, &other) == nil && other.Job != d.Job {
		if running, err := a.running(ctx, other.Job); err != nil {
			return waits(err)
		} else if running {
			return status.Errorf(status.InvalidArg, "job '%s' writes to the output '%s'; wait for its end, or name another folder", other.Job, d.Spec.Output.URI)
		}
	}
	if text, err = json.Marshal(owner{d.Job, d.Run}); err != nil {
		return err
	}
	return d.out.Put(ctx, ownerKey, text)
}

// ours reports whether an object has the name of one that jobs write.
func ours(key string) bool {
	top, _, below := strings.Cut(key, "/")
	if below {
		return slices.Contains([]string{jobFolder, indexFolder, errorFolder}, top)
	}
	return key == manifestKey || strings.HasPrefix(key, partPrefix)
}

// running reports whether a job has not ended.
func (a *activities) running(ctx context.Context, id string) (bool, error) {
	d, err := a.s.Client.DescribeWorkflowExecution(ctx, id, "")
	if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
		return false, nil
	}
	return d.GetWorkflowExecutionInfo().GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING, err
}
