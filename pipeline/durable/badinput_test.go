package durable

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
)

func TestSubmitRefuses(t *testing.T) {
	t.Parallel()
	minus := int64(-1)
	for name, c := range map[string]struct {
		change func(*job.Spec)
		want   string
	}{
		"id":          {func(s *job.Spec) { s.ID = "../x" }, "id '../x' is not valid"},
		"model":       {func(s *job.Spec) { s.Model = "" }, "model is missing"},
		"input":       {func(s *job.Spec) { s.Input.URI = "" }, "input is missing"},
		"output":      {func(s *job.Spec) { s.Output.URI = "" }, "output is missing"},
		"version":     {func(s *job.Spec) { s.Version = -1 }, "version is -1"},
		"chunk_rows":  {func(s *job.Spec) { s.ChunkRows = -1 }, "chunk_rows is -1"},
		"chunks":      {func(s *job.Spec) { s.Chunks = 1000 }, "chunks is 1000, expected 0 to 256"},
		"max_failed":  {func(s *job.Spec) { s.MaxFailed = &minus }, "max_failed is -1"},
		"priority":    {func(s *job.Spec) { s.Priority = 6 }, "priority is 6"},
		"group":       {func(s *job.Spec) { s.Group = strings.Repeat("g", 65) }, "group has 65 bytes"},
		"other_model": {func(s *job.Spec) { s.OtherModel = "any" }, "other_model is 'any', expected 'wait' or 'fail'"},
		"size":        {func(s *job.Spec) { s.Keep = []string{strings.Repeat("k", maxSpec)} }, "expected at most 65536"},
	} {
		s := job.Spec{Model: "m", Input: job.Place{URI: "in"}, Output: job.Place{URI: "out"}}
		c.change(&s)
		if _, err := normalise(&s); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	s, err := normalise(&job.Spec{Model: "m", Input: job.Place{URI: "in"}, Output: job.Place{URI: "s3://b/out"}})
	if err != nil || !filepath.IsAbs(s.Input.URI) || s.Output.URI != "s3://b/out" || s.ID == "" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestBadInput submits jobs that cannot run. Each fails with a reason, and the worker goes on.
func TestBadInput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	if _, err := r.service.Submit(t.Context(), &job.Spec{Model: "none", Input: job.Place{URI: "in"}, Output: job.Place{URI: "out"}}); status.CodeOf(err) != status.NotFound || !strings.Contains(err.Error(), "no worker serves model 'none'") {
		t.Errorf("an unknown model: %v", err)
	}
	if _, err := r.service.Show(t.Context(), "nobody"); status.CodeOf(err) != status.NotFound {
		t.Errorf("an unknown job: %v", err)
	}
	write := func(path, text string) string {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	occupied := t.TempDir()
	write(filepath.Join(occupied, "thesis.tex"), "years of work")
	for name, c := range map[string]struct {
		change func(*job.Spec)
		want   string
	}{
		"missing":  {func(s *job.Spec) { s.Input.URI += ".not" }, "no such file or directory"},
		"column":   {func(s *job.Spec) { s.Columns = map[string]string{"x": "z"} }, "the dataset has no column 'z'"},
		"input":    {func(s *job.Spec) { s.Columns = map[string]string{"z": "x"} }, "model 'double' has no input 'z'"},
		"type":     {func(s *job.Spec) { s.Columns = map[string]string{"x": "id"} }, "has strings"},
		"result":   {func(s *job.Spec) { s.Results = map[string]string{"z": ""} }, "has no output 'z'"},
		"rows":     {func(s *job.Spec) { s.Input.URI = r.dataset(-1, -2, -3) }, "none of the first 3 rows can be executed; the first: rows.jsonl:1: -1 has no double"},
		"occupied": {func(s *job.Spec) { s.Output.URI = occupied }, "has the file 'thesis.tex', which is of no job"},
		"format":   {func(s *job.Spec) { s.Output.Format = "docx" }, "format 'docx' of the output"},
	} {
		spec := r.spec(name, 20)
		c.change(&spec)
		if st := r.finished(r.submit(spec).ID); st.State != job.Failed || !strings.Contains(st.Reason, c.want) {
			t.Errorf("%s: %s: %s, want %s", name, st.State, st.Reason, c.want)
		}
	}
	overwrite := r.spec("overwrite", 20)
	overwrite.Output.URI, overwrite.Overwrite = occupied, true
	r.run(overwrite)
	if slices.Contains(files(t, occupied), "thesis.tex") {
		t.Error("overwrite left a file")
	}
	empty := r.spec("empty", 0)
	empty.Keep = []string{"id"}
	if st, m := r.run(empty); st.Rows.Total != 0 || len(m.Parts) != 0 || m.Rows.Done != 0 {
		t.Errorf("a dataset without rows: %+v, %+v", st, m)
	}

	lines := r.spec("lines", 0)
	write(lines.Input.URI, "{\"x\": 1, \"id\": \"row 0\"}\n{\"x\": \n{\"x\": \"two\", \"id\": \"row 2\"}\n\n{\"id\": \"row 3\"}\n{\"x\": 5, \"id\": \"row 4\"}\n")
	_, m := r.run(lines)
	if got := doubles(t, lines.Output.URI, m); len(got) != 2 || got["row 4"] != 10 {
		t.Errorf("%v", got)
	}
	failed, err := r.service.Failures(t.Context(), "lines", 0, 0)
	if err != nil || len(failed) != 3 || failed[0].Place != "rows.jsonl:2" || failed[0].Code != "INVALID_ARGUMENT" || failed[2].Place != "rows.jsonl:5" {
		t.Errorf("%+v, %v", failed, err)
	}
}

// TestDatasetChanges in the middle of a job, which fails and says so. Submitted again it reuses what it has.
func TestDatasetChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	spec := r.spec("changes", 3000)
	r.submit(spec)
	r.await("changes", "running", func(st *job.Status) bool { return st.Finished > 2 })
	other := r.spec("other", 10)
	other.Output = spec.Output
	if st := r.finished(r.submit(other).ID); st.State != job.Failed || !strings.Contains(st.Reason, "job 'changes' writes to the output") {
		t.Errorf("two jobs with one output: %+v", st)
	}
	text, _ := os.ReadFile(spec.Input.URI)
	if err := os.WriteFile(spec.Input.URI, append([]byte("{\"x\": 7, \"id\": \"new\"}\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	st := r.finished("changes")
	if st.State != job.Failed || !strings.Contains(st.Reason, "changed since the dataset was cut") {
		t.Errorf("%s: %s", st.State, st.Reason)
	}
	before := r.model.rows.Load()
	st, m := r.run(spec)
	if st.Rows.Done != 3001 || st.Rows.Reused < 20 {
		t.Errorf("%+v", st.Rows)
	}
	if n := r.model.rows.Load() - before; n > 3001-st.Rows.Reused+16 { // with those of the check
		t.Errorf("%d rows were executed, %d reused", n, st.Rows.Reused)
	}
	if got := doubles(t, spec.Output.URI, m); len(got) != 3001 || got["new"] != 14 {
		t.Errorf("%d results", len(got))
	}
}

// flipping is a codec of payloads.
type flipping struct{}

func flip(list []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(list))
	for i, p := range list {
		data := slices.Clone(p.GetData())
		for j := range data {
			data[j] ^= 0x55
		}
		out[i] = &commonpb.Payload{Metadata: p.GetMetadata(), Data: data}
	}
	return out, nil
}

func (flipping) Encode(list []*commonpb.Payload) ([]*commonpb.Payload, error) { return flip(list) }
func (flipping) Decode(list []*commonpb.Payload) ([]*commonpb.Payload, error) { return flip(list) }

// TestCodec runs a job whose payloads are encoded: Temporal's history and its memo do not have them in the clear.
func TestCodec(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	plain := r.client
	var err error
	r.codec = flipping{}
	if r.client, err = client.NewLazyClient(client.Options{HostPort: r.address, DataConverter: DataConverter(r.codec), Logger: quiet()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.Close)
	r.service = New(r.settings())
	r.work()
	spec := r.spec("secret", 50)
	if st, _ := r.run(spec); st.Rows.Done != 50 || st.Spec.Output != spec.Output {
		t.Errorf("%+v", st)
	}
	d, err := plain.DescribeWorkflowExecution(t.Context(), "secret", "")
	if err != nil {
		t.Fatal(err)
	}
	r.client = plain
	var text strings.Builder
	text.WriteString(d.GetWorkflowExecutionInfo().GetMemo().String())
	history, err := protojson.Marshal(r.history("secret", ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.history("secret", "").GetEvents() {
		text.WriteString(h.String())
	}
	if strings.Contains(text.String(), spec.Output.URI) || strings.Contains(text.String(), "content-1") || bytes.Contains(history, []byte("content-1")) {
		t.Error("payloads are not encoded")
	}
}
