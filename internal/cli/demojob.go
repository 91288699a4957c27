package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/job"
)

const (
	temporalProgram = "tutti-temporal"
	demoRows        = 200
	demoJobTime     = 2 * time.Minute
)

// prepareJobs makes the folder of the demonstration's jobs, if the Temporal server was built beside this program, and returns the
// options of the server for them.
func (d *demonstration) prepareJobs() ([]string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(self), temporalProgram)
	if _, err := os.Stat(program); err != nil {
		return nil, nil //nolint:nilerr // it is not built
	}
	if d.folder, err = os.MkdirTemp("", "tutti-demo"); err != nil {
		return nil, err
	}
	return []string{"--jobs", "--data-dir=" + filepath.Join(d.folder, "data"), "--temporal-program=" + program}, nil
}

// showJob runs a small job: the first example with one input of one row, over many rows.
func (d *demonstration) showJob(ctx context.Context) error {
	if d.folder == "" {
		d.say("A job over a dataset needs the Temporal server, which 'make temporal' builds once, in some minutes.\n")
		return nil
	}
	for i := range d.examples {
		row, ok := demoRow(&d.examples[i])
		if !ok {
			continue
		}
		input := filepath.Join(d.folder, "rows.jsonl")
		if err := os.WriteFile(input, []byte(strings.Repeat(string(row)+"\n", demoRows)), 0o600); err != nil {
			return err
		}
		ctx, done := context.WithTimeout(ctx, demoJobTime)
		defer done()
		return d.runJob(ctx, &job.Spec{
			ID: "demo", Model: d.examples[i].Request.Model,
			Input: job.Place{URI: input}, Output: job.Place{URI: filepath.Join(d.folder, "results")},
		})
	}
	return nil
}

// demoRow returns the inputs of an example as a row of a dataset. It has none if the request has not exactly one row, or if JSON cannot
// hold it.
func demoRow(e *Example) ([]byte, bool) {
	row := map[string]any{}
	for i := range e.Request.Inputs {
		in := &e.Request.Inputs[i]
		text, err := json.Marshal(in)
		var parts struct {
			Shape []int64
			Data  json.RawMessage
		}
		if err != nil || json.Unmarshal(text, &parts) != nil || len(parts.Data) == 0 || len(parts.Shape) < 2 || parts.Shape[0] != 1 {
			return nil, false
		}
		row[in.Name] = parts.Data
	}
	text, err := json.Marshal(row)
	return text, err == nil && len(row) > 0
}

// runJob submits a job as soon as Temporal is there, waits for its end, and prints it.
func (d *demonstration) runJob(ctx context.Context, spec *job.Spec) error {
	jobs := client.NewHTTP("http://"+d.s.HTTPAddress(), nil).Jobs()
	d.say("== a job: %s over %d rows", spec.Model, demoRows)
	tick := time.NewTicker(pollJob)
	defer tick.Stop()
	for {
		_, err := jobs.Submit(ctx, spec)
		refusal, refused := errors.AsType[*client.Error](err)
		switch {
		case err == nil:
			return d.awaitJob(ctx, jobs, spec)
		case !refused || !strings.HasPrefix(refusal.Status, "503"):
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the job of the demonstration: %w", err)
		case <-tick.C:
		}
	}
}

func (d *demonstration) awaitJob(ctx context.Context, jobs *client.Jobs, spec *job.Spec) error {
	st, err := waitJob(ctx, jobs, spec.ID, true, func(*job.Status) {})
	if err != nil {
		return err
	}
	if st.State != job.Completed || st.Rows.Done != demoRows {
		return fmt.Errorf("the job of the demonstration is %s with %d of %d rows: %s", st.State, st.Rows.Done, demoRows, st.Reason)
	}
	m, err := jobs.Result(ctx, spec.ID)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(spec.Output.URI, m.Parts[0].Path))
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if len(line) > 70 {
		line = line[:70] + "..."
	}
	d.say("   tutti jobs submit --model %s --input %s --output %s", spec.Model, filepath.Base(spec.Input.URI), filepath.Base(spec.Output.URI))
	d.say("   %d rows in %s, %d chunks, durable: it goes on after a crash", st.Rows.Done, st.Ended.Sub(st.Created).Round(time.Millisecond), st.Chunks)
	d.say("   %s  %s\n", m.Parts[0].Path, line)
	return nil
}
