package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/table"
)

// pollJob is the time between two looks at a job that is waited for.
const pollJob = 300 * time.Millisecond

// maxListed is the number of jobs or failed rows that are listed at most.
const maxListed = 1000

// jobsCommand is one call of `tutti jobs`.
type jobsCommand struct {
	*program
	jobs *client.Jobs
	out  *output
	// submission
	spec             job.Spec
	columns, results list // NAME=COLUMN
	keep             list
	maxFailed        int64
	wait             bool
}

// submission declares the flags of submit.
func (j *jobsCommand) submission(fs *flag.FlagSet) {
	s := &j.spec
	fs.StringVar(&s.ID, "id", "", "the `name` of the job; chosen by the server if empty")
	fs.StringVar(&s.Model, "model", "", "the `model` or ensemble")
	fs.Int64Var(&s.Version, "model-version", 0, "the `version` of the model; 0 for the one that serves requests without a version")
	fs.StringVar(&s.Input.URI, "input", "", "the dataset, a `path` or an address in a bucket; * in its last parts stands for any text")
	fs.StringVar(&s.Input.Format, "input-format", "", "the `format` of the dataset: jsonl, csv, parquet, npz, images or texts; by default what the names of the files say")
	fs.StringVar(&s.Output.URI, "output", "", "the `folder` for the results, here or in a bucket")
	fs.StringVar(&s.Output.Format, "output-format", "", "the `format` of the results: jsonl (the default), csv, parquet or npz")
	fs.Var(&j.columns, "column", "`INPUT=COLUMN`, the column of an input of the model whose name differs; may be repeated")
	fs.Var(&j.results, "result", "`OUTPUT=COLUMN`, an output of the model that is written, and its column; may be repeated; by default all outputs")
	fs.Var(&j.keep, "keep", "a `column` of the dataset that is copied to the results; may be repeated")
	fs.Int64Var(&j.maxFailed, "max-failed", -1, "end the job when more than `N` rows have failed; -1 for no limit")
	fs.Int64Var(&s.ChunkRows, "chunk-rows", 0, "the `rows` of a chunk, which is what is repeated after a crash; 0 for some seconds of work")
	fs.IntVar(&s.Chunks, "chunks", 0, "the `number` of chunks at a time; 0 for as many as the workers take")
	fs.BoolVar(&s.Overwrite, "overwrite", false, "discard what the output has")
	fs.StringVar(&s.OtherModel, "other-model", "", "`wait` (the default) or fail, for a worker whose model differs from the job's")
	fs.StringVar(&s.Device, "device", "", "`gpu` or cpu, where the model of the workers must be; by default anywhere")
	fs.IntVar(&s.Priority, "priority", 0, "from 1, the highest, to 5, among jobs")
	fs.StringVar(&s.Group, "group", "", "a `name`; workers are shared equally between jobs of different groups")
	j.waiting(fs)
}

// waiting declares the flag --wait.
func (j *jobsCommand) waiting(fs *flag.FlagSet) {
	fs.BoolVar(&j.wait, "wait", false, "wait for the end of the job and show its progress")
}

// jobsCommands are the commands below `tutti jobs`.
func jobsCommands() []command {
	const job = "JOB"
	return []command{
		{
			name: "submit", usage: "--model M --input DATASET --output FOLDER", summary: "Start a job and print its name",
			examples: []string{
				"tutti jobs submit --model text --input texts.jsonl --output results --wait",
				"tutti jobs submit --model text --input 's3://bucket/texts/*.parquet' --output s3://bucket/results --column TEXT=body --keep id",
			},
			run: jobsRun("submit", (*jobsCommand).submission, (*jobsCommand).submit),
		},
		{
			name: "list", summary: "List the jobs, the latest first", examples: []string{"tutti jobs list"},
			run: jobsRun("list", nil, (*jobsCommand).list),
		},
		{
			name: "show", usage: job, summary: "Print state, progress and problems of a job", examples: []string{"tutti jobs show text-7f3a"},
			run: jobRun("show", nil, (*jobsCommand).show),
		},
		{
			name: "wait", usage: job, summary: "Wait for the end of a job and show its progress", examples: []string{"tutti jobs wait text-7f3a"},
			notes: "The command ends with 1 if the job does not complete.",
			run:   jobRun("wait", nil, (*jobsCommand).await),
		},
		{
			name: "pause", usage: job, summary: "Pause a job", examples: []string{"tutti jobs pause text-7f3a"},
			run: jobRun("pause", nil, changeJob((*client.Jobs).Pause)),
		},
		{
			name: "resume", usage: job, summary: "Resume a job that was paused", examples: []string{"tutti jobs resume text-7f3a"},
			run: jobRun("resume", nil, changeJob((*client.Jobs).Resume)),
		},
		{
			name: "cancel", usage: job, summary: "Cancel a job", examples: []string{"tutti jobs cancel text-7f3a"},
			run: jobRun("cancel", nil, changeJob((*client.Jobs).Cancel)),
		},
		{
			name: "retry", usage: job, summary: "Submit a job again: only rows without a result are executed", examples: []string{"tutti jobs retry text-7f3a --wait"},
			run: jobRun("retry", (*jobsCommand).waiting, (*jobsCommand).retry),
		},
		{
			name: "result", usage: job, summary: "Print the files with the results of a job", examples: []string{"tutti jobs result text-7f3a"},
			run: jobRun("result", nil, (*jobsCommand).result),
		},
		{
			name: "failures", usage: job, summary: "Print the failed rows of a job with their errors", examples: []string{"tutti jobs failures text-7f3a"},
			run: jobRun("failures", nil, (*jobsCommand).failures),
		},
	}
}

