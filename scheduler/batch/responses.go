package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// responses passes the responses of a decoupled model on to the tasks of its batch.
type responses struct {
	runner *Runner
	tasks  []*scheduler.Task
	stream tensor.Stream // of the instance, nil on the host
}

var _ backends.ErrorResponder = (*responses)(nil)

// Respond checks one response as the outputs of an execution are checked, and passes it on. A
// response has as many rows as its request, apart from outputs that are Free.
func (a *responses) Respond(i int, out []tensor.Tensor, params infer.Params, final bool) error {
	err := a.check(i, out)
	if err != nil {
		tensor.ReleaseAll(out)
		return err
	}
	w := a.tasks[i]
	to := w.To.(scheduler.Responder) //nolint:errcheck,forcetypeassert // checked above
	if w.Host != nil {
		return w.Host.Respond(to, w, out, params, final)
	}
	return to.Respond(w, out, params, final)
}

func (a *responses) check(i int, out []tensor.Tensor) error {
	sig := a.runner.sig
	if i < 0 || i >= len(a.tasks) {
		return status.Errorf(status.Internal, "model '%s' answers request %d of a batch of %d", sig.Model, i, len(a.tasks))
	}
	record(a.stream, nil, out)
	if len(out) != len(sig.Outputs) {
		return status.Errorf(status.Internal, "model '%s' answers with %d outputs, expected %d", sig.Model, len(out), len(sig.Outputs))
	}
	if err := a.runner.checkOutputs(out, int(a.tasks[i].Rows), true); err != nil {
		return err
	}
	if _, ok := a.tasks[i].To.(scheduler.Responder); !ok {
		return status.Errorf(status.Unsupported, "model '%s' is decoupled, which is not supported here", sig.Model)
	}
	return nil
}

// RespondError implements backends.ErrorResponder.
func (a *responses) RespondError(i int, err error, final bool) {
	w := a.tasks[i]
	to, ok := w.To.(scheduler.Failer)
	switch {
	case !ok:
	case w.Host != nil:
		w.Host.Fail(to, w, err, final)
	default:
		to.Fail(w, err, final)
	}
}

// Detach implements backends.Responses.
func (a *responses) Detach() {
	if host := a.tasks[0].Host; host != nil {
		host.Detach()
	}
}
