package durable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

// The names of what a job writes to its output, beside the parts. Readers of datasets skip names with an underscore.
//
//	part-00000007-00-2b6c....jsonl      results of chunk 7
//	_errors/00000007-00-2b6c....jsonl   its failed rows
//	_index/RUN/00000007.rows            its parts, and the keys of their rows (see sidecar)
//	_job/RUN/job.json                   jobFile
//	_job/RUN/plan/00000000.json         chunks, from 0 on
//	_job/RUN/plan.json                  written when the plan is complete
//	_job/RUN/cut.json                   while the plan is made: the page in progress, see pageWriter
//	_job/owner.json                     the job that writes to the output
//	_manifest.json                      job.Manifest
const (
	manifestKey  = "_manifest.json"
	ownerKey     = "_job/owner.json"
	jobFolder    = "_job"
	indexFolder  = "_index"
	errorFolder  = "_errors"
	partPrefix   = "part-"
	errorFormat  = "jsonl"
	maxCachedJob = 64
)

// runID shortens the ID of a workflow's run for names.
func runID(run string) string {
	sum := sha256.Sum256([]byte(run))
	return hex.EncodeToString(sum[:6])
}

func jobKey(run string) string     { return path.Join(jobFolder, runID(run), "job.json") }
func planFolder(run string) string { return path.Join(jobFolder, runID(run), "plan") }
func planKey(run string) string    { return path.Join(jobFolder, runID(run), "plan.json") }
func cutKey(run string) string     { return path.Join(jobFolder, runID(run), "cut.json") }
func pageKey(run string, first int64) string {
	return path.Join(planFolder(run), fmt.Sprintf("%08d.json", first))
}

func sidecarKey(run string, number int64) string {
	return path.Join(indexFolder, runID(run), fmt.Sprintf("%08d.rows", number))
}

// jobFile is what the activities of a job share: the order, and what check found.
type jobFile struct {
	Spec     job.Spec         `json:"spec"`
	Checked  checked          `json:"checked"`
	Columns  []dataset.Column `json:"columns"`  // of the dataset
	Selected []string         `json:"selected"` // the columns that are read
	Recipe   string           `json:"recipe"`   // see recipe
}

// recipe identifies what else than its content makes the result of a row: the model and what is written of it.
func recipe(s *job.Spec, fingerprint, format string) (string, error) {
	text, err := json.Marshal([]any{fingerprint, s.Columns, s.Results, s.Keep, format})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12]), nil
}

// data is a job as the activities of this worker use it. It is safe for concurrent use.
type data struct {
	place
	jobFile
	set      *dataset.Set
	out      *dataset.Output
	errs     *dataset.Output // the same place, with the format of failed rows
	desc     *infer.Description
	binder   *dataset.Binder
	renderer *dataset.Renderer
	used     time.Time

	mu    sync.Mutex
	pages []int64 // the first chunk of each page
	page  []dataset.Chunk
	first int64 // of page

	earlierMu sync.Mutex // held while earlier is collected
	earlier   *earlier
}

// open prepares the places and the binding of a job. columns are those of the dataset; nil reads them.
func (d *data) open(ctx context.Context, s *Settings) (err error) {
	if err = d.outputs(ctx, s); err != nil {
		return err
	}
	if d.desc, err = s.Catalog.Describe(d.Spec.Model, cmpVersion(d.Checked.Version, d.Spec.Version)); err != nil {
		return waits(err)
	}
	if d.desc.Decoupled {
		return status.Errorf(status.Unsupported, "unsupported: model '%s' is decoupled: it may send any number of responses for a row, and a job needs one", d.Spec.Model)
	}
	if d.set, err = dataset.Open(ctx, d.Spec.Input, s.Data); err != nil {
		return err
	}
	if d.Columns == nil {
		if d.Columns, err = d.set.Columns(ctx); err != nil {
			return err
		}
	}
	if len(d.Columns) == 0 {
		d.Columns = expected(d.desc, &d.Spec)
	}
	if d.binder, err = dataset.NewBinder(d.desc, &d.Spec, d.Columns); err != nil {
		return err
	}
	if d.renderer, err = dataset.NewRenderer(d.desc, &d.Spec, d.binder, d.Columns); err != nil {
		return err
	}
	d.set = d.set.Select(d.binder.Columns()...)
	return d.out.Check(d.renderer.Columns())
}

