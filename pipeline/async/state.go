package async

import (
	"context"
	"errors"
	"io"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
)

// Show returns the state of a request. See job.Requests.
func (s *Service) Show(ctx context.Context, id string) (*job.RequestStatus, error) {
	st, err := s.stored(ctx, id)
	if st != nil || err != nil {
		return s.withDelivery(ctx, st, err)
	}
	call, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	d, err := s.handle(id).Describe(call, client.DescribeActivityOptions{IncludeInput: true, IncludeOutcome: true, IncludeLastFailure: true})
	if err != nil {
		return nil, s.coded(err, id)
	}
	var o order
	if err = d.GetInput(&o); err != nil {
		return nil, status.Errorf(status.Internal, "the order of request '%s' cannot be read: %w", id, err)
	}
	st = s.described(d, &o)
	if !st.State.Final() || st.State == job.RequestCancelled {
		return st, nil
	}
	// It has ended, with a response that was written after the first look, or without one.
	if again, err := s.stored(ctx, id); again != nil || err != nil {
		return s.withDelivery(ctx, again, err)
	}
	if st.State == job.Succeeded {
		return nil, unknown(id)
	}
	return st, nil
}

// stored returns the state of a request that has a response, nil if it has none.
func (s *Service) stored(ctx context.Context, id string) (*job.RequestStatus, error) {
	head, rest, err := s.response(ctx, id)
	if head == nil || err != nil {
		return nil, err
	}
	return s.ended(head), rest.Close()
}

// response opens the response of a request. It returns nil if there is none (yet).
func (s *Service) response(ctx context.Context, id string) (*storedResponse, io.ReadCloser, error) {
	if madeAt(id).IsZero() {
		return nil, nil, unknown(id)
	}
	head := &storedResponse{}
	rest, err := s.records.get(ctx, id+kindResponse, head)
	if err != nil && status.CodeOf(err) == status.NotFound {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if time.Now().After(head.Ended.Add(s.s.Keep)) {
		return nil, nil, errors.Join(unknown(id), rest.Close())
	}
	return head, rest, nil
}

// status returns what all states have.
func (*Service) status(o *order, state job.RequestState) *job.RequestStatus {
	path := job.RequestPath(o.ID)
	return &job.RequestStatus{
		ID: o.ID, Model: o.Model, Version: o.Version, State: state, Created: o.Created, StatusURL: path, ResultURL: path + "/result",
	}
}

// waiting is the status of a new request.
func (s *Service) waiting(o *order, callback string) *job.RequestStatus {
	st := s.status(o, job.Queued)
	if callback != "" {
		st.Callback = &job.Delivery{URL: callback, State: job.DeliveryWaiting}
	}
	return st
}

// ended is the status of a request with a response.
func (s *Service) ended(head *storedResponse) *job.RequestStatus {
	st := s.status(&head.order, head.State)
	st.Started, st.Ended, st.Expires = head.Started, head.Ended, head.Ended.Add(s.s.Keep)
	st.Attempts, st.Code = head.Attempts, head.Code
	if head.State == job.RequestFailed {
		st.ErrorReason, st.Retryable = reasonOf(head), head.Header.Get(status.RetryableHeader) == "true"
	}
	if head.URL != "" {
		st.Callback = &job.Delivery{URL: head.URL, State: job.DeliveryPending}
	}
	return st
}

// reasonOf returns why a request failed, for programs; empty for one that did not.
func reasonOf(head *storedResponse) string {
	if head.State != job.RequestFailed {
		return ""
	}
	return head.Header.Get(status.ReasonHeader)
}

// described is the status of a request by its activity.
func (s *Service) described(d *client.ActivityExecutionDescription, o *order) *job.RequestStatus {
	st := s.status(o, job.Queued)
	st.Attempts = int(d.Attempt)
	if d.LastStartedTime.IsZero() || d.LastStartedTime.Unix() <= 0 {
		st.Attempts = 0
	} else {
		st.Started = d.LastStartedTime.UTC()
	}
	if err := d.GetLastFailure(); err != nil {
		st.Reason = reason(err)
	}
	switch d.Status {
	case enums.ACTIVITY_EXECUTION_STATUS_RUNNING:
		if d.RunState == enums.PENDING_ACTIVITY_STATE_STARTED || d.RunState == enums.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED {
			st.State = job.RequestRunning
		}
		return st
	case enums.ACTIVITY_EXECUTION_STATUS_COMPLETED:
		st.State = job.Succeeded
	case enums.ACTIVITY_EXECUTION_STATUS_CANCELED, enums.ACTIVITY_EXECUTION_STATUS_TERMINATED:
		st.State, st.Reason = job.RequestCancelled, ""
	case enums.ACTIVITY_EXECUTION_STATUS_TIMED_OUT:
		st.State = job.RequestFailed
		if st.Reason != "" {
			st.Reason = ": " + st.Reason
		}
		st.Reason = "it was not executed within " + s.s.Keep.String() + st.Reason
	default:
		st.State = job.RequestFailed
		if err := d.GetOutcomeFailure(); err != nil {
			st.Reason = reason(err)
		}
	}
	st.Ended = d.CloseTime.UTC()
	return st
}

// withDelivery completes a status with the state of its callback, as far as Temporal is there to say it.
func (s *Service) withDelivery(ctx context.Context, st *job.RequestStatus, err error) (*job.RequestStatus, error) {
	if err != nil || st.Callback == nil {
		return st, err
	}
	ctx, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	c := st.Callback
	d, err := s.handle(callbackID(st.ID)).Describe(ctx, client.DescribeActivityOptions{IncludeOutcome: true, IncludeLastFailure: true})
	if _, missing := errors.AsType[*serviceerror.NotFound](err); missing { // it begins in a moment
		return st, nil
	}
	if err != nil {
		c.Error = status.Line(s.coded(err, st.ID).Error())
		return st, nil
	}
	c.Attempts = int(d.Attempt)
	if err := d.GetLastFailure(); err != nil {
		c.Error = reason(err)
	}
	switch d.Status {
	case enums.ACTIVITY_EXECUTION_STATUS_RUNNING:
		c.Next = d.NextAttemptScheduleTime.UTC()
	case enums.ACTIVITY_EXECUTION_STATUS_COMPLETED:
		c.State, c.Error, c.Ended = job.Delivered, "", d.CloseTime.UTC()
	default:
		c.State = job.DeliveryFailed
		if err := d.GetOutcomeFailure(); err != nil && c.Error == "" {
			c.Error = reason(err)
		}
	}
	return st, nil
}
