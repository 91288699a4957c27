package durable

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
)

// Service implements job.Service. It is safe for concurrent use.
type Service struct {
	s        Settings
	data     converter.DataConverter
	patience time.Duration // for a worker that takes a task
}

var _ job.Service = (*Service)(nil)

// New returns a service on s.Client. It does not connect.
func New(s Settings) *Service {
	s.complete()
	return &Service{s: s, data: DataConverter(s.Codec), patience: patience}
}

// The bounds of a Spec, which is stored with each job and in each run's history.
const (
	maxSpec     = 64 << 10         // bytes of JSON
	callTimeout = 10 * time.Second // the SDK gives one attempt half of it: enough for a server on a slow disk
)

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// Submit starts a job. See job.Service.
func (s *Service) Submit(ctx context.Context, spec *job.Spec) (*job.Status, error) {
	ctx, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	sp, err := normalise(spec)
	if err != nil {
		return nil, err
	}
	if err = s.known(ctx, sp); err != nil {
		return nil, err
	}
	_, err = s.s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: sp.ID, TaskQueue: s.s.Queue,
		WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		Memo:                                     map[string]any{memoSpec: sp},
		Priority:                                 priority(sp),
	}, workflowType, &order{Spec: *sp, Queue: s.s.Queue})
	var exists *serviceerror.WorkflowExecutionAlreadyStarted
	if err != nil && !errors.As(err, &exists) {
		return nil, s.coded(err, sp.ID)
	}
	st, err := s.Show(ctx, sp.ID)
	if err == nil && exists != nil && !reflect.DeepEqual(&st.Spec, sp) {
		return nil, status.Errorf(status.AlreadyExists, "job '%s' exists with another specification; submit this one with another id, or without one", sp.ID)
	}
	return st, err
}

// normalise returns a copy of a valid Spec with its ID and with absolute paths, since workers may run in other folders.
func normalise(spec *job.Spec) (*job.Spec, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "the specification of the job: %w", err)
	}
	if len(text) > maxSpec {
		return nil, status.Errorf(status.InvalidArg, "the specification of the job has %d bytes, expected at most %d", len(text), maxSpec)
	}
	var sp job.Spec
	if err = json.Unmarshal(text, &sp); err != nil {
		return nil, status.Errorf(status.Internal, "the specification of the job: %w", err)
	}
	if sp.ID == "" {
		var b [5]byte
		_, _ = rand.Read(b[:]) // never fails
		sp.ID = time.Now().UTC().Format("20060102-150405-") + hex.EncodeToString(b[:])
	}
	for _, p := range []*job.Place{&sp.Input, &sp.Output} {
		if p.URI, err = absolute(p.URI); err != nil {
			return nil, err
		}
	}
	return &sp, validate(&sp)
}

// absolute completes a relative path.
func absolute(uri string) (string, error) {
	if uri == "" || cloud.Is(uri) || strings.Contains(uri, "://") {
		return uri, nil
	}
	path, err := filepath.Abs(uri)
	if err != nil {
		return "", status.Errorf(status.InvalidArg, "'%s': %w", uri, err)
	}
	if strings.HasSuffix(uri, "/") {
		path += "/"
	}
	return path, nil
}

func validate(s *job.Spec) error {
	refuse := func(format string, args ...any) error {
		return status.Errorf(status.InvalidArg, "the specification of the job: "+format, args...)
	}
	switch {
	case !validID.MatchString(s.ID):
		return refuse("id '%s' is not valid; expected at most 128 letters, digits, '_' and '-', of which the first is a letter or a digit", s.ID)
	case s.ID == "requests":
		return refuse("id '%s' is the path of asynchronous requests; choose another one", s.ID)
	case s.Model == "":
		return refuse("model is missing")
	case s.Input.URI == "":
		return refuse("input is missing; expected the path or the address of a dataset")
	case s.Output.URI == "":
		return refuse("output is missing; expected the path or the address of a folder")
	case s.Version < 0:
		return refuse("version is %d, expected at least 0", s.Version)
	case s.ChunkRows < 0:
		return refuse("chunk_rows is %d, expected at least 0", s.ChunkRows)
	case s.Chunks < 0 || s.Chunks > maxWindow:
		return refuse("chunks is %d, expected 0 to %d", s.Chunks, maxWindow)
	case s.MaxFailed != nil && *s.MaxFailed < 0:
		return refuse("max_failed is %d, expected at least 0", *s.MaxFailed)
	case s.Priority < 0 || s.Priority > 5:
		return refuse("priority is %d, expected 1 (the highest) to 5, or 0 for 3", s.Priority)
	case len(s.Group) > 64:
		return refuse("group has %d bytes, expected at most 64", len(s.Group))
	case s.Device != "" && s.Device != deviceCPU && s.Device != deviceGPU:
		return refuse("device is '%s', expected '%s' or '%s', or nothing for any", s.Device, deviceCPU, deviceGPU)
	case s.OtherModel != "" && s.OtherModel != otherWait && s.OtherModel != otherFail:
		return refuse("other_model is '%s', expected '%s' or '%s'", s.OtherModel, otherWait, otherFail)
	}
	return nil
}

// The values of Spec.Device.
const (
	deviceCPU = "cpu"
	deviceGPU = "gpu"
)

// The values of Spec.OtherModel.
const (
	otherWait = "wait"
	otherFail = "fail"
)

// known returns an error for a model that neither this server nor a worker serves.
func (s *Service) known(ctx context.Context, sp *job.Spec) error {
	if s.s.Catalog == nil {
		return nil
	}
	_, err := s.s.Catalog.Describe(sp.Model, sp.Version)
	if err == nil {
		return nil
	}
	polled, qerr := s.polled(ctx, modelQueue(s.s.Queue, sp.Model, ""))
	if qerr != nil {
		return s.coded(qerr, sp.ID)
	}
	if polled {
		return nil
	}
	return status.Prefixf(err, "no worker serves model '%s', and this server does not either: ", sp.Model)
}

// Pause stops new chunks. See job.Service.
func (s *Service) Pause(ctx context.Context, id string) error { return s.signal(ctx, id, signalPause) }

// Resume starts chunks again. See job.Service.
func (s *Service) Resume(ctx context.Context, id string) error {
	return s.signal(ctx, id, signalResume)
}

func (s *Service) signal(ctx context.Context, id, name string) error {
	ctx, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	err := s.s.Client.SignalWorkflow(ctx, id, "", name, nil)
	return s.ended(ctx, id, err, name)
}

// Cancel ends a job. See job.Service.
func (s *Service) Cancel(ctx context.Context, id string) error {
	ctx, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	err := s.ended(ctx, id, s.s.Client.CancelWorkflow(ctx, id, ""), "cancel")
	if st, showErr := s.Show(ctx, id); err != nil && showErr == nil && st.State == job.Cancelled {
		return nil
	}
	return err
}

// ended tells a job that has ended from one that does not exist.
func (s *Service) ended(ctx context.Context, id string, err error, what string) error {
	if err == nil {
		return nil
	}
	if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
		if st, showErr := s.Show(ctx, id); showErr == nil {
			return status.Errorf(status.InvalidArg, "cannot %s job '%s': it is %s", what, id, st.State)
		}
	}
	return s.coded(err, id)
}

// coded returns an error of Temporal with its code and with what to do.
func (s *Service) coded(err error, id string) error {
	return s.s.Failure.Coded(err, "job '"+id+"'", status.Errorf(status.NotFound, "job '%s' is unknown", id))
}