// expected returns the columns that a dataset without rows would need: a job over no rows completes.
func expected(m *infer.Description, s *job.Spec) (list []dataset.Column) {
	names := slices.Clone(s.Keep)
	for i := range m.Inputs {
		name := m.Inputs[i].Name
		if column := s.Columns[name]; column != "" {
			name = column
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		list = append(list, dataset.Column{Name: name})
	}
	return list
}

// outputs opens the output, which is all that the activities need that do not read the dataset.
func (d *data) outputs(ctx context.Context, s *Settings) (err error) {
	if d.out, err = dataset.OpenOutput(ctx, d.Output, s.Data); err != nil {
		return err
	}
	d.errs, err = dataset.OpenOutput(ctx, job.Place{URI: d.Output.URI, Format: errorFormat}, s.Data)
	return err
}

func cmpVersion(pinned, asked int64) int64 {
	if pinned != 0 {
		return pinned
	}
	return asked
}

// data returns a job that check has accepted. It is kept for the next chunk.
func (a *activities) data(ctx context.Context, p place) (*data, error) {
	a.mu.Lock()
	d := a.jobs[p.Run]
	if d != nil {
		d.used = time.Now()
	}
	a.mu.Unlock()
	if d != nil {
		return d, nil
	}
	d = &data{place: p, used: time.Now()}
	if err := d.read(ctx, a.s); err != nil {
		return nil, err
	}
	if err := d.open(ctx, a.s); err != nil {
		return nil, err
	}
	return a.store(d), nil
}

// store keeps a job, unless it is kept already, and returns the one that is kept.
func (a *activities) store(d *data) *data {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other := a.jobs[d.Run]; other != nil {
		return other
	}
	if len(a.jobs) >= maxCachedJob {
		a.forget()
	}
	a.jobs[d.Run] = d
	return d
}

// read gets the job's file.
func (d *data) read(ctx context.Context, s *Settings) error {
	if err := d.outputs(ctx, s); err != nil {
		return err
	}
	text, err := d.out.Get(ctx, jobKey(d.Run))
	if err != nil {
		return err
	}
	if err = json.Unmarshal(text, &d.jobFile); err != nil {
		return status.Errorf(status.InvalidArg, "'%s' is damaged: %w", d.out.Name(jobKey(d.Run)), err)
	}
	return nil
}

// forget drops the job that was not used for the longest time.
func (a *activities) forget() {
	oldest := ""
	for run, d := range a.jobs {
		if oldest == "" || d.used.Before(a.jobs[oldest].used) {
			oldest = run
		}
	}
	delete(a.jobs, oldest) // chunks in execution may still use it: its files are closed by the garbage collector
}

// chunk returns an entry of the plan.
func (d *data) chunk(ctx context.Context, number int64) (*dataset.Chunk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pages == nil {
		pages, err := d.listPages(ctx)
		if err != nil {
			return nil, err
		}
		d.pages = pages
	}
	i, exact := slices.BinarySearch(d.pages, number)
	if !exact {
		i--
	}
	if i < 0 {
		return nil, status.Errorf(status.NotFound, "the plan of the job in '%s' has no chunk %d", d.out.Name(planFolder(d.Run)), number)
	}
	if d.page == nil || d.first != d.pages[i] {
		page, err := d.readPage(ctx, d.pages[i])
		if err != nil {
			return nil, err
		}
		d.page, d.first = page, d.pages[i]
	}
	if number-d.first >= int64(len(d.page)) {
		return nil, status.Errorf(status.NotFound, "the plan of the job in '%s' has no chunk %d", d.out.Name(planFolder(d.Run)), number)
	}
	c := d.page[number-d.first]
	return &c, nil
}

// listPages returns the first chunk of each page of the plan.
func (d *data) listPages(ctx context.Context) ([]int64, error) {
	var pages []int64
	for o, err := range d.out.List(ctx, planFolder(d.Run)) {
		if err != nil {
			return nil, err
		}
		if n, err := strconv.ParseInt(strings.TrimSuffix(path.Base(o.Key), ".json"), 10, 64); err == nil {
			pages = append(pages, n)
		}
	}
	slices.Sort(pages)
	return pages, nil
}

func (d *data) readPage(ctx context.Context, first int64) ([]dataset.Chunk, error) {
	text, err := d.out.Get(ctx, pageKey(d.Run, first))
	if err != nil {
		return nil, err
	}
	var page []dataset.Chunk
	if err = json.Unmarshal(text, &page); err != nil {
		return nil, status.Errorf(status.InvalidArg, "'%s' is damaged: %w", d.out.Name(pageKey(d.Run, first)), err)
	}
	return page, nil
}
