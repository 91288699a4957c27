package identity_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/tracing"
)

// TestNothingConfigured checks that a model without inputs and outputs loads and executes.
func TestNothingConfigured(t *testing.T) {
	t.Parallel()
	m, err := load(t, "")
	if err != nil {
		t.Fatal(err)
	}
	i, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Execute(t.Context(), &backends.Batch{Rows: 1}); err != nil {
		t.Error(err)
	}
}

// TestRagged checks a batch of two requests of different shapes: each receives its own input with the batch
// dimension, and zeros for the optional input that it omits.
func TestRagged(t *testing.T) {
	t.Parallel()
	m, err := load(t, `max_batch_size: 4
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
input { name: "INPUT1" data_type: TYPE_FP32 dims: [ 2 ] optional: true } output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 2 ] }`)
	if err != nil {
		t.Fatal(err)
	}
	i, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	alloc := tensortest.NewChecked(t, nil)
	own := func(length int64) []tensor.Tensor {
		x, err := tensor.New(alloc, tensor.FP32, tensor.Of(1, length))
		if err != nil {
			t.Fatal(err)
		}
		return []tensor.Tensor{x, {}}
	}
	b := &backends.Batch{
		Rows: 2, In: make([]tensor.Tensor, 2), Out: make([]tensor.Tensor, 2), Allocator: alloc,
		Requests: []backends.Request{{Rows: 1, In: own(16)}, {First: 1, Rows: 1, In: own(8)}},
	}
	if err := i.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for k, want := range []tensor.Shape{tensor.Of(1, 16), tensor.Of(1, 8)} {
		q := &b.Requests[k]
		if !q.Out[0].Shape.Equal(want) || !q.Out[1].Shape.Equal(tensor.Of(1, 2)) {
			t.Errorf("request %d gets %s and %s", k, q.Out[0].Shape, q.Out[1].Shape)
		}
		tensor.ReleaseAll(q.In)
		tensor.ReleaseAll(q.Out)
	}
}

// names records the activities of finished traces.
type names struct{ got []string }

func (n *names) Trace(t *tracing.Trace) {
	for _, e := range t.Record().Events {
		n.got = append(n.got, e.Reason)
	}
}

func (*names) Batch(*tracing.Batch) {}

// TestReport checks the activities of a sampled request, in a batch with one that is not sampled, in simulated
// time.
func TestReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := load(t, one+param("enable_custom_tracing", "true")+param("nested_span_count", "4")+param("single_activity_frequency", "3"))
		if err != nil {
			t.Fatal(err)
		}
		i, err := m.NewInstance(t.Context(), tensor.Place{})
		if err != nil {
			t.Fatal(err)
		}
		var seen names
		tr, err := tracing.New(tracing.Options{
			Settings: tracing.Settings{Mode: tracing.ModeOpenTelemetry, Level: []string{"TIMESTAMPS"}, Rate: "1"}, Sinks: []tracing.Sink{&seen},
		})
		if err != nil {
			t.Fatal(err)
		}
		x := tr.Sample("id", 1, "")
		b := &backends.Batch{
			Rows: 2, In: make([]tensor.Tensor, 1), Out: make([]tensor.Tensor, 1), Allocator: tensor.NewPool(),
			Requests: []backends.Request{{Rows: 1, Ctx: t.Context(), Trace: x}, {First: 1, Rows: 1, Ctx: t.Context()}},
		}
		began := time.Now()
		b.In[0], err = tensor.New(b.Allocator, tensor.FP32, tensor.Of(2, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := i.Execute(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 500*time.Millisecond {
			t.Errorf("took %s, want a tenth of a second for each span", d)
		}
		x.End()
		const single = " CUSTOM_SINGLE_ACTIVITY"
		want := "CUSTOM_ACTIVITY_START CUSTOM_ACTIVITY_END" + single + " CUSTOM_ACTIVITY0_START" + single + " CUSTOM_ACTIVITY1_START CUSTOM_ACTIVITY2_START CUSTOM_ACTIVITY3_START" + single +
			" CUSTOM_ACTIVITY3_END CUSTOM_ACTIVITY2_END CUSTOM_ACTIVITY1_END CUSTOM_ACTIVITY0_END"
		if diff := cmp.Diff(want, strings.Join(seen.got, " ")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