// jobRun returns the function of a command about one job. flags declares flags of its own, and may be nil.
func jobRun(name string, flags func(*jobsCommand, *flag.FlagSet), run func(*jobsCommand, context.Context, string) error) func(*program, context.Context, []string) error {
	return func(p *program, ctx context.Context, args []string) error {
		return p.jobs(ctx, name, args, 1, flags, func(j *jobsCommand, ctx context.Context, rest []string) error { return run(j, ctx, rest[0]) })
	}
}

// changeJob returns the function of a command that changes the state of a job. It prints the job for programs only.
func changeJob(change func(*client.Jobs, context.Context, string) error) func(*jobsCommand, context.Context, string) error {
	return func(j *jobsCommand, ctx context.Context, id string) error {
		if err := change(j.jobs, ctx, id); err != nil || !j.out.machine() {
			return err
		}
		st, err := j.jobs.Show(ctx, id)
		if err != nil {
			return err
		}
		return j.print(st)
	}
}

// jobsRun is jobRun for a command without arguments.
func jobsRun(name string, flags func(*jobsCommand, *flag.FlagSet), run func(*jobsCommand, context.Context) error) func(*program, context.Context, []string) error {
	return func(p *program, ctx context.Context, args []string) error {
		return p.jobs(ctx, name, args, 0, flags, func(j *jobsCommand, ctx context.Context, _ []string) error { return run(j, ctx) })
	}
}

// boolValue is a flag without a value that calls set. Help prints it as it prints a bool, which flag.BoolFunc's has not the name of.
type boolValue struct {
	set   func() error
	given bool
}

func (b *boolValue) String() string { return strconv.FormatBool(b.given) }
func (*boolValue) IsBoolFlag() bool { return true }

// Set calls set if the text is true.
func (b *boolValue) Set(text string) (err error) {
	if b.given, err = strconv.ParseBool(text); err == nil && b.given {
		err = b.set()
	}
	return err
}

// jobs runs a command that has n arguments.
func (p *program) jobs(ctx context.Context, name string, args []string, n int, flags func(*jobsCommand, *flag.FlagSet),
	run func(*jobsCommand, context.Context, []string) error,
) error {
	fs := p.flags("jobs " + name)
	server, connect := urlFlag(fs, "its HTTP port"), &connection{}
	connect.flags(fs)
	j := &jobsCommand{program: p}
	j.out = outputFlag(fs, formatTable, formatJSON, formatYAML)
	fs.Var(&boolValue{set: func() error { return j.out.Set(formatJSON) }}, "json", "-o json")
	if flags != nil {
		flags(j, fs)
	}
	expected := [...]string{"no arguments", "the name of one job"}[n]
	rest, err := arguments(fs, args, n, n, expected)
	if err != nil {
		return err
	}
	if n == 1 && rest[0] == "" {
		return misused("jobs "+name, expected)
	}
	if j.jobs, err = connect.jobs(*server); err != nil {
		return err
	}
	return connect.explain(ctx, *server, run(j, ctx, rest))
}

// jobs returns the jobs of the server at a URL.
func (c *connection) jobs(server string) (*client.Jobs, error) {
	base, o, err := c.http(server)
	if err != nil {
		return nil, err
	}
	return client.NewHTTP(base, &client.HTTPOptions{Options: *o}).Jobs(), nil
}

