package tracing_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
)

// open returns a tracer with a file in a folder of its own. Every request is traced
// unless s says something else.
func open(t *testing.T, s tracing.Settings) (tr *tracing.Tracer, file string) {
	t.Helper()
	if s.Level == nil {
		s.Level = []string{"TIMESTAMPS"}
	}
	if s.Rate == "" {
		s.Rate = "1"
	}
	s.File = filepath.Join(t.TempDir(), "trace.json")
	tr, err := tracing.New(tracing.Options{Settings: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr, s.File
}

// trace samples n requests and ends them, and returns which were traced.
func trace(tr *tracing.Tracer, model string, n int) string {
	var b strings.Builder
	for range n {
		x := tr.Sample(model, 1, "")
		b.WriteByte(map[bool]byte{true: 'x', false: '.'}[x != nil])
		x.End()
	}
	return b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ids returns the ids in a trace file.
func ids(t *testing.T, file string) []int {
	t.Helper()
	b, err := os.ReadFile(file)
	must(t, err)
	var list []struct{ ID int }
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatalf("%s is not JSON: %v: %s", file, err, b)
	}
	all := make([]int, len(list))
	for i := range list {
		all[i] = list[i].ID
	}
	return all
}

func files(t *testing.T, file string) []string {
	t.Helper()
	all, err := filepath.Glob(file + "*")
	must(t, err)
	for i := range all {
		all[i] = filepath.Base(all[i])
	}
	return all
}

// shows: trace.file
func TestFileContent(t *testing.T) {
	t.Parallel()
	tr, file := open(t, tracing.Settings{})
	x := tr.Sample("ensemble", 0, `say "hi"`)
	x.SetModel(3, true)
	front := x.Hold()
	front.Stamp(tracing.HTTPRecvStart, 5)
	x.Stamp(tracing.RequestStart, 10)
	x.Step(&tracing.Step{Model: "step", Version: 2, Enqueued: 11, Done: 12, Failed: true})
	x.Stamp(tracing.RequestEnd, 20)
	x.End()
	front.Stamp(tracing.HTTPSendEnd, 30)
	front.End()
	second := tr.Sample("m", 1, "")
	second.End()
	must(t, tr.Close())
	must(t, tr.Close())
	b, err := os.ReadFile(file)
	must(t, err)
	want := `[{"id":1,"model_name":"ensemble","model_version":3,"request_id":"say \"hi\""},` +
		`{"id":1,"timestamps":[{"name":"HTTP_RECV_START","ns":5}]},` +
		`{"id":1,"timestamps":[{"name":"REQUEST_START","ns":10}]},` +
		`{"id":1,"timestamps":[{"name":"REQUEST_END","ns":20}]},` +
		`{"id":1,"timestamps":[{"name":"HTTP_SEND_END","ns":30}]},` +
		`{"id":2,"model_name":"step","model_version":2,"request_id":"say \"hi\"","parent_id":1},` +
		`{"id":2,"timestamps":[{"name":"REQUEST_START","ns":11}]},` +
		`{"id":2,"timestamps":[{"name":"QUEUE_START","ns":11}]},` +
		`{"id":2,"timestamps":[{"name":"REQUEST_END","ns":12}]},` +
		`{"id":3,"model_name":"m","model_version":1}]`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("trace file (-want +got):\n%s", diff)
	}
	if tr.Sample("m", 1, "") != nil {
		t.Error("a closed tracer traces")
	}
}

func TestSampling(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		settings tracing.Settings
		traced   string
		left     string
		files    []string
	}{
		{"all", tracing.Settings{}, "xxxxxx", "-1", []string{"trace.json"}},
		{"off", tracing.Settings{Level: []string{"OFF"}}, "......", "-1", []string{}},
		{"rate", tracing.Settings{Rate: "3"}, "..x..x", "-1", []string{"trace.json"}},
		{"rate not reached", tracing.Settings{Rate: "7"}, "......", "-1", []string{}},
		{"no rate", tracing.Settings{Rate: "0"}, "......", "-1", []string{}},
		{"count", tracing.Settings{Count: "2"}, "xx....", "0", []string{"trace.json.0"}},
		{"rate and count", tracing.Settings{Rate: "2", Count: "2"}, ".x.x..", "0", []string{"trace.json.0"}},
		{"count not reached", tracing.Settings{Rate: "2", Count: "5"}, ".x.x.x", "2", []string{"trace.json"}},
		{"no count", tracing.Settings{Count: "0"}, "......", "0", []string{}},
		{"log frequency", tracing.Settings{LogFrequency: "4"}, "xxxxxx", "-1", []string{"trace.json.0", "trace.json.1"}},
		{"count and log frequency", tracing.Settings{LogFrequency: "2", Count: "3"}, "xxx...", "0", []string{"trace.json.0", "trace.json.1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tr, file := open(t, tt.settings)
			if got := trace(tr, "m", 6); got != tt.traced {
				t.Errorf("traced %s, want %s", got, tt.traced)
			}
			if got := tr.Settings("m").Count; got != tt.left {
				t.Errorf("count is %s, want %s", got, tt.left)
			}
			must(t, tr.Close())
			if diff := cmp.Diff(tt.files, files(t, file)); diff != "" && len(tt.files)+len(files(t, file)) > 0 {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			n := 0
			for _, name := range tt.files {
				n += len(ids(t, filepath.Join(filepath.Dir(file), name)))
			}
			if want := strings.Count(tt.traced, "x"); n != want {
				t.Errorf("%d traces are written, want %d", n, want)
			}
		})
	}
}

// TestSettingsAndScopes checks a sequence of updates, each based on the ones before.
func TestSettingsAndScopes(t *testing.T) {
	t.Parallel()
	tr, file := open(t, tracing.Settings{Rate: "9", Count: "8", LogFrequency: "7"})
	type update = map[string][]string
	steps := []struct {
		name, model   string
		update        update
		global, other string // as level rate count frequency
	}{
		{"start", "", nil, "TIMESTAMPS 9 8 7", "TIMESTAMPS 9 8 7"},
		{"a model's", "m", update{"trace_rate": {"5"}}, "TIMESTAMPS 9 8 7", "TIMESTAMPS 5 8 7"},
		{"global", "", update{"trace_level": {"OFF"}, "trace_rate": {"4"}, "log_frequency": {"0"}}, "OFF 4 8 0", "OFF 5 8 0"},
		{"more of a model's", "m", update{"trace_level": {"TIMESTAMPS"}, "trace_count": {"-1"}, "trace_rate": nil}, "OFF 4 8 0", "TIMESTAMPS 4 -1 0"},
		{"a model's back", "m", update{"trace_level": {}, "trace_count": nil}, "OFF 4 8 0", "OFF 4 8 0"},
		{"global again", "", update{"trace_rate": {"3"}}, "OFF 3 8 0", "OFF 3 8 0"},
		{"to the start", "", update{"trace_level": nil, "trace_rate": nil}, "TIMESTAMPS 9 8 0", "TIMESTAMPS 9 8 0"},
		{"unknown keys", "", update{"trace_mode": {"x"}, "url": {"y"}}, "TIMESTAMPS 9 8 0", "TIMESTAMPS 9 8 0"},
		{"largest", "m", update{"trace_rate": {"4294967295"}, "trace_count": {"2147483647"}}, "TIMESTAMPS 9 8 0", "TIMESTAMPS 4294967295 2147483647 0"},
	}
	show := func(model string) string {
		s := tr.Settings(model)
		if s.Mode != "triton" || s.File != file {
			t.Errorf("mode %s, file %s", s.Mode, s.File)
		}
		return strings.Join([]string{strings.Join(s.Level, "+"), s.Rate, s.Count, s.LogFrequency}, " ")
	}
	for _, st := range steps {
		must(t, tr.Update(st.model, st.update))
		if got := show(""); got != st.global {
			t.Errorf("%s: global %s, want %s", st.name, got, st.global)
		}
		if got := show("m"); got != st.other {
			t.Errorf("%s: the model has %s, want %s", st.name, got, st.other)
		}
	}
	tr.Forget("m")
	tr.Forget("unknown")
	if got := show("m"); got != "TIMESTAMPS 9 8 0" {
		t.Errorf("a forgotten model has %s", got)
	}
}

func TestUpdateRefuses(t *testing.T) {
	t.Parallel()
	tr, _ := open(t, tracing.Settings{Rate: "9"})
	noFile, err := tracing.New(tracing.Options{})
	must(t, err)
	otel, err := tracing.New(tracing.Options{Settings: tracing.Settings{Mode: "opentelemetry"}})
	must(t, err)
	const invalid = "Attempting to set invalid trace setting :"
	tests := []struct {
		tracer *tracing.Tracer
		key    string
		values []string
		code   status.Code
		text   string
	}{
		{tr, "trace_file", nil, status.Unsupported, "trace file location can not be updated through network protocol"},
		{tr, "trace_level", []string{"OFF", "TIMESTAMPS"}, status.InvalidArg, "Expect only one trace level 'OFF' is specified"},
		{tr, "trace_level", []string{"MAX"}, status.InvalidArg, "Unable to parse 'trace_level', got: MAX, expected OFF, TIMESTAMPS or TENSORS"},
		{tr, "trace_rate", []string{"0"}, status.InvalidArg, invalid + "sample rate must be non-zero"},
		{tr, "trace_rate", []string{"x"}, status.InvalidArg, "Unable to parse 'trace_rate', got: x"},
		{tr, "trace_rate", []string{""}, status.InvalidArg, "Unable to parse 'trace_rate', got: "},
		{tr, "trace_rate", []string{"-"}, status.InvalidArg, "Unable to parse 'trace_rate', got: -"},
		{tr, "trace_rate", []string{"-1"}, status.InvalidArg, "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1"},
		{tr, "trace_rate", []string{"1", "2"}, status.InvalidArg, "expect only 1 value for 'trace_rate'"},
		{tr, "trace_count", []string{"1.5"}, status.InvalidArg, "Unable to parse 'trace_count', got: 1.5"},
		{tr, "trace_count", []string{"-2"}, status.InvalidArg, "Unable to parse 'trace_count'. Expecting value >= -1, got: -2"},
		{tr, "trace_count", []string{"2147483648"}, status.InvalidArg, "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: 2147483648"},
		{tr, "trace_count", []string{strings.Repeat("9", 30)}, status.InvalidArg, "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: " + strings.Repeat("9", 30)},
		{tr, "log_frequency", []string{"4294967296"}, status.InvalidArg, "Unable to parse 'log_frequency', value is out of range [ 0, 4294967295 ], got: 4294967296"},
		{noFile, "trace_level", []string{"TIMESTAMPS"}, status.InvalidArg, invalid + "trace file name is not given"},
		{otel, "trace_level", []string{"TENSORS"}, status.Unsupported, "trace level TENSORS is not supported in trace mode 'opentelemetry', only OFF and TIMESTAMPS are"},
		{nil, "trace_rate", []string{"1"}, status.Unavailable, "the server does not support tracing"},
	}
	for _, tt := range tests {
		for _, model := range []string{"", "m"} {
			before := tt.tracer.Settings(model)
			changes := map[string][]string{"log_frequency": {"1"}}
			changes[tt.key] = tt.values
			err := tt.tracer.Update(model, changes)
			if err == nil || status.CodeOf(err) != tt.code || err.Error() != tt.text {
				t.Errorf("%s %q: %v (%v), want %s", tt.key, tt.values, err, status.CodeOf(err), tt.text)
			}
			if diff := cmp.Diff(before, tt.tracer.Settings(model)); diff != "" {
				t.Errorf("%s %q changed something (-want +got):\n%s", tt.key, tt.values, diff)
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		settings tracing.Settings
		code     status.Code
		text     string
	}{
		{tracing.Settings{Mode: "jaeger"}, status.InvalidArg, "invalid value for trace mode option: jaeger, expected 'triton' or 'opentelemetry'"},
		{tracing.Settings{Rate: "often"}, status.InvalidArg, "Unable to parse 'trace_rate', got: often"},
		{
			tracing.Settings{Mode: "opentelemetry", Level: []string{"TENSORS"}},
			status.Unsupported, "trace level TENSORS is not supported in trace mode 'opentelemetry', only OFF and TIMESTAMPS are",
		},
	}
	for _, tt := range tests {
		_, err := tracing.New(tracing.Options{Settings: tt.settings})
		if err == nil || status.CodeOf(err) != tt.code || err.Error() != tt.text {
			t.Errorf("%+v: %v (%v), want %s", tt.settings, err, status.CodeOf(err), tt.text)
		}
	}
	// Triton starts with these, and traces nothing.
	tr, err := tracing.New(tracing.Options{Settings: tracing.Settings{Level: []string{"TIMESTAMPS"}, Rate: "1"}})
	must(t, err)
	if tr.Sample("m", 1, "") != nil || tr.Settings("").Level[0] != "TIMESTAMPS" {
		t.Error("without a file it traces")
	}
	must(t, tr.Close())
}

// TestReplacedSetting checks a trace that ends after the setting that sampled it was replaced.
func TestReplacedSetting(t *testing.T) {
	t.Parallel()
	tr, file := open(t, tracing.Settings{})
	first, late := tr.Sample("m", 1, ""), tr.Sample("m", 1, "")
	first.End()
	must(t, tr.Update("", map[string][]string{"trace_level": {"OFF"}, "log_frequency": {"1"}}))
	if tr.Sample("m", 1, "") != nil {
		t.Error("traced when it was turned off")
	}
	late.End()
	must(t, tr.Close())
	if diff := cmp.Diff([]int{1, 2}, ids(t, file)); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
}

func TestNil(t *testing.T) {
	t.Parallel()
	var tr *tracing.Tracer
	x := tr.Sample("m", 1, "")
	x.SetModel(1, false)
	x.Stamp(tracing.QueueStart, 1)
	x.Step(&tracing.Step{})
	x.Hold().End()
	x.End()
	tr.Forget("m")
	must(t, tr.Close())
	if x.Sampled() || tr.Settings("").Level[0] != "OFF" {
		t.Error("a nil tracer traces")
	}
}

// TestUnwritable checks that an unwritable trace file loses traces only.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	for _, frequency := range []string{"0", "1"} {
		tr, err := tracing.New(tracing.Options{Settings: tracing.Settings{
			Level: []string{"TIMESTAMPS"}, Rate: "1", LogFrequency: frequency, File: filepath.Join(t.TempDir(), "no", "such", "folder"),
		}})
		must(t, err)
		if got := trace(tr, "m", 3); got != "xxx" {
			t.Errorf("traced %s", got)
		}
		must(t, tr.Close())
	}
}

// TestMemoryIsBounded checks that traces beyond maxBuffered are written to the file.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	tr, file := open(t, tracing.Settings{})
	for range 24 {
		x := tr.Sample("m", 1, strings.Repeat("x", 50_000))
		for range 1<<12 + 1 {
			x.Stamp(tracing.InferResponseComplete, math.MaxInt64)
		}
		x.End()
	}
	st, err := os.Stat(file)
	must(t, err)
	if st.Size() < 1<<20 {
		t.Errorf("only %d bytes are written", st.Size())
	}
	must(t, tr.Close())
	if got, want := len(ids(t, file)), 24*(1+1<<12); got != want {
		t.Errorf("%d members, want %d", got, want)
	}
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	tr, file := open(t, tracing.Settings{Count: "100", Rate: "2"})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			model := "m" + strconv.Itoa(g%2)
			for i := range 100 {
				x := tr.Sample(model, 1, "id")
				c := x.Hold()
				done := make(chan struct{})
				go func() { c.Step(&tracing.Step{Model: "step", Enqueued: int64(i)}); c.End(); close(done) }()
				x.Stamp(tracing.RequestStart, int64(i))
				x.End()
				if g == 0 && i%10 == 0 {
					if err := tr.Update(model, map[string][]string{"trace_rate": {strconv.Itoa(1 + i%3)}}); err != nil {
						t.Error(err)
					}
				}
				if g == 1 && i%25 == 0 {
					tr.Forget(model)
				}
				<-done
			}
		})
	}
	wg.Wait()
	must(t, tr.Close())
	for _, name := range files(t, file) {
		ids(t, filepath.Join(filepath.Dir(file), name))
	}
}
