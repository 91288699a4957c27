package scheduler

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
)

// Completer receives tasks that are done.
//
// Lifecycle: for every task, Enqueue comes first and Complete last, exactly once. Complete is
// called on any goroutine and concurrently for different tasks. It must not block.
//
// For example, a completer that counts failures:
//
//	func (c *counter) Complete(list scheduler.TaskList, _ *scheduler.RunLoop) {
//		for w := list.Pop(); w != nil; w = list.Pop() {
//			if w.Err != nil {
//				c.failed.Add(1)
//			}
//			tensor.ReleaseAll(w.Out)
//		}
//	}
type Completer interface {
	// Complete moves the tasks of one executed batch back, in row order. It may stage
	// further tasks on t, which then execute on the same goroutine where possible.
	Complete(list TaskList, t *RunLoop)
}

// Responder is a Completer for decoupled models, which send any number of responses for one
// task.
//
// Lifecycle: (1) Respond is called zero or more times, one call at a time for a task; (2)
// Complete is called once, after the last Respond has returned. A response with final set is
// the last one, but Complete still follows.
type Responder interface {
	Completer
	// Respond moves one response of w to its client while w goes on executing. out are the
	// outputs in the order of the signature; params are borrowed. It blocks while the client
	// is behind, and fails when the client has disconnected.
	Respond(w *Task, out []tensor.Tensor, params infer.Params, final bool) error
}

// Failer is a Responder that can report a failure while the batch still executes.
type Failer interface {
	Responder
	// Fail sends err to the client of w, which completes later with the same error; final
	// says that no response follows.
	Fail(w *Task, err error, final bool)
}

// Complete calls the Completer of each task, once per group of neighbours that have the same
// one. Tasks of one Completer stay in one list, sealed if it was.
func Complete(list TaskList, t *RunLoop) {
	if list.Head == nil {
		return
	}
	if list.sameCompleter() {
		list.Head.To.Complete(list, t)
		return
	}
	var part TaskList
	for w := list.Pop(); w != nil; w = list.Pop() {
		if part.Head != nil && part.Head.To != w.To {
			part.Head.To.Complete(part, t)
			part = TaskList{}
		}
		part.Push(w)
	}
	part.Head.To.Complete(part, t)
}

func (l *TaskList) sameCompleter() bool {
	for w := l.Head.next; w != nil; w = w.next {
		if w.To != l.Head.To {
			return false
		}
	}
	return true
}

// Host executes a task of a decoupled model and passes its responses on. A queue implements it.
// All methods are safe for concurrent use.
type Host interface {
	// Respond passes a response of w to the Responder to, at once or, where responses leave
	// in order of arrival, when it is w's turn.
	Respond(to Responder, w *Task, out []tensor.Tensor, params infer.Params, final bool) error
	// Fail passes a failure of w on where it does not overtake other responses.
	Fail(to Failer, w *Task, err error, final bool)
	// Detach frees the instance: the batch goes on without it. Further calls do nothing.
	Detach()
	// Yields, Pause and Resume implement those of Task.
	Yields() bool
	Pause(w *Task)
	Resume(w *Task)
}

// Yields reports whether Pause gives up everything that other tasks could wait for: any number
// of goroutines share the instance, and no other task's responses wait for those of w.
func (w *Task) Yields() bool { return w.Host != nil && w.Host.Yields() }

// Pause frees w's place at its instance while w waits for something outside, such as a client
// that reads slowly. Call it while w executes. Until Resume another task may execute in
// its place. An instance with a limiter releases it and goes on without acquiring it again,
// because what w waits for may need what the limiter guards.
func (w *Task) Pause() {
	if w.Host != nil {
		w.Host.Pause(w)
	}
}

// Resume ends Pause. It does not block.
func (w *Task) Resume() {
	if w.Host != nil {
		w.Host.Resume(w)
	}
}