// submit submits the job of the flags.
func (j *jobsCommand) submit(ctx context.Context) error {
	s := &j.spec
	for _, f := range []struct{ name, value string }{{"model", s.Model}, {"input", s.Input.URI}, {"output", s.Output.URI}} {
		if f.value == "" {
			return usagef("jobs submit: --%s is missing", f.name)
		}
	}
	err := errors.Join(absolute(&s.Input.URI), absolute(&s.Output.URI))
	if err == nil {
		s.Columns, err = pairs("column", "INPUT=COLUMN", j.columns)
	}
	if err == nil {
		s.Results, err = pairs("result", "OUTPUT=COLUMN", j.results)
	}
	if err != nil {
		return err
	}
	if s.Keep = j.keep; j.maxFailed >= 0 {
		s.MaxFailed = &j.maxFailed
	}
	return j.submitted(ctx)(j.jobs.Submit(ctx, s))
}

// absolute makes a local path absolute: the server has another working folder.
func absolute(uri *string) (err error) {
	if !strings.Contains(*uri, "://") {
		*uri, err = filepath.Abs(*uri)
	}
	return err
}

// pairs parses flags of the form NAME=VALUE.
func pairs(flag, form string, values []string) (map[string]string, error) {
	m := map[string]string{}
	for _, v := range values {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" || value == "" {
			return nil, usagef("--%s is '%s', expected %s", flag, v, form)
		}
		m[name] = value
	}
	return m, nil
}

// submitted returns a function that prints the id of a new job, or waits for its end.
func (j *jobsCommand) submitted(ctx context.Context) func(*job.Status, error) error {
	return func(st *job.Status, err error) error {
		switch {
		case err != nil:
			return err
		case j.wait:
			return j.awaitEnd(ctx, st.ID, true)
		case j.out.machine():
			return j.print(st)
		}
		_, err = fmt.Fprintln(j.stdout, st.ID)
		return err
	}
}

func (j *jobsCommand) retry(ctx context.Context, id string) error {
	return j.submitted(ctx)(j.jobs.Retry(ctx, id))
}

// print prints a response for programs.
func (j *jobsCommand) print(v any) error { return j.out.print(j.stdout, v, nil) }

// list prints a line for each job.
func (j *jobsCommand) list(ctx context.Context) error {
	all, err := j.jobs.List(ctx, "", maxListed)
	if err != nil {
		return err
	}
	if j.out.machine() {
		return j.print(all)
	}
	rows := [][]string{{"JOB", "MODEL", "STATE", "ROWS", "FAILED", "RATE", "LEFT", "CREATED"}}
	for i := range all {
		st := &all[i]
		rows = append(rows, []string{
			st.ID, st.Spec.Model, string(st.State), fmt.Sprintf("%d/%d", st.Rows.Done, st.Rows.Total), strconv.FormatInt(st.Rows.Failed, 10),
			rate(st), left(st), st.Created.Local().Format(time.DateTime),
		})
	}
	table.Left(j.stdout, rows)
	return nil
}

// rate returns the rows per second of a job, empty if it has none.
func rate(st *job.Status) string {
	if st.Rate == 0 {
		return ""
	}
	return strconv.FormatFloat(st.Rate, 'f', 0, 64) + "/s"
}

// left returns the time that a job still takes, empty if it is not known.
func left(st *job.Status) string {
	if st.Left == 0 || st.State != job.Running {
		return ""
	}
	return time.Duration(st.Left * float64(time.Second)).Round(time.Second).String()
}

// show prints a job.
func (j *jobsCommand) show(ctx context.Context, id string) error {
	st, err := j.jobs.Show(ctx, id)
	if err != nil {
		return err
	}
	if j.out.machine() {
		return j.print(st)
	}
	rows := [][]string{
		{"job", st.ID},
		{"state", string(st.State)},
		{"reason", st.Reason},
		{"model", st.Spec.Model},
		{"input", st.Spec.Input.URI},
		{"output", st.Spec.Output.URI},
		{"rows", fmt.Sprintf("%d of %d done (%d of them reused), %d failed", st.Rows.Done, st.Rows.Total, st.Rows.Reused, st.Rows.Failed)},
		{"chunks", fmt.Sprintf("%d of %d", st.Finished, st.Chunks)},
		{"rate", rate(st)},
		{"left", left(st)},
		{"retries", strconv.FormatInt(st.Retries, 10)},
		{"created", st.Created.Local().Format(time.DateTime)},
	}
	if !st.Ended.IsZero() {
		rows = append(rows, []string{"ended", st.Ended.Local().Format(time.DateTime)})
	}
	rows = append(rows, []string{"manifest", st.Manifest})
	for _, p := range st.Problems {
		rows = append(rows, []string{"problem", problem(&p)})
	}
	rows = slices.DeleteFunc(rows, func(r []string) bool { return r[1] == "" })
	for _, r := range rows {
		fmt.Fprintf(j.stdout, "%-9s %s\n", r[0], r[1])
	}
	return nil
}

