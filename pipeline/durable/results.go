package durable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

// segmentTime is how often a chunk that takes long ends a part and begins the next one.
const segmentTime = 10 * time.Second

// results writes the parts of a chunk. It is used by one goroutine.
type results struct {
	d       *data
	side    *sidecar
	token   string       // makes the names of this attempt's parts unique
	check   func() error // refuses results of another model, before they are committed
	segment time.Duration

	part   *dataset.Part
	failed *dataset.Part
	entry  partEntry
	rows   int64     // of the chunk in the part, failed ones included
	begun  time.Time // of the part
	err    string
}

// name returns the name of the next part: of its chunk, its content and the attempt that writes it.
func (r *results) name() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{r.side.Sum, r.d.Recipe, r.token, strconv.Itoa(len(r.side.Parts))}, "\x00")))
	return fmt.Sprintf("%08d-%02d-%s", r.side.Number, len(r.side.Parts), hex.EncodeToString(sum[:8]))
}

// open begins a part.
func (r *results) open(ctx context.Context) (err error) {
	if r.part != nil {
		return nil
	}
	r.part, err = r.d.out.Part(ctx, partPrefix+r.name(), r.d.renderer.Columns())
	r.entry = partEntry{Part: job.Part{First: r.side.First + r.side.Next}}
	r.begun = time.Now()
	return err
}

// unit writes the rows of a unit that is done, in their order.
func (r *results) unit(ctx context.Context, u *unit) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	at := 0
	others := func(until *dataset.Row) error { // the rows that were not sent
		for ; at < len(u.entries) && u.entries[at].row != until; at++ {
			if err := r.other(ctx, &u.entries[at]); err != nil {
				return err
			}
		}
		return nil
	}
	for _, a := range u.answers {
		err := r.d.renderer.Render(a.resp.Outputs, a.rows, func(row *dataset.Row, cells []dataset.Cell) error {
			if err := others(row); err != nil {
				return err
			}
			at++
			return r.row(row, cells)
		})
		if err != nil {
			return err
		}
	}
	return others(nil)
}

// row writes the result of a row.
func (r *results) row(row *dataset.Row, cells []dataset.Cell) error {
	r.rows++
	r.side.keys = append(r.side.keys, row.Key)
	return r.part.Write(row.Number, cells)
}

// other writes a row that was not sent, or that failed.
func (r *results) other(ctx context.Context, e *entry) error {
	if e.cells != nil {
		r.entry.Reused++
		return r.row(e.row, e.cells)
	}
	if e.err == nil {
		return status.Errorf(status.Internal, "row %d has no result", e.row.Number)
	}
	return r.fail(ctx, e)
}

// The columns of a failed row, in front of those of the dataset.
var failureColumns = []string{"row", "place", "error", "status", "reason", "retryable"}

// fail writes a failed row, with its content.
func (r *results) fail(ctx context.Context, e *entry) (err error) {
	if r.failed == nil {
		if r.failed, err = r.d.errs.Part(ctx, path.Join(errorFolder, r.name()), r.d.failureColumns()); err != nil {
			return err
		}
	}
	f := job.FailedRow{
		Row: e.row.Number, Place: e.row.Place(), Error: text(e.err), Code: codeName(e.err), Reason: string(status.ReasonOf(e.err)), Retryable: status.Retryable(e.err),
	}
	cells := make([]dataset.Cell, 0, len(failureColumns)+len(e.row.Cells))
	for _, v := range []any{f.Row, f.Place, f.Error, f.Code, f.Reason, f.Retryable} {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		cells = append(cells, dataset.Cell{Kind: dataset.JSON, Data: text})
	}
	cells = append(cells, e.row.Cells...)
	cells = append(cells, make([]dataset.Cell, len(failureColumns)+len(r.d.Selected)-len(cells))...) // of a row that cannot be read
	if r.err == "" {
		r.err = fmt.Sprintf("%s: %s", f.Place, f.Error)
	}
	r.rows++
	r.entry.Failed++
	return r.failed.Write(e.row.Number, cells)
}

// codeName returns the name of an error's code as gRPC spells it. For example, INVALID_ARGUMENT.
func codeName(err error) string {
	var b strings.Builder
	for i, c := range status.CodeOf(err).GRPC().String() {
		if i > 0 && 'A' <= c && c <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(c)
	}
	return strings.ToUpper(b.String())
}

// failureColumns are those of the file of failed rows. A column of the dataset with the name of another one is renamed.
func (d *data) failureColumns() []dataset.Column {
	var list []dataset.Column
	for _, name := range failureColumns {
		list = append(list, dataset.Column{Name: name, Kind: dataset.JSON})
	}
	for _, name := range d.Selected {
		c := dataset.Column{Name: name}
		if i := slices.IndexFunc(d.Columns, func(c dataset.Column) bool { return c.Name == name }); i >= 0 {
			c = d.Columns[i]
		}
		if slices.Contains(failureColumns, name) {
			c.Name = "data." + name
		}
		list = append(list, c)
	}
	return list
}

// due reports whether the part has been written to for so long that it should be ended.
func (r *results) due() bool { return r.part != nil && time.Since(r.begun) >= r.segment }

// worthwhile reports whether the part of an attempt that failed has results that took some time.
func (r *results) worthwhile() bool { return r.part != nil && time.Since(r.begun) >= r.segment/10 }

// commit ends the part and records it in the sidecar. The rows in it are not executed again.
func (r *results) commit(ctx context.Context) error {
	if r.part == nil {
		return nil
	}
	if ctx.Err() != nil { // another attempt may have ended the chunk
		return ctx.Err()
	}
	if err := r.check(); err != nil {
		return err
	}
	e := &r.entry
	if r.failed != nil {
		info, err := r.failed.Close()
		if r.failed = nil; err != nil {
			return err
		}
		e.Errors = info.Path
	}
	info, err := r.part.Close()
	if r.part = nil; err != nil {
		return err
	}
	e.Path, e.Rows, e.Bytes, e.Part.Sum, e.Sum = info.Path, info.Rows, info.Bytes, info.SHA256, info.Sum.String()
	r.side.Parts = append(r.side.Parts, *e)
	r.side.Next += r.rows
	if r.side.Error == "" {
		r.side.Error = r.err
	}
	r.rows = 0
	return r.side.write(ctx, r.d.out)
}

// abort drops the part that is not ended.
func (r *results) abort() {
	var err error
	if r.part != nil {
		err = r.part.Abort()
	}
	if r.failed != nil {
		err = errors.Join(err, r.failed.Abort())
	}
	r.part, r.failed = nil, nil
	_ = err // a temporary file that is left is removed with the job
}
