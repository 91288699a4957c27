package durable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/tutti-server/tutti/internal/dataset"
)

// chunk is the activity that executes one chunk: it sends the rows without a result to the model, and writes the results to
// parts. It may be called any number of times for a chunk, also at the same time.
func (a *activities) chunk(ctx context.Context, o chunkOrder) (*chunkDone, error) {
	ctx, h := a.beat(ctx, o.Number)
	defer h.stop()
	begin := time.Now()
	info := activity.GetInfo(ctx)
	done := &chunkDone{Retries: int64(info.Attempt) - 1, Waited: max(info.StartedTime.Sub(info.ScheduledTime).Milliseconds(), 0)}
	if (info.Attempt > 1 || done.Waited > time.Second.Milliseconds()) && a.paused(ctx, o.Job) {
		done.Paused = true
		return done, nil
	}
	d, err := a.data(ctx, o.place)
	if err != nil {
		return nil, h.cause(fault(err))
	}
	token := fmt.Sprint(info.WorkflowExecution.RunID, info.ActivityID, info.Attempt)
	c := &chunkRun{a: a, d: d, heart: h, token: token, worker: workerName()}
	side, err := c.run(ctx, o.Number)
	if err != nil {
		return nil, h.cause(fault(err))
	}
	n := side.count()
	done.Done, done.Failed, done.Reused, done.Error = n.Done, n.Failed, n.Reused, side.Error
	done.Took = time.Since(begin).Milliseconds()
	return done, nil
}

// workerName identifies this worker in messages.
func workerName() string {
	host, _ := os.Hostname() // empty if it has no name
	return host + ":" + strconv.Itoa(os.Getpid())
}

// paused reports whether a job was paused while a chunk waited in its task queue.
func (a *activities) paused(ctx context.Context, id string) bool {
	ctx, done := context.WithTimeout(ctx, queryTimeout)
	defer done()
	v, err := a.s.Client.QueryWorkflow(ctx, id, "", queryProgress)
	var p progress
	return err == nil && v.Get(&p) == nil && p.Paused
}

// chunkRun is an attempt at a chunk.
type chunkRun struct {
	a      *activities
	d      *data
	heart  *heart
	token  string
	worker string
}

// run returns the sidecar of the chunk when its results are there.
func (r *chunkRun) run(ctx context.Context, number int64) (*sidecar, error) {
	if err := r.sameModel(); err != nil {
		return nil, err
	}
	c, err := r.d.chunk(ctx, number)
	if err != nil {
		return nil, err
	}
	side, err := r.begun(ctx, c)
	if err != nil || side.whole() {
		return side, err
	}
	e, err := r.d.earlierResults(ctx)
	if err != nil {
		return nil, err
	}
	if same := e.whole[chunkID{c.First, c.Rows, c.Sum}]; same != nil && side.Next == 0 {
		if kept, err := r.keep(ctx, same, side); err != nil || kept {
			return side, err
		}
	}
	if err = r.execute(ctx, c, side, e); err != nil {
		return nil, err
	}
	return side, nil
}

// sameModel refuses a model that is not the one that the job was started with.
func (r *chunkRun) sameModel() error {
	c := &r.d.Checked
	have, err := r.a.s.Fingerprint(r.d.Spec.Model, c.Version)
	switch {
	case err != nil:
		return waits(err)
	case have != c.Fingerprint:
		return otherModel(r.d.Spec.Model, c.Version, have, c.Fingerprint, r.worker, r.d.Spec.OtherModel)
	}
	return nil
}

// begun returns the sidecar with the parts that earlier attempts of this run have written, if they are intact.
func (r *chunkRun) begun(ctx context.Context, c *dataset.Chunk) (*sidecar, error) {
	side, err := readSidecar(ctx, r.d.out, sidecarKey(r.d.Run, c.Number))
	if err != nil {
		return nil, err
	}
	if side != nil && side.First == c.First && side.Rows == c.Rows && side.Sum == c.Sum {
		if ok, err := side.intact(ctx, r.d.out); err != nil || ok {
			return side, err
		}
	}
	return &sidecar{
		Job: r.d.Job, Run: r.d.Run, Recipe: r.d.Recipe, ChunkRows: r.d.Checked.ChunkRows,
		Number: c.Number, First: c.First, Rows: c.Rows, Sum: c.Sum,
	}, nil
}