// problem returns one line about a chunk that is tried again.
func problem(p *job.Problem) string {
	what := fmt.Sprintf("chunk %d", p.Chunk)
	if p.Chunk < 0 {
		what = "the job"
	}
	text := fmt.Sprintf("%s, attempt %d: %s", what, p.Attempt, p.Error)
	if !p.Next.IsZero() {
		text += "; again at " + p.Next.Local().Format(time.TimeOnly)
	}
	return text
}

// await shows the progress of a job until it has ended. It fails if the job did not complete.
func (j *jobsCommand) await(ctx context.Context, id string) error { return j.awaitEnd(ctx, id, false) }

// awaitEnd is await of a job that is known to exist, or is not.
func (j *jobsCommand) awaitEnd(ctx context.Context, id string, known bool) error {
	bar := newProgress(j.stderr)
	st, err := waitJob(ctx, j.jobs, id, known, bar.show)
	bar.end()
	switch {
	case err != nil:
		return err
	case j.out.machine():
		err = j.print(st)
	default:
		j.summarise(st)
	}
	if err == nil && st.State != job.Completed {
		err = errReported
	}
	return err
}

// waitJob returns a job when it has ended, and passes it to show before that again and again. A server that is away for
// a while, for example because it starts again, is no error once the job is known to exist.
func waitJob(ctx context.Context, jobs *client.Jobs, id string, known bool, show func(*job.Status)) (*job.Status, error) {
	tick := time.NewTicker(pollJob)
	defer tick.Stop()
	for {
		st, err := jobs.Show(ctx, id)
		refusal, refused := errors.AsType[*client.Error](err)
		switch {
		case err == nil && st.State.Final():
			show(st)
			return st, nil
		case err == nil:
			known = true
			show(st)
		case !known, ctx.Err() != nil, refused && !strings.HasPrefix(refusal.Status, "503"):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// summarise prints how a job ended.
func (j *jobsCommand) summarise(st *job.Status) {
	switch st.State {
	case job.Completed:
		fmt.Fprintf(j.stdout, "%s completed: %d rows, of which %d failed and %d were there already, in %s\nThe results: %s\n",
			st.ID, st.Rows.Total, st.Rows.Failed, st.Rows.Reused, st.Ended.Sub(st.Created).Round(100*time.Millisecond), st.Manifest)
		if st.Rows.Failed > 0 {
			fmt.Fprintf(j.stdout, "The failed rows: tutti jobs failures %s; after a correction: tutti jobs retry %s\n", st.ID, st.ID)
		}
	case job.Failed:
		fmt.Fprintf(j.stdout, "%s failed: %s\nWhat is done is kept: tutti jobs retry %s\n", st.ID, st.Reason, st.ID)
	default:
		fmt.Fprintf(j.stdout, "%s is %s\n", st.ID, st.State)
	}
}

// result prints the manifest of a completed job.
func (j *jobsCommand) result(ctx context.Context, id string) error {
	m, err := j.jobs.Result(ctx, id)
	if err != nil {
		return err
	}
	if j.out.machine() {
		return j.print(m)
	}
	rows := [][]string{{"PART", "FIRST ROW", "ROWS", "FAILED", "BYTES", "ERRORS"}}
	for i := range m.Parts {
		p := &m.Parts[i]
		rows = append(rows, []string{
			p.Path, strconv.FormatInt(p.First, 10), strconv.FormatInt(p.Rows, 10), strconv.FormatInt(p.Failed, 10), strconv.FormatInt(p.Bytes, 10), p.Errors,
		})
	}
	table.Left(j.stdout, rows)
	_, err = fmt.Fprintf(j.stdout, "%d rows, %d failed; sha256 of the results: %s\n", m.Rows.Total, m.Rows.Failed, m.Sum)
	return err
}

// failures prints rows that have failed.
func (j *jobsCommand) failures(ctx context.Context, id string) error {
	rows, err := j.jobs.Failures(ctx, id, 0, maxListed)
	if err != nil {
		return err
	}
	if j.out.machine() {
		return j.print(rows)
	}
	for _, r := range rows {
		fmt.Fprintf(j.stdout, "%d\t%s\t%s: %s\n", r.Row, r.Place, r.Code, r.Error)
	}
	if len(rows) == maxListed {
		_, err = fmt.Fprintf(j.stderr, "only the first %d are printed: the files of failed rows have all\n", maxListed)
	}
	return err
}
