package durable

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
)

// TestDevice checks that a job that names a device is executed by workers with the model there only, and that Show says so while
// there is none.
func TestDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.service.patience = 100 * time.Millisecond
	r.work()
	spec := r.spec("cpu", 20)
	spec.Device = "cpu"
	if st, _ := r.run(spec); st.Rows.Done != 20 {
		t.Errorf("%+v", st.Rows)
	}
	spec = r.spec("gpu", 20)
	spec.Device = "gpu"
	r.submit(spec)
	st := r.await("gpu", "waiting", func(st *job.Status) bool { return st.State == job.Waiting })
	if !strings.Contains(st.Reason, "no worker has taken task queue 'tutti-double/gpu' for") || !strings.HasSuffix(st.Reason, "with model 'double' on a GPU") {
		t.Error(st.Reason)
	}
	r.gpu = true
	r.work()
	if st := r.finished("gpu"); st.State != job.Completed || st.Rows.Done != 20 {
		t.Errorf("%s %s: %+v", st.State, st.Reason, st.Rows)
	}
	spec = r.spec("tpu", 20)
	spec.Model, spec.Device = "double", "tpu"
	if _, err := r.service.Submit(t.Context(), &spec); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "device is 'tpu', expected 'cpu' or 'gpu'") {
		t.Error(err)
	}
}
