package repository_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/repository"
)

const adders = `
-- a/1/x --
-- a/config.pbtxt --
backend: "sequence" max_batch_size: 4
SHOWN
sequence_batching {
  STRATEGY
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
}
model_warmup { name: "w" batch_size: 3 count: 2
  inputs { key: "INPUT" value { data_type: TYPE_INT32 dims: 1 random_data: true } }
  inputs { key: "START" value { data_type: TYPE_INT32 dims: 1 zero_data: true } }
}
-- e/1/x --
-- e/config.pbtxt --
platform: "ensemble" max_batch_size: 4
input { name: "X" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] }
ensemble_scheduling {
  step { model_name: "a" model_version: -1 input_map { key: "INPUT" value: "X" } output_map { key: "OUTPUT" value: "t" } }
  step { model_name: "b" model_version: -1 input_map { key: "INPUT" value: "t" } output_map { key: "OUTPUT" value: "Y" } }
}
`

// TestSequences checks a sequence through a model and through an ensemble of two, whose control inputs are not in
// the request.
func TestSequences(t *testing.T) {
	t.Parallel()
	const shown = `input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }`
	for name, words := range map[string][2]string{
		"direct": {"direct {}", shown}, "oldest": {"oldest {}", shown}, "nothing declared": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			text := strings.NewReplacer("STRATEGY", words[0], "SHOWN", words[1]).Replace(adders)
			text += strings.ReplaceAll(strings.Split(text, "-- e/1/x --")[0], "-- a/", "-- b/")
			r := w.repo(t, folder(t, text))
			if f := failures(r); len(f) > 0 {
				t.Fatal(f)
			}
			about, err := r.Metadata("a", 0)
			if err != nil || len(about.Inputs) != 1 || about.Inputs[0].Name != "INPUT" || len(about.Outputs) != 1 {
				t.Errorf("described as %+v, %v", about, err)
			}
			for k, want := range []struct{ plain, both int32 }{{3, 3}, {7, 10}, {12, 22}} {
				seq := infer.Sequence{ID: 9, Start: k == 0, End: k == 2}
				if got := w.add(t, r, "a", "INPUT", seq, int32(k+3)); got != want.plain {
					t.Errorf("request %d gave %d, want %d", k, got, want.plain)
				}
				seq = infer.Sequence{Name: "nine", Start: k == 0, End: k == 2}
				if got := w.add(t, r, "e", "X", seq, int32(k+3)); got != want.both {
					t.Errorf("request %d of the ensemble gave %d, want %d", k, got, want.both)
				}
			}
		})
	}
}

// TestWarmupOfHeld checks that a warm-up executes while a test hook delays the first batch.
func TestWarmupOfHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.DelayScheduler, w.more.BacklogDelayScheduler = 5, 5
	text, _, _ := strings.Cut(strings.NewReplacer("STRATEGY", "direct {}", "SHOWN", "").Replace(adders), "-- e/1/x --")
	if f := failures(w.repo(t, folder(t, text))); len(f) > 0 {
		t.Error(f)
	}
}

// add sends one number of a sequence and returns the number in the response.
func (w *world) add(t *testing.T, r *repository.Repository, model, input string, seq infer.Sequence, v int32) int32 {
	t.Helper()
	req := infer.NewRequest()
	req.Model, req.Sequence = model, seq
	x, err := tensor.New(w.alloc, tensor.Int32, tensor.Of(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	tensor.Slice[int32](&x)[0] = v
	req.Inputs = append(req.Inputs, infer.Named{Name: input, Tensor: x})
	call := infer.NewCall()
	r.Submit(context.Background(), req, call)
	resp, err := call.Wait()
	if err != nil {
		t.Errorf("%s: %v", model, err)
		return 0
	}
	defer resp.Release()
	return tensor.Slice[int32](&resp.Outputs[0].Tensor)[0]
}

// TestSequenceTensors checks the errors about controls and states without a port of the model.
func TestSequenceTensors(t *testing.T) {
	t.Parallel()
	const control = `control_input { name: "INPUT0" control { kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ] } }`
	for want, text := range map[string]string{
		"sequence control tensor 'START' is no input of the model": `backend: "spy" sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ] } } }`,
		"sequence state tensor 'S' is no input of the model":       `backend: "spy" sequence_batching { state { input_name: "S" output_name: "S" data_type: TYPE_FP32 dims: [ 1 ] } }`,
		"is configured as TYPE_BOOL, but the model's input is TYPE_FP32": `backend: "identity" sequence_batching { ` + control + ` }
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }`,
	} {
		w := newWorld(t)
		r := w.repo(t, folder(t, "-- m/1/x --\n-- m/config.pbtxt --\n"+text))
		if got := failures(r)["m"]; !strings.Contains(got, want) {
			t.Errorf("error %q, want %q", got, want)
		}
	}
}
