package scheduler

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// answers hands the answers of a decoupled model to the works of its batch.
type answers struct {
	runner *Runner
	works  []*Task
	stream tensor.Stream // of the instance, nil on the host
}

var _ backends.ErrorResponder = (*answers)(nil)

// Answer checks one response as an execution's outputs are checked, and passes it on.
// A response has as many rows as its request, apart from outputs that are Free.
func (a *answers) Respond(i int, out []tensor.Tensor, params infer.Params, final bool) error {
	if i < 0 || i >= len(a.works) {
		tensor.ReleaseAll(out)
		return status.Errorf(status.Internal, "model '%s' answers request %d of a batch of %d", a.runner.sig.Model, i, len(a.works))
	}
	w := a.works[i]
	stamp(a.stream, nil, out)
	err := a.runner.checkAnswer(w, out)
	if err != nil {
		tensor.ReleaseAll(out)
		return err
	}
	to, ok := w.To.(Responder)
	if !ok {
		tensor.ReleaseAll(out)
		return status.Errorf(status.Unsupported, "model '%s' is decoupled, which is not supported here", a.runner.sig.Model)
	}
	if w.queued.line != nil {
		return w.queued.line.respond(to, w, out, params, final)
	}
	return to.Respond(w, out, params, final)
}

// RespondError implements backends.ErrorResponder. Responses that keep the order of requests are not overtaken.
func (a *answers) RespondError(i int, err error, final bool) {
	w := a.works[i]
	if to, ok := w.To.(Failer); ok && w.queued.line == nil {
		to.Fail(w, err, final)
	}
}

// Detach implements backends.Answers.
func (a *answers) Detach() {
	if host := a.works[0].queued.host; host != nil {
		host.detach(a.works)
	}
}

func (r *Runner) checkAnswer(w *Task, out []tensor.Tensor) error {
	if len(out) != len(r.sig.Outputs) {
		return status.Errorf(status.Internal, "model '%s' answers with %d outputs, expected %d", r.sig.Model, len(out), len(r.sig.Outputs))
	}
	return r.checkOutputs(out, int(w.Rows), true)
}
