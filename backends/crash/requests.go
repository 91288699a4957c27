package crash

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Requests are the requests that have ended processes of a model. It is safe for concurrent use.
//
// For example, a request with the inputs X ends the process of an instance; its client sends it again, and the process ends again. The log and
// the report of the model then have the hash of X, and the id under which X is captured where the server captures requests.
type Requests struct {
	set Settings

	mu     sync.Mutex
	ended  map[uint64]int // by a hash of the inputs; guarded by mu
	report string         // guarded by mu
}

// Settings are the parameters of New.
type Settings struct {
	Signature *config.Signature
	Log       *slog.Logger
	// Captures keeps the inputs of a request that has ended a process twice; nil keeps none.
	Captures backends.CrashRecorder
	// Repeated is called for each end beyond the first of a request; nil for none.
	Repeated func()

	_ struct{}
}

// New returns a Requests without any.
func New(set Settings) *Requests { return &Requests{set: set, ended: map[uint64]int{}} }

// most bounds the requests that are remembered.
const most = 256

// Ended records that a process has ended, because of why, while it executed a batch. It returns how many have ended with these inputs. A batch
// of several requests is not recorded, and has 0: any of them may be at fault. The inputs are borrowed.
func (r *Requests) Ended(ctx context.Context, b *backends.Batch, why string) (times int) {
	sum, ok := fingerprint(b.In)
	if len(b.Requests) > 1 || !ok {
		return 0
	}
	r.mu.Lock()
	if len(r.ended) >= most {
		clear(r.ended)
	}
	r.ended[sum]++
	n := r.ended[sum]
	r.mu.Unlock()
	if n < 2 {
		return n
	}
	id := ""
	if len(b.Requests) > 0 && b.Requests[0].Meta != nil {
		id = b.Requests[0].Meta.ID
	}
	hash := fmt.Sprintf("%016x", sum)
	why = status.Line(why)
	text := fmt.Sprintf("a request with the same inputs has ended the process of an instance %d times: %s; inputs %s", n, why, hash)
	captured := ""
	if r.set.Captures != nil && n == 2 {
		captured = r.set.Captures.RecordCrash(r.set.Signature.Model, r.set.Signature.Version, id, r.named(b.In))
	}
	if captured != "" {
		text += " are captured as " + captured
	}
	r.mu.Lock()
	if captured != "" || n == 2 || r.report == "" {
		r.report = text
	}
	r.mu.Unlock()
	if r.set.Repeated != nil {
		r.set.Repeated()
	}
	r.set.Log.ErrorContext(ctx, "a request ends the process of a model again and again", slog.String("request", id),
		slog.String("inputs", hash), slog.Int("times", n), slog.String("reason", why), slog.String("captured", captured))
	return n
}

// final is how often a request must have ended a process until it is not to be sent again.
const final = 3

// Lost returns the error of a request whose process ended, as text says, while it executed the request. times is how many have ended with its
// inputs and without another request that succeeded in between, since others may end processes too. The request may be sent again after a
// delay, but not for ever.
func Lost(text string, after time.Duration, times int) error {
	if times < final {
		return &status.Error{Code: status.Unavailable, Reason: status.InstanceLost, RetryAfter: after, Msg: text + "; send the request again"}
	}
	return status.Reasonf(status.RequestCrashes, "%s; requests with the same inputs have ended processes %d times: do not send them again", text, times)
}

// named returns the inputs with their names.
func (r *Requests) named(in []tensor.Tensor) (list []infer.Named) {
	for i := range in {
		if in[i].Present() {
			list = append(list, infer.Named{Name: r.set.Signature.Inputs[i].Name, Tensor: in[i]})
		}
	}
	return list
}

// Report returns the text for the index of models, or "".
func (r *Requests) Report() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report
}

// fingerprint returns a hash of inputs; false if one is at a device.
func fingerprint(in []tensor.Tensor) (uint64, bool) {
	h := fnv.New64a()
	for i := range in {
		t := &in[i]
		if !t.Present() {
			_, _ = h.Write([]byte{0}) // it never fails
			continue
		}
		if t.Buf.Place().Kind == tensor.Device {
			return 0, false
		}
		head := []byte{1, byte(t.DType)}
		for _, d := range t.Shape.Dims() {
			head = binary.LittleEndian.AppendUint64(head, uint64(d)) //nolint:gosec // the same bits
		}
		_, _ = h.Write(head)
		_, _ = h.Write(t.Bytes())
	}
	return h.Sum64(), true
}
