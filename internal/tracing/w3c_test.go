package tracing_test

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/tracing"
)

func TestParseContext(t *testing.T) {
	t.Parallel()
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	good := "00-" + id + "-" + span + "-01"
	for parent, ok := range map[string]bool{
		good: true, "00-" + id + "-" + span + "-00": true, "cc-" + id + "-" + span + "-01-more": true,
		"": false, good + "-more": false, good[:54]: false, "ff" + good[2:]: false, "cc" + good[2:] + "x": false,
		strings.ToUpper(good): false, "00-" + strings.Repeat("0", 32) + "-" + span + "-01": false, "00-" + id + "-" + strings.Repeat("0", 16) + "-01": false,
		strings.Replace(good, "-", "_", 1): false, good[:53] + "zz": false, strings.Replace(good, "0a", "0g", 1): false,
	} {
		c, got := tracing.ParseContext(parent, "a=1")
		if got != ok || ok && (c.ID.String() != id || c.Span.String() != span || c.State != "a=1") {
			t.Errorf("%s: %v %+v", parent, got, c)
		}
	}
	if c, _ := tracing.ParseContext(good, strings.Repeat("x", 513)); c.State != "" || c.Parent() != good {
		t.Errorf("%s with the state %q", c.Parent(), c.State)
	}
}

// TestFollow checks that in ModeOpenTelemetry requests with a client's trace context are sampled, also at rate 0.
func TestFollow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode, rate string
		chosen     bool
	}{{tracing.ModeOpenTelemetry, "0", true}, {tracing.ModeOpenTelemetry, "1000", true}, {tracing.ModeTriton, "1000", false}} {
		tr, err := tracing.New(tracing.Options{Settings: tracing.Settings{Mode: tt.mode, Rate: tt.rate, Level: []string{"TIMESTAMPS"}, File: t.TempDir() + "/t"}})
		must(t, err)
		x := tr.SampleFrom("m", 1, "", &tracing.Origin{Context: tracing.Context{ID: tracing.TraceID{1}}})
		if x.Sampled() != tt.chosen || tr.Sample("m", 1, "").Sampled() {
			t.Errorf("%+v: %v", tt, x.Sampled())
		}
		if c := x.Context(1, 0); (c != tracing.Context{}) != tt.chosen {
			t.Errorf("%+v: %+v", tt, c)
		}
		x.End()
		must(t, tr.Close())
	}
}

// TestRetain checks that a client's tracestate requests the retention of its trace.
func TestRetain(t *testing.T) {
	t.Parallel()
	c := tracing.NewContext(tracing.RetainState)
	for state, want := range map[string]bool{
		c.State: true, "a=1, tutti=retain ,b=2": true, "tutti=retain,a=1": true,
		"": false, "tutti=retained": false, "tutti=": false, "x=tutti=retain": false, "a=1": false, "tutti=retain," + strings.Repeat("x", 512): false,
	} {
		var o tracing.Origin
		o.Follow(c.Parent(), state)
		if o.ID != c.ID || o.Span != c.Span || o.Retain != want {
			t.Errorf("%q: %+v", state, o)
		}
	}
	var o tracing.Origin
	if o.Follow("", c.State); o.Retain {
		t.Error("a tracestate counts that comes without a traceparent")
	}
}

func FuzzParseContext(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1")
	f.Fuzz(func(t *testing.T, parent, state string) {
		c, ok := tracing.ParseContext(parent, state)
		if !ok {
			return
		}
		if again, ok := tracing.ParseContext(c.Parent(), c.State); !ok || again != c {
			t.Errorf("%+v became %+v", c, again)
		}
	})
}

// TestCarrier checks the context that models get in ModeOpenTelemetry, with and without a client's context.
func TestCarrier(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{tracing.ModeOpenTelemetry, tracing.ModeTriton} {
		tr, err := tracing.New(tracing.Options{Settings: tracing.Settings{Mode: mode, Rate: "1", Level: []string{"TIMESTAMPS"}, File: t.TempDir() + "/t"}})
		must(t, err)
		x := tr.Sample("m", 1, "")
		got, want, c := x.Carrier(1, 0), "", x.Context(1, 0)
		if mode == tracing.ModeOpenTelemetry {
			want = `{"traceparent":"` + c.Parent() + `"}`
		}
		if got != want {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
		x.End()
		must(t, tr.Close())
	}
	if got := (*tracing.Trace)(nil).Carrier(0, 0); got != "" {
		t.Errorf("of no trace: %q", got)
	}
}
