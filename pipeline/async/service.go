package async

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
)

// Service implements job.Requests. It is safe for concurrent use.
type Service struct {
	s       Settings
	records *records
	starts  chan struct{} // see maxStarts
}

var _ job.Requests = (*Service)(nil)

// New returns a service on s.Client. It does not connect.
func New(s Settings) (*Service, error) {
	if err := s.complete(); err != nil {
		return nil, err
	}
	return &Service{s: s, records: &records{uri: s.Store, data: s.Data}, starts: make(chan struct{}, maxStarts)}, nil
}

// heartbeatTimeout is when a worker that was killed is noticed.
const heartbeatTimeout = 10 * time.Second

// Submit stores a request and starts its activity. See job.Requests.
func (s *Service) Submit(ctx context.Context, req *job.Request) (*job.RequestStatus, error) {
	if req.Callback != "" {
		if err := s.s.Callbacks.check(req.Callback); err != nil {
			return nil, err
		}
	}
	store, err := s.records.name(ctx)
	if err == nil {
		err = s.records.room(ctx, len(req.Body))
	}
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	o := order{ID: newID(now), Model: req.Model, Version: req.Version, Bytes: int64(len(req.Body)), Created: now, Callback: req.Callback != ""}
	key := o.ID + kindRequest
	if err = s.records.put(ctx, key, &storedRequest{order: o, Header: req.Header, URL: req.Callback}, req.Body); err != nil {
		return nil, err
	}
	if err = s.start(ctx, store, &o); err != nil {
		// The activity may have been started nevertheless. It finds no request then, and ends.
		return nil, errors.Join(err, s.records.remove(context.WithoutCancel(ctx), key))
	}
	return s.waiting(&o, req.Callback), nil
}

// start starts the activity of a request.
func (s *Service) start(ctx context.Context, store string, o *order) error {
	select {
	case s.starts <- struct{}{}:
		defer func() { <-s.starts }()
	case <-ctx.Done():
		return status.ErrCancelled
	}
	ctx, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	_, err := s.s.Client.ExecuteActivity(ctx, client.StartActivityOptions{
		ID: o.ID, TaskQueue: s.s.queue(store, o.Model),
		ScheduleToCloseTimeout: s.s.Keep, HeartbeatTimeout: heartbeatTimeout,
		ActivityIDReusePolicy: enums.ACTIVITY_ID_REUSE_POLICY_REJECT_DUPLICATE,
		RetryPolicy:           &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute, NonRetryableErrorTypes: []string{errFatal}},
	}, activityInfer, o)
	if err != nil {
		return s.coded(err, o.ID)
	}
	return nil
}

// Wait returns the status when the request has ended, at the latest after a time. See job.Requests.
func (s *Service) Wait(ctx context.Context, id string, most time.Duration) (*job.RequestStatus, error) {
	st, err := s.Show(ctx, id)
	if err != nil || st.State.Final() || most <= 0 {
		return st, err
	}
	wait, done := context.WithTimeout(ctx, most)
	defer done()
	// Its error is that of the activity, or that of Temporal: both are seen again by Show.
	_ = s.handle(id).Get(wait, nil)
	return s.Show(ctx, id)
}

func (s *Service) handle(id string) client.ActivityHandle {
	return s.s.Client.GetActivityHandle(client.GetActivityHandleOptions{ActivityID: id})
}

// Result returns the response to a request that has ended. See job.Requests.
func (s *Service) Result(ctx context.Context, id string) (*job.Reply, *job.RequestStatus, error) {
	head, rest, err := s.response(ctx, id)
	if err == nil && head == nil {
		var st *job.RequestStatus
		if st, err = s.Show(ctx, id); err != nil || !st.State.Final() {
			return nil, st, err
		}
		if head, rest, err = s.response(ctx, id); err == nil && head == nil { // it ended without one, or Show was later
			return nil, st, nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return &job.Reply{Code: head.Code, Header: head.Header, Size: head.Size, Body: rest}, s.ended(head), nil
}

// Cancel ends a request, or removes its result. See job.Requests.
func (s *Service) Cancel(ctx context.Context, id string) (*job.RequestStatus, error) {
	st, err := s.Show(ctx, id)
	if err != nil {
		return nil, err
	}
	if st.State.Final() {
		s.settle(ctx, id)
		return st, errors.Join(s.records.remove(ctx, id+kindResponse), s.records.remove(ctx, id+kindRequest))
	}
	call, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	err = s.handle(id).Cancel(call, client.CancelActivityOptions{Reason: "cancelled by a client"})
	var missing *serviceerror.NotFound // it has ended in between
	if err != nil && !errors.As(err, &missing) {
		return nil, s.coded(err, id)
	}
	// A worker that has begun and not read it yet waits for the cancellation, see gone; no other begins.
	if err = s.records.remove(ctx, id+kindRequest); err != nil {
		return nil, err
	}
	return s.Show(ctx, id)
}

// settle waits for a moment until Temporal knows of the end of a request. The response is stored before that; without it, a request that
// Temporal does not know to have ended would be shown as running.
func (s *Service) settle(ctx context.Context, id string) {
	ctx, done := context.WithTimeout(ctx, settleTimeout)
	defer done()
	_ = s.handle(id).Get(ctx, nil) // the result is removed even if Temporal is away
}

// coded returns an error of Temporal with its code and with what to do.
func (s *Service) coded(err error, id string) error {
	if without, ok := errors.AsType[*serviceerror.Unimplemented](err); ok {
		return status.Errorf(status.Unsupported, "unsupported: the Temporal server has no standalone activities, which asynchronous requests need (%w); "+
			"use version 1.31 or later with the setting activity.enableStandalone", without)
	}
	return s.s.Failure.Coded(err, "asynchronous request '"+id+"'", unknown(id))
}

// unknown is the error of an ID without a request.
func unknown(id string) error {
	return status.Errorf(status.NotFound, "asynchronous request '%s' is unknown, or its result was removed: results are kept for the time of --async-result-time", id)
}