// keep takes the parts of an earlier run as they are.
func (r *chunkRun) keep(ctx context.Context, same, side *sidecar) (bool, error) {
	full, err := readSidecar(ctx, r.d.out, sidecarKey(same.Run, same.Number))
	if err != nil || full == nil {
		return false, err
	}
	if ok, err := full.intact(ctx, r.d.out); err != nil || !ok {
		return false, err
	}
	side.Parts, side.keys, side.Next = full.Parts, full.keys, full.Next
	for i := range side.Parts {
		side.Parts[i].Reused = side.Parts[i].Rows
	}
	return true, side.write(ctx, r.d.out)
}

// execute runs the rows that the sidecar does not cover.
func (r *chunkRun) execute(ctx context.Context, c *dataset.Chunk, side *sidecar, e *earlier) error {
	rows, reused, err := r.rows(ctx, c, side.Next, e)
	if err != nil {
		return err
	}
	outer := ctx
	lasting, release := lasting(ctx)
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &sender{a: r.a, d: r.d, gate: r.a.gate(r.d.desc)}
	units := make(chan *unit, maxUnits)
	go s.send(ctx, rows, reused, units)
	w := &results{d: r.d, side: side, token: r.token, check: r.sameModel, segment: r.a.segment}
	defer w.abort()
	turn := r.a.slice()
	for u := range units {
		<-u.done
		if err == nil {
			err = u.err
		}
		if err == nil {
			err = turn.next(lasting)
		}
		if err == nil {
			err = r.write(lasting, w, u)
		}
		turn.yield()
		u.release()
		if err != nil {
			cancel() // and receive the rest
		}
	}
	if err != nil {
		if errors.Is(context.Cause(outer), errStopping) || w.worthwhile() && outer.Err() == nil {
			_ = w.commit(lasting) // err is what counts: without the part, the next attempt begins further in front
		}
		return err
	}
	if err = w.commit(ctx); err != nil {
		return err
	}
	if !side.whole() {
		return fmt.Errorf("chunk %d has %d rows, and %d were read", c.Number, c.Rows, side.Next)
	}
	return nil
}

// write writes a unit, and ends the part of a chunk that takes long.
func (r *chunkRun) write(ctx context.Context, w *results, u *unit) error {
	if err := w.unit(ctx, u); err != nil {
		return err
	}
	r.heart.set(w.side.Next + w.rows)
	if w.due() && w.side.Next+w.rows < w.side.Rows {
		return w.commit(ctx)
	}
	return nil
}

// rows returns the rows of a chunk from one on, and the earlier results of some of them.
func (r *chunkRun) rows(ctx context.Context, c *dataset.Chunk, from int64, e *earlier) (iter.Seq2[*dataset.Row, error], map[int64][]dataset.Cell, error) {
	rest := func(yield func(*dataset.Row, error) bool) {
		for row, err := range r.d.set.Read(ctx, c) {
			if err == nil && row.Number < c.First+from {
				continue
			}
			if !yield(row, err) {
				return
			}
		}
	}
	if e.table == nil {
		return rest, nil, nil
	}
	var list []*dataset.Row
	for row, err := range rest {
		if err != nil {
			return nil, nil, err
		}
		list = append(list, row)
	}
	names := make([]string, 0, len(r.d.renderer.Columns()))
	for _, col := range r.d.renderer.Columns() {
		names = append(names, col.Name)
	}
	reused, err := e.results(ctx, r.d.out, names, list)
	all := func(yield func(*dataset.Row, error) bool) {
		for _, row := range list {
			if !yield(row, nil) {
				return
			}
		}
	}
	return all, reused, errors.Join(err)
}
